"""Drives the scenarios over HTTP and measures them. A client like any other, except that it also kills the gateway."""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import aclosing
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from gateway.adapters.store.sqlite import SqliteStore
from gateway.bench.expected import Figures
from gateway.bench.process import serving, workspace_of, write_config
from gateway.bench.scenarios import (
    KILLED,
    QUESTION,
    SCENARIOS,
    SLOW_REPLY_MS,
    STOP_MODELS,
    TIMED_MODELS,
    Scenario,
)
from gateway.client import Gateway, Seen
from gateway.core import events as e
from gateway.core.codec import decode_event
from gateway.core.loop import replay
from gateway.core.run import Cancelled, Run, Status
from gateway.edge.wire import RunBody, StartRun

RUN_SECONDS_MAX = 60.0
STOP_AT_SECONDS = 1.2
STOP_REASON = "user pressed Stop"
PLAN_REPEATS = 9
DELETED_FILE = "access.log"


class Measured(Struct, frozen=True, kw_only=True):
    """What one scenario came to: the figures, its turns, and whether its file is as it should be afterwards."""

    figures: Figures
    turns: list[e.Turn]
    file_deleted: bool


class Stopped(Struct, frozen=True, kw_only=True):
    """Milliseconds since scan_archive began, by the trace."""

    stopped_ms: float
    reply_ms: float
    status: Status
    reason: str | None
    progress_ms: list[float]


class Timings(Struct, frozen=True, kw_only=True):
    """Shown, never compared: they are this machine's."""

    plan_ms_by_latency: dict[str, float]
    plan_harness_ms: float
    stop: Stopped
    without_stop: Stopped


class Results(Struct, frozen=True, kw_only=True):
    scenarios: dict[str, Measured]
    timings: Timings


async def measure(folder: Path) -> Results:
    """All of it. Figures come first and side by side; timings after them, when nothing else goes on."""
    models = {scenario.name: scenario.script for scenario in SCENARIOS}
    config = write_config(folder / "all", {**models, **TIMED_MODELS, **STOP_MODELS})
    async with serving(config) as process, Gateway(process.url) as gateway:
        killed, rows = await asyncio.gather(measure_kill(folder / KILLED), measure_scenarios(gateway, config.parent))
        timings = await measure_timings(gateway)
    return Results(scenarios={**rows, **killed}, timings=timings)


# --- figures --------------------------------------------------------------------------------------------------------


async def measure_scenarios(gateway: Gateway, folder: Path) -> dict[str, Measured]:
    rows = await asyncio.gather(*(measure_scenario(gateway, scenario, folder) for scenario in SCENARIOS))
    return {scenario.name: row for scenario, row in zip(SCENARIOS, rows, strict=True)}


async def measure_scenario(gateway: Gateway, scenario: Scenario, folder: Path) -> Measured:
    order = StartRun(input=QUESTION, agent=scenario.name, limits=scenario.limits, policies=scenario.policies)
    run = await gateway.start(order, wait_seconds=RUN_SECONDS_MAX)
    run = await judged(gateway, scenario, run)
    deleted = not (workspace_of(folder, scenario.name) / DELETED_FILE).exists()
    return measured(run, await trace(gateway, run.id), file_deleted=deleted)


async def judged(gateway: Gateway, scenario: Scenario, run: RunBody) -> RunBody:
    """The run after the scenario's verdict on the call that waits."""
    if scenario.verdict is None:
        return run
    call = run.pending_approvals[0]
    if scenario.verdict == "approve":
        return await gateway.approve(run.id, call.call_id, args_hash=call.args_hash, wait_seconds=RUN_SECONDS_MAX)
    return await gateway.reject(run.id, call.call_id, scenario.reason, wait_seconds=RUN_SECONDS_MAX)


async def trace(gateway: Gateway, run_id: str) -> list[e.Event]:
    async with aclosing(gateway.events(run_id)) as events:
        return [seen.event async for seen in events if isinstance(seen, Seen)]


def measured(run: RunBody, events: list[e.Event], *, file_deleted: bool = False) -> Measured:
    turns = [event for event in events if isinstance(event, e.Turn)]
    figures = Figures(
        turns=run.turns,
        tool_runs=run.tool_runs,
        prompt_tokens=run.usage.prompt_tokens,
        completion_tokens=run.usage.completion_tokens,
        cost_usd=run.cost_usd,
        status=run.status,
        output=run.output,
        per_turn_prompt_tokens=[turn.prompt_tokens for turn in turns],
    )
    return Measured(figures=figures, turns=turns, file_deleted=file_deleted)


# --- kill -9 --------------------------------------------------------------------------------------------------------


async def measure_kill(folder: Path) -> dict[str, Measured]:
    """A gateway is killed while it waits for the third reply; a second one on the same store finishes the run."""
    config = write_config(folder, {KILLED: f"plan@latency={SLOW_REPLY_MS}"})
    async with serving(config) as first, Gateway(first.url, reconnect_seconds=0) as gateway:
        run_id = await after_second_tool(gateway)
        await first.kill()
    left = await recorded(folder / "runs.db", run_id)
    async with serving(config) as second, Gateway(second.url) as gateway:
        events = await trace(gateway, run_id)  # ends when the run has stopped
        finished = measured(await gateway.get(run_id), events)
    return {"kill_after_turn_2": left, "kill_and_resume": finished}


async def after_second_tool(gateway: Gateway) -> str:
    """Starts the run, and returns once the result of its second tool is in the trace."""
    run = await gateway.start(StartRun(input=QUESTION, agent=KILLED))
    async with aclosing(gateway.events(run.id)) as events:
        results = 0
        async for seen in events:
            results += isinstance(seen, Seen) and isinstance(seen.event, e.ToolResult)
            if results == 2:
                break
    return run.id


async def recorded(store_path: Path, run_id: str) -> Measured:
    """The run as the dead process left it: nobody drives it, and the store is all there is."""
    async with await SqliteStore.open(store_path) as store:
        events = [decode_event(record.body) for record in await store.read(run_id)]
    return left_behind(replay(run_id, events), events)


def left_behind(run: Run, events: list[e.Event]) -> Measured:
    figures = Figures(
        turns=run.turns,
        tool_runs=run.tool_runs,
        messages=len(run.messages),
        cost_usd=run.cost_usd,
        status=run.status,
    )
    return Measured(figures=figures, turns=[each for each in events if isinstance(each, e.Turn)], file_deleted=False)


# --- timings --------------------------------------------------------------------------------------------------------


async def measure_timings(gateway: Gateway) -> Timings:
    """The plain plan run has the machine to itself. The others mostly sleep, and so can share it."""
    plain = [await timed_plan(gateway, "timed_0") for _ in range(PLAN_REPEATS)]
    quarter, whole, stop, without = await asyncio.gather(
        timed_plan(gateway, "timed_250"),
        timed_plan(gateway, "timed_1000"),
        timed_stop(gateway, "stopped", STOP_AT_SECONDS),
        timed_stop(gateway, "unstopped", None),
    )
    by_latency = {"0": statistics.median(ms for ms, _ in plain), "250": quarter[0], "1000": whole[0]}
    return Timings(
        plan_ms_by_latency={latency: round(ms, 1) for latency, ms in by_latency.items()},
        plan_harness_ms=round(statistics.median(share for _, share in plain), 1),
        stop=stop,
        without_stop=without,
    )


async def timed_plan(gateway: Gateway, agent: str) -> tuple[float, float]:
    """How long a client waited for the run, and how much of it was not the wait for the model."""
    began = time.perf_counter()
    run = await gateway.start(StartRun(input=QUESTION, agent=agent), wait_seconds=RUN_SECONDS_MAX)
    total_ms = (time.perf_counter() - began) * 1000
    model_ms = sum(event.ms for event in await trace(gateway, run.id) if isinstance(event, e.Turn))
    return total_ms, total_ms - model_ms


async def timed_stop(gateway: Gateway, agent: str, stop_after_seconds: float | None) -> Stopped:
    run = await gateway.start(StartRun(input=QUESTION, agent=agent))
    reply_ms = 0.0
    if stop_after_seconds is not None:
        await tool_begins(gateway, run.id)
        await asyncio.sleep(stop_after_seconds)
        pressed = time.perf_counter()
        await gateway.cancel(run.id, STOP_REASON)
        reply_ms = (time.perf_counter() - pressed) * 1000
    run = await gateway.get(run.id, wait_seconds=RUN_SECONDS_MAX)
    return stopped(run, await trace(gateway, run.id), reply_ms)


async def tool_begins(gateway: Gateway, run_id: str) -> None:
    async with aclosing(gateway.events(run_id)) as events:
        async for seen in events:
            if isinstance(seen, Seen) and isinstance(seen.event, e.ToolStart):
                return


def stopped(run: RunBody, events: list[e.Event], reply_ms: float) -> Stopped:
    """By the clock of the gateway, which stamps every event. A run without Stop ends with the tool's result."""
    began = next(event.time for event in events if isinstance(event, e.ToolStart))
    ended = next(event.time for event in events if isinstance(event, e.ToolResult | e.RunStopped))
    return Stopped(
        stopped_ms=since(began, ended),
        reply_ms=round(reply_ms, 1),
        status=run.status,
        reason=run.interruption.reason if isinstance(run.interruption, Cancelled) else None,
        progress_ms=[since(began, event.time) for event in events if isinstance(event, e.ToolProgress)],
    )


def since(began: datetime, moment: datetime) -> float:
    return round((moment - began).total_seconds() * 1000, 1)
