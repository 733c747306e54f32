"""/metrics: every way out from the start at 0, counts equal to what was done, labels bounded."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway import metrics as gateway_metrics
from gateway.adapters.tools.tool import Tool
from gateway.core.run import ToolSpec
from gateway.metrics import OTHER, STOPS, Bounded
from tests.serving import Gateway, Serve


def stops(metrics: dict[str, float]) -> dict[tuple[str, str], float]:
    """The stops that there were, by status and reason."""
    counted: dict[tuple[str, str], float] = {}
    for series, value in metrics.items():
        found = re.fullmatch(r'gateway_run_stops_total\{agent="files",reason="(\w+)",status="(\w+)"\}', series)
        if found and value:
            counted[found[2], found[1]] = value
    return counted


async def test_every_way_out_has_a_series_from_the_start_at_zero(gateway: Gateway) -> None:
    metrics = await gateway.metrics()

    for status, reason in STOPS:
        assert metrics[f'gateway_run_stops_total{{agent="files",reason="{reason}",status="{status}"}}'] == 0
    assert metrics['gateway_runs_started_total{agent="files"}'] == 0
    assert metrics['gateway_runs_active{agent="files"}'] == 0
    assert metrics["gateway_approvals_pending"] == 0
    assert metrics["gateway_provider_retries_total"] == 0


async def test_metrics_are_text_as_prometheus_reads_it(gateway: Gateway) -> None:
    got = await gateway.get("/metrics")

    assert got.headers["Content-Type"].startswith("text/plain; version=")
    assert b"# TYPE gateway_run_stops_total counter" in got.body
    assert b"_created" not in got.body


async def test_a_run_is_counted_as_what_it_did(gateway: Gateway) -> None:
    await gateway.run("plan")

    metrics = await gateway.metrics()

    assert stops(metrics) == {("completed", "none"): 1}
    assert metrics['gateway_runs_started_total{agent="files"}'] == 1
    assert metrics['gateway_runs_active{agent="files"}'] == 0
    assert metrics['gateway_run_turns_sum{agent="files",status="completed"}'] == 3
    assert metrics['gateway_run_cost_usd_sum{agent="files",status="completed"}'] == pytest.approx(0.00247)
    assert metrics['gateway_cost_usd_total{agent="files",model="plan"}'] == pytest.approx(0.00247)
    assert metrics['gateway_tokens_total{agent="files",kind="prompt",model="plan"}'] == 815
    assert metrics['gateway_tokens_total{agent="files",kind="completion",model="plan"}'] == 70
    assert metrics['gateway_provider_requests_total{outcome="ok",provider="scripted"}'] == 3
    assert metrics['gateway_tool_runs_total{outcome="ok",tool="list_files"}'] == 1
    assert metrics['gateway_tool_runs_total{outcome="ok",tool="read_file"}'] == 1
    assert metrics['gateway_turn_seconds_count{model="plan"}'] == 3
    assert metrics["gateway_overhead_seconds_count"] == 3
    assert metrics['gateway_tool_seconds_count{tool="read_file"}'] == 1


async def test_every_way_out_is_counted_under_its_status_and_reason(gateway: Gateway) -> None:
    await gateway.run("plan")
    await gateway.run("plan@fault=401")
    await gateway.run("runaway", limits={"max_turns": 2})
    await gateway.run("runaway", limits={"max_budget_usd": 0.001})
    await gateway.run("destructive")
    await gateway.run("plan@fault=500")
    await gateway.run("plan@latency=500", limits={"deadline_seconds": 0.05})
    cancelled = await gateway.run("plan@latency=5000", wait=0)
    await gateway.command(cancelled["id"], "cancel")
    await gateway.run(
        "asks_client", tools=[{"type": "function", "function": {"name": "weather", "description": "The weather."}}]
    )

    metrics = await gateway.metrics()

    assert stops(metrics) == {
        ("completed", "none"): 1,
        ("failed", "none"): 1,
        ("max_turns_exceeded", "max_turns"): 1,
        ("budget_exceeded", "max_budget"): 1,
        ("interrupted", "approval"): 1,
        ("interrupted", "provider_unavailable"): 1,
        ("interrupted", "deadline"): 1,
        ("interrupted", "cancelled"): 1,
        ("interrupted", "tool_outputs"): 1,
    }
    assert metrics["gateway_approvals_pending"] == 1
    assert metrics["gateway_budget_overshoot_usd_count"] == 1
    assert metrics["gateway_budget_overshoot_usd_sum"] == pytest.approx(0.000498)
    assert metrics['gateway_runs_active{agent="files"}'] == 0


async def test_a_budget_that_is_kept_to_is_not_passed_by_less_than_nothing(gateway: Gateway) -> None:
    await gateway.run("runaway", limits={"max_budget_usd": 0.002, "budget_mode": "hard", "max_turns": None})

    metrics = await gateway.metrics()

    assert metrics["gateway_budget_overshoot_usd_count"] == 1
    assert metrics["gateway_budget_overshoot_usd_sum"] == 0


async def test_runs_under_way_are_counted_while_they_are(gateway: Gateway) -> None:
    runs = [await gateway.run("plan@latency=5000", wait=0) for _ in range(2)]
    assert (await gateway.metrics())['gateway_runs_active{agent="files"}'] == 2

    for run in runs:
        await gateway.command(run["id"], "cancel")

    assert (await gateway.metrics())['gateway_runs_active{agent="files"}'] == 0


async def test_a_resumed_run_adds_what_it_added_since(gateway: Gateway) -> None:
    run = await gateway.run("runaway", limits={"max_turns": 8})
    await gateway.command(run["id"], "resume", {"limits": {"max_turns": 20}})

    metrics = await gateway.metrics()

    of_runs = '{agent="files",status="max_turns_exceeded"}'
    assert metrics[f"gateway_run_turns_count{of_runs}"] == 2
    assert metrics[f"gateway_run_turns_sum{of_runs}"] == 20
    assert metrics[f"gateway_run_cost_usd_sum{of_runs}"] == pytest.approx(0.038038)
    assert metrics['gateway_cost_usd_total{agent="files",model="runaway"}'] == pytest.approx(0.038038)
    assert metrics['gateway_runs_started_total{agent="files"}'] == 1


@pytest.mark.parametrize(
    ("model", "outcomes", "retries"),
    [
        ("once@fault=500", {"unavailable": 3}, 2),
        ("once@fault=drop_before", {"lost": 3}, 2),
        ("once@fault=500:1", {"unavailable": 2, "ok": 2}, 2),
        ("once@fault=500:1@turn=0", {"unavailable": 1, "ok": 2}, 1),
        ("once@fault=401", {"refused": 1}, 0),
    ],
)
async def test_requests_to_the_provider_are_counted_by_how_they_ended(
    gateway: Gateway, model: str, outcomes: dict[str, int], retries: int
) -> None:
    await gateway.run(model)

    metrics = await gateway.metrics()

    found = {
        outcome: metrics.get(f'gateway_provider_requests_total{{outcome="{outcome}",provider="scripted"}}')
        for outcome in ("ok", "refused", "unavailable", "lost")
    }
    assert {outcome: count for outcome, count in found.items() if count} == outcomes
    assert metrics["gateway_provider_retries_total"] == retries


async def test_waits_between_attempts_are_not_counted_as_overhead(serve: Serve) -> None:
    waits = {"backoff_seconds": 0.0, "retry_after_max_seconds": 5}
    async with serve(settings=waits) as gateway:
        await gateway.run("talks@fault=503:1@retry_after=0.5")

        assert (await gateway.metrics())["gateway_overhead_seconds_sum"] < 0.4


async def test_answers_to_calls_are_counted_by_what_they_were(serve: Serve, tmp_path: Path) -> None:
    async def fails(args: dict[str, Any], ctx: Any) -> str:
        raise RuntimeError("no")

    act = Tool(ToolSpec(name="act", description="Acts.", parameters={"type": "object"}, read_only=True), fails)
    async with serve(tools={"act": act}) as gateway:
        await gateway.run("acts")
        await gateway.run("nonsense")
        await gateway.run("repeat", policies={"dedupe": "read_only"})
        await gateway.run("destructive", policies={"approval": "deny"})
        metrics = await gateway.metrics()

    runs = {series: value for series, value in metrics.items() if series.startswith("gateway_tool_runs_total")}
    assert runs == {
        'gateway_tool_runs_total{outcome="error",tool="act"}': 1,
        'gateway_tool_runs_total{outcome="invalid",tool="unknown"}': 1,
        'gateway_tool_runs_total{outcome="invalid",tool="read_file"}': 1,
        'gateway_tool_runs_total{outcome="ok",tool="read_file"}': 1,
        'gateway_tool_runs_total{outcome="cache",tool="read_file"}': 1,
        'gateway_tool_runs_total{outcome="ok",tool="list_files"}': 1,
        'gateway_tool_runs_total{outcome="refusal",tool="delete_file"}': 1,
    }


async def test_a_run_that_is_taken_up_again_is_counted_as_driven(serve: Serve) -> None:
    async with serve() as gateway:
        run = await gateway.run("plan@latency=300", wait=0)
    async with serve() as gateway:
        await gateway.trace(run["id"])
        metrics = await gateway.metrics()

    assert stops(metrics) == {("completed", "none"): 1}
    assert metrics['gateway_runs_started_total{agent="files"}'] == 0
    assert metrics['gateway_runs_active{agent="files"}'] == 0


async def test_no_label_holds_a_run_or_a_call_and_more_runs_make_no_more_series(gateway: Gateway) -> None:
    first = [await gateway.run("destructive"), await gateway.run("plan")]
    before = await gateway.metrics()

    more = [await gateway.run("destructive"), await gateway.run("plan")]
    after = await gateway.metrics()

    assert after.keys() == before.keys()
    text = "\n".join(after)
    assert not any(run["id"] in text for run in first + more)
    labels = {name for series in after for name in re.findall(r'(\w+)="', series)}
    assert labels == {"agent", "status", "reason", "le", "model", "kind", "provider", "outcome", "tool", "version"}


async def test_models_that_clients_make_up_cannot_make_series_without_end(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_metrics, "MODELS_MAX", 2)

    for number in range(5):
        await gateway.run(f"talks@latency={number}")

    metrics = await gateway.metrics()
    models = {series for series in metrics if series.startswith("gateway_cost_usd_total")}
    assert len(models) == 3
    assert metrics[f'gateway_cost_usd_total{{agent="files",model="{OTHER}"}}'] > 0


def test_a_bounded_label_counts_the_rest_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_metrics, "MODELS_MAX", 2)
    label = Bounded()

    assert [label(value) for value in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]


async def test_money_is_counted_to_the_published_figure(gateway: Gateway) -> None:
    run = await gateway.run("recover")

    assert run["cost_usd"] == Decimal("0.00355")
    assert (await gateway.metrics())['gateway_cost_usd_total{agent="files",model="recover"}'] == pytest.approx(0.00355)
