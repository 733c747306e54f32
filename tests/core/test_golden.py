"""Logs of the past replay for ever. To add one: write a story, run `python -m tests.core.stories`, commit both files.
No file of a version that was released is ever changed."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.core import events as e
from gateway.core.codec import decode_event, encode, trace_line
from gateway.core.loop import replay
from gateway.core.messages import Assistant, Function, ToolCall
from gateway.core.run import Status
from tests.core.stories import GOLDEN, STORIES, figures_of
from tests.core.world import NOON

LOGS = sorted(GOLDEN.glob("v*_*.jsonl"))

C1 = ToolCall("c1", "function", Function("list_files", "{}"))

PUBLISHED: list[tuple[str, e.Event]] = [
    (
        '{"runId":"n1","type":"turn","turn":1,"prompt_tokens":204,"completion_tokens":23,"total_tokens":227,'
        '"costUsd":0.000684,"finish":"tool_calls"}',
        e.Turn(
            turn=1,
            prompt_tokens=204,
            completion_tokens=23,
            total_tokens=227,
            cost_usd=Decimal("0.000684"),
            turn_cost_usd=Decimal("0.000684"),
            finish="tool_calls",
            message=Assistant(None, (C1,)),
            checks=(e.Check({}),),
            ms=12.5,
            time=NOON,
        ),
    ),
    (
        '{"runId":"n1","type":"tool_start","toolName":"list_files","args":"{}","callId":"c1"}',
        e.ToolStart(tool_name="list_files", args="{}", provider_id="c1", call="n1:1:0", time=NOON),
    ),
    (
        '{"runId":"n1","type":"tool_progress","toolName":"scan_archive","label":"scanned 200 of 1200 files"}',
        e.ToolProgress(tool_name="scan_archive", label="scanned 200 of 1200 files", call="n1:1:0", time=NOON),
    ),
    (
        '{"runId":"n1","type":"tool_result","toolName":"list_files","ms":1,"ok":true}',
        e.ToolResult(
            tool_name="list_files", ms=1, ok=True, provider_id="c1", call="n1:1:0", content="[]", error="", time=NOON
        ),
    ),
    (
        '{"runId":"n1","type":"approval_required","toolName":"delete_file",'
        '"args":"{\\"path\\":\\"access.log\\"}","callId":"c2"}',
        e.ApprovalRequired(
            tool_name="delete_file", args='{"path":"access.log"}', provider_id="c2", call="n1:2:0", time=NOON
        ),
    ),
    (
        '{"runId":"n1","type":"run_stopped","status":"interrupted","reason":"approval","turns":2,"costUsd":0.00157}',
        e.RunStopped(status=Status.INTERRUPTED, reason="approval", turns=2, cost_usd=Decimal("0.00157"), time=NOON),
    ),
]

FIELDS = {name: list(json.loads(line)) for line, _ in PUBLISHED for name in (json.loads(line)["type"],)}
"""The published fields of each type of event, in their order."""


@pytest.mark.parametrize(("line", "event"), PUBLISHED, ids=list(FIELDS))
def test_a_line_of_the_trace_begins_exactly_as_published(line: str, event: e.Event) -> None:
    assert trace_line("n1", 7, encode(event)).decode().startswith(line[:-1] + ",")


def read(log: Path) -> tuple[str, list[e.Event]]:
    lines = log.read_bytes().splitlines()
    return json.loads(lines[0])["runId"], [decode_event(line) for line in lines]


def test_there_is_a_golden_log_of_every_version_and_every_story() -> None:
    assert {log.stem for log in LOGS} >= {f"v{version}_plan" for version in range(1, e.VERSION + 1)}
    assert {log.stem for log in LOGS} >= {f"v{e.VERSION}_{story}" for story in STORIES}


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_a_golden_log_replays_to_the_run_that_it_was(log: Path) -> None:
    expected: dict[str, Any] = json.loads(log.with_suffix(".json").read_text(encoding="utf-8"))

    assert figures_of(replay(*read(log))) == expected


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_a_golden_log_is_written_again_with_every_field_that_it_had(log: Path) -> None:
    run_id, events = read(log)

    for seq, (line, event) in enumerate(zip(log.read_bytes().splitlines(), events, strict=True), start=1):
        assert within(json.loads(line), json.loads(trace_line(run_id, seq, encode(event))))


def within(old: Any, new: Any) -> bool:
    """Whether all that was said is said still; fields may have been added."""
    match old, new:
        case dict(), dict():
            return all(key in new and within(value, new[key]) for key, value in old.items())
        case list(), list():
            return len(old) == len(new) and all(map(within, old, new))
        case _:
            return bool(old == new)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_every_golden_line_has_the_published_fields_first(log: Path) -> None:
    for seq, line in enumerate(log.read_bytes().splitlines(), start=1):
        fields = list(json.loads(line))
        published = FIELDS.get(json.loads(line)["type"], ["runId", "type"])
        assert fields[: len(published)] == published
        assert (fields[-1], json.loads(line)["seq"]) == ("seq", seq)


def test_the_golden_plan_has_the_published_figures() -> None:
    run = replay(*read(GOLDEN / "v1_plan.jsonl"))

    assert (run.turns, run.tool_runs, run.cost_usd) == (3, 2, Decimal("0.00247"))
    assert (run.usage.prompt_tokens, run.usage.completion_tokens) == (815, 70)
