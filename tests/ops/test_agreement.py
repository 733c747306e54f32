"""What a fresh process counts in its metrics is what its store says that it did, under a load of every kind."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.bench.mixed import LOAD_SCRIPTS, each_once
from gateway.bench.observe import gateway_config
from gateway.bench.process import serving as serving_gateway
from gateway.client import Gateway
from gateway.metrics import STOPS
from scripted.app import create_app as create_scripted
from scripted.app import serving as serving_scripted

Samples = dict[str, dict[tuple[str, ...], float]]


@pytest.fixture
async def after_a_load(tmp_path: Path) -> AsyncIterator[tuple[Samples, Any, list[dict[str, Any]]]]:
    """The metrics, /v1/stats, and every event of the store, each with the agent and model of its run."""
    async with (
        serving_scripted(create_scripted(scripts=LOAD_SCRIPTS)) as provider,
        serving_gateway(gateway_config(tmp_path, provider, 0)) as process,
        Gateway(process.url) as gateway,
        aiohttp.ClientSession() as session,
    ):
        await each_once(gateway)
        await each_once(gateway)
        async with session.get(f"{process.url}/metrics") as response:
            metrics = samples_of(await response.text())
        async with session.get(f"{process.url}/v1/stats", params={"days": "2"}) as response:
            stats = json.loads(await response.read(), parse_float=Decimal)
        yield metrics, stats, events_of(tmp_path / "runs.db")


def samples_of(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def events_of(store: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        rows = connection.execute(
            "SELECT agent, model, body FROM events JOIN runs ON runs.id = events.run_id ORDER BY run_id, seq"
        )
        return [
            {"agent": agent, "model": model} | json.loads(line, parse_float=Decimal)
            for agent, model, body in rows
            for line in body.splitlines()
        ]


async def test_metrics_stats_and_the_record_agree(after_a_load: tuple[Samples, Any, list[dict[str, Any]]]) -> None:
    metrics, stats, events = after_a_load
    turns = [event for event in events if event["type"] == "turn"]
    stops = [event for event in events if event["type"] == "run_stopped"]
    started = [event for event in events if event["type"] == "run_started"]

    ways = Counter((event["agent"], event.get("reason") or "none", event["status"]) for event in stops)
    assert {each for each in metrics["gateway_run_stops_total"].items() if each[1]} == set(ways.items())

    assert nonzero(metrics["gateway_runs_started_total"]) == {
        (agent,): number for agent, number in Counter(event["agent"] for event in started).items()
    }
    spent: Counter[tuple[str, str]] = Counter()
    tokens: Counter[tuple[str, str, str]] = Counter()
    for event in turns:
        spent[event["agent"], event["model"]] += event["turnCostUsd"]
        tokens[event["agent"], "prompt", event["model"]] += event["prompt_tokens"]
        tokens[event["agent"], "completion", event["model"]] += event["completion_tokens"]
    assert metrics["gateway_cost_usd_total"] == pytest.approx({key: float(cost) for key, cost in spent.items()})
    assert nonzero(metrics["gateway_tokens_total"]) == dict(tokens)
    assert sum(metrics["gateway_turn_seconds_count"].values()) == len(turns)
    assert sum(metrics["gateway_run_turns_sum"].values()) == len(turns)
    answers = Counter(outcome_of(event) for event in events if event["type"] == "tool_result")
    assert by_last(metrics["gateway_tool_runs_total"], 0) == answers

    assert stats["cost_usd"] == sum(event["turnCostUsd"] for event in turns)
    assert {row["agent"]: row["turns"] for row in stats["by_agent"]} == Counter(event["agent"] for event in turns)
    assert {row["agent"]: row["cost_usd"] for row in stats["by_agent"]} == totals(spent, 0)
    assert {row["model"]: row["cost_usd"] for row in stats["by_model"] if row["turns"]} == totals(spent, 1)
    assert stats["runs"] == sum(1 for event in started if "parent" not in event)
    waiting = {row["reason"]: row["runs"] for row in stats["by_status"]}
    assert metrics["gateway_approvals_pending"][()] == waiting["approval"]
    assert metrics["gateway_in_doubt_pending"][()] == waiting["in_doubt"]
    assert sum(metrics["gateway_runs_active"].values()) == 0


async def test_the_mixed_load_ends_runs_in_every_way(after_a_load: tuple[Samples, Any, list[dict[str, Any]]]) -> None:
    _, _, events = after_a_load
    stops = [event for event in events if event["type"] == "run_stopped"]

    ways = {(event["status"], event.get("reason") or "none") for event in stops}
    assert ways == {(status.value, reason) for status, reason in STOPS}


def nonzero(samples: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    return {labels: value for labels, value in samples.items() if value}


def outcome_of(event: dict[str, Any]) -> str:
    source = event.get("source", "tool")
    return source if source != "tool" else "ok" if event["ok"] else "error"


def by_last(samples: dict[tuple[str, ...], float], label: int) -> dict[str, float]:
    found: Counter[str] = Counter()
    for labels, value in samples.items():
        found[labels[label]] += int(value)
    return dict(found)


def totals(spent: Counter[tuple[str, str]], part: int) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for key, cost in spent.items():
        found[key[part]] = found.get(key[part], Decimal(0)) + cost
    return found
