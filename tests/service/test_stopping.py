"""Stop reaches a tool, and a model call, at once; whatever a tool does then, the run has stopped and can go on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from gateway.adapters.tools.tool import Function, Tool
from gateway.core.errors import ToolFailed
from gateway.core.run import ToolSpec
from tests.serving import Gateway, Serve

STOP_MS_MAX = 20
TRIES = 5


def tool(function: Function, **flags: Any) -> dict[str, Tool]:
    spec = ToolSpec(name="act", description="Acts.", parameters={"type": "object", "properties": {}}, **flags)
    return {"act": Tool(spec, function)}


async def for_ever(args: dict[str, Any], ctx: Any) -> str:
    await asyncio.sleep(3600)
    return "never"


async def press_stop(gateway: Gateway, model: str, kind: str, **fields: Any) -> tuple[dict[str, Any], float]:
    """Start, wait for an event of this kind, press Stop: the run, and how many milliseconds the answer took."""
    run = await gateway.run(model, wait=0, **fields)
    await gateway.until(run["id"], kind)
    await asyncio.sleep(0.02)
    began = time.perf_counter()
    got = await gateway.post(f"/v1/runs/{run['id']}/cancel", {"reason": "user pressed Stop"})
    ms = (time.perf_counter() - began) * 1000
    assert got.status == 200, got.body
    return got.json, ms


def require_stopped(run: dict[str, Any]) -> None:
    assert (run["status"], run["reason"]) == ("interrupted", "cancelled")
    assert run["interruption"] == {"type": "cancelled", "reason": "user pressed Stop"}
    assert run["why"] == "It was cancelled: user pressed Stop"
    assert run["next"] == f"Go on: gateway resume {run['id']}"


async def fastest(press: Callable[[], Any]) -> float:
    """The best of a few: what the gateway takes, and not what a busy machine adds."""
    times: list[float] = []
    for _ in range(TRIES):
        run, ms = await press()
        require_stopped(run)
        times.append(ms)
    return min(times)


# --- how fast -------------------------------------------------------------------------------------------------------


async def test_stop_reaches_a_tool_in_no_time(gateway: Gateway) -> None:
    assert await fastest(lambda: press_stop(gateway, "slow", "tool_start")) < STOP_MS_MAX


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_stop_reaches_a_model_call_in_no_time(gateway: Gateway, stream: bool) -> None:
    async def press() -> Any:
        return await press_stop(gateway, "plan@latency=5000", "turn_start", stream=stream)

    assert await fastest(press) < STOP_MS_MAX


async def test_stop_reaches_a_reply_that_stalls_in_no_time(gateway: Gateway) -> None:
    async def press() -> Any:
        return await press_stop(gateway, "plan@fault=stall,stall_ms=5000", "turn_start", stream=True)

    assert await fastest(press) < STOP_MS_MAX


async def test_stop_reaches_the_wait_between_attempts_in_no_time(gateway: Gateway) -> None:
    async def press() -> Any:
        return await press_stop(gateway, "plan@fault=429,retry_after=5", "turn_start")

    assert await fastest(press) < STOP_MS_MAX


async def test_stop_does_not_wait_for_a_thread_that_ignores_it(serve: Serve) -> None:
    released = threading.Event()

    def ignores(args: dict[str, Any], ctx: Any) -> str:
        released.wait(20)
        return "too late"

    async with serve(tools=tool(ignores, read_only=True)) as gateway:
        best = await fastest(lambda: press_stop(gateway, "acts", "tool_start"))
        released.set()

    assert best < STOP_MS_MAX + 10  # what a tool is given to end by itself


async def test_stop_does_not_wait_for_a_tool_that_goes_on_regardless(serve: Serve) -> None:
    async def goes_on(args: dict[str, Any], ctx: Any) -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0.3)
        return "too late"

    async with serve(tools=tool(goes_on, read_only=True)) as gateway:
        best = await fastest(lambda: press_stop(gateway, "acts", "tool_start"))
        await asyncio.sleep(0.3)

    assert best < STOP_MS_MAX + 10  # what a tool is given to end by itself


# --- and then -------------------------------------------------------------------------------------------------------


async def test_after_stop_the_watcher_sees_the_end_in_words_and_a_resume_goes_on(serve: Serve) -> None:
    calls: list[bool] = []

    async def slow_once(args: dict[str, Any], ctx: Any) -> str:
        calls.append(True)
        await asyncio.sleep(3600 if len(calls) == 1 else 0)
        return "done"

    async with serve(tools=tool(slow_once, read_only=True)) as gateway:
        run, _ = await press_stop(gateway, "acts", "tool_start")
        last = (await gateway.trace(run["id"]))[-1]
        assert (last["type"], last["status"], last["reason"]) == ("run_stopped", "interrupted", "cancelled")
        assert last["interruption"]["reason"] == "user pressed Stop"
        assert run["tool_runs"] == 0

        resumed = await gateway.command(run["id"], "resume")

    assert resumed.json["status"] == "completed"
    assert resumed.json["tool_runs"] == 1
    assert len(calls) == 2


async def test_a_model_call_that_was_stopped_may_have_been_billed_and_is_asked_again(gateway: Gateway) -> None:
    run, _ = await press_stop(gateway, "plan@latency=150", "turn_start")
    [estimate] = [event["estimateUsd"] for event in await gateway.trace(run["id"]) if event["type"] == "turn_start"]
    assert run["unconfirmed_cost_usd"] == estimate > 0

    resumed = await gateway.command(run["id"], "resume")

    assert resumed.json["status"] == "completed"
    assert resumed.json["unconfirmed_cost_usd"] == estimate


@pytest.mark.parametrize("threaded", [False, True], ids=["async", "threaded"])
async def test_a_write_that_was_stopped_is_in_doubt(serve: Serve, threaded: bool) -> None:
    released = threading.Event()

    def ignores(args: dict[str, Any], ctx: Any) -> str:
        released.wait(20)
        return "written"

    async with serve(tools=tool(ignores if threaded else for_ever)) as gateway:
        run, _ = await press_stop(gateway, "acts", "tool_start")
        require_stopped(run)

        got = await gateway.command(run["id"], "resume")
        released.set()

        call_id = f"{run['id']}:1:0"
        assert (got.json["status"], got.json["reason"]) == ("interrupted", "in_doubt")
        assert got.json["interruption"] == {"type": "in_doubt", "call_id": call_id, "tool_name": "act", "args": {}}
        assert got.json["why"] == "act {} had begun, and whether it happened is not known."
        assert f"gateway settle {run['id']} {call_id} OUTPUT" in got.json["next"]


@pytest.mark.parametrize(
    ("settlement", "answer", "tool_runs", "executions"),
    [
        (("tool_outputs", {"outputs": [{"call_id": "c1", "output": "it was written"}]}), "it was written", 1, 1),
        (("approve", {"call_id": "c1"}), "written", 1, 2),
        (("reject", {"call_id": "c1", "reason": "leave it"}), "The user declined this call: leave it", 0, 1),
    ],
    ids=["it happened", "again", "skip"],
)
async def test_a_doubt_is_settled_by_a_person(
    serve: Serve, settlement: tuple[str, Any], answer: str, tool_runs: int, executions: int
) -> None:
    calls: list[bool] = []

    async def writes(args: dict[str, Any], ctx: Any) -> str:
        calls.append(True)
        await asyncio.sleep(3600 if len(calls) == 1 else 0)
        return "written"

    async with serve(tools=tool(writes)) as gateway:
        run, _ = await press_stop(gateway, "acts", "tool_start")
        await gateway.command(run["id"], "resume")

        got = await gateway.command(run["id"], *settlement)

    assert got.json["status"] == "completed"
    assert [message["content"] for message in got.json["messages"] if message["role"] == "tool"] == [answer]
    assert got.json["tool_runs"] == tool_runs
    assert len(calls) == executions


async def test_a_write_that_takes_a_key_is_run_again_with_the_same_one(serve: Serve) -> None:
    keys: list[str] = []

    async def writes(args: dict[str, Any], ctx: Any) -> str:
        keys.append(ctx.idempotency_key)
        await asyncio.sleep(3600 if len(keys) == 1 else 0)
        return "written"

    async with serve(tools=tool(writes, idempotent=True)) as gateway:
        run, _ = await press_stop(gateway, "acts", "tool_start")
        got = await gateway.command(run["id"], "resume")

    assert got.json["status"] == "completed"
    assert keys == [f"{run['id']}:1:0"] * 2


async def test_calls_that_were_answered_before_stop_are_not_run_again(serve: Serve) -> None:
    """Two calls side by side: one has come back, one is stopped."""
    began: list[str] = []

    async def slow_second(args: dict[str, Any], ctx: Any) -> str:
        began.append(ctx.idempotency_key)
        await asyncio.sleep(3600 if ctx.idempotency_key.endswith(":1") and began.count(began[-1]) == 1 else 0)
        return ctx.idempotency_key[-3:]

    async with serve(tools=tool(slow_second, read_only=True)) as gateway:
        run, _ = await press_stop(gateway, "acts_twice", "tool_result")
        got = await gateway.command(run["id"], "resume")

    assert [key[-3:] for key in began] == ["1:0", "1:1", "1:1"]
    assert [message["content"] for message in got.json["messages"] if message["role"] == "tool"] == ["1:0", "1:1"]


async def raises_at_cancel(args: dict[str, Any], ctx: Any) -> str:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        raise RuntimeError("could not clean up") from None
    return "never"


async def swallows_cancel(args: dict[str, Any], ctx: Any) -> str:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return "answered after Stop"
    return "never"


async def goes_on_regardless(args: dict[str, Any], ctx: Any) -> str:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        await asyncio.sleep(0.1)
        ctx.progress("still here")
    return "answered long after Stop"


@pytest.mark.parametrize("function", [raises_at_cancel, swallows_cancel, goes_on_regardless])
async def test_whatever_a_tool_does_when_it_is_stopped_the_run_was_cancelled(serve: Serve, function: Function) -> None:
    async with serve(tools=tool(function, read_only=True)) as gateway:
        run, _ = await press_stop(gateway, "acts", "tool_start")

        require_stopped(run)
        await asyncio.sleep(0.15)
        assert await gateway.look(run["id"]) == run


async def test_a_thread_is_told_that_stop_was_pressed(serve: Serve) -> None:
    told = threading.Event()

    def looks(args: dict[str, Any], ctx: Any) -> str:
        until = time.monotonic() + 20
        while not ctx.cancelled and time.monotonic() < until:
            time.sleep(0.001)
        told.set()
        return "stopped by itself"

    async with serve(tools=tool(looks, read_only=True)) as gateway:
        run, _ = await press_stop(gateway, "acts", "tool_start")

        require_stopped(run)
        assert await asyncio.to_thread(told.wait, 10)


async def test_progress_is_in_the_trace_as_it_comes(serve: Serve) -> None:
    def reports(args: dict[str, Any], ctx: Any) -> str:
        ctx.progress("half")
        ctx.progress("all")
        return "done"

    async with serve(tools=tool(reports, read_only=True)) as gateway:
        run = await gateway.run("acts")
        trace = await gateway.trace(run["id"])

    kinds = [(event["type"], event.get("label")) for event in trace[3:7]]
    assert kinds == [("tool_start", None), ("tool_progress", "half"), ("tool_progress", "all"), ("tool_result", None)]


async def test_progress_is_text_of_bounded_length_and_number(serve: Serve) -> None:
    def reports(args: dict[str, Any], ctx: Any) -> str:
        ctx.progress(50)
        ctx.progress("\ud800" + "x" * 10_000)
        for step in range(1500):
            ctx.progress(f"step {step}")
        return "done"

    async with serve(tools=tool(reports, read_only=True)) as gateway:
        run = await gateway.run("acts")
        labels = [event["label"] for event in await gateway.trace(run["id"]) if event["type"] == "tool_progress"]

    assert run["status"] == "completed"
    assert labels[:3] == ["50", "?" + "x" * 499, "step 0"]
    assert (len(labels), labels[-1]) == (1000, "999 labels are recorded: no more.")


# --- tools that fail ------------------------------------------------------------------------------------------------


def answers(run: dict[str, Any]) -> list[str]:
    return [message["content"] for message in run["messages"] if message["role"] == "tool"]


async def fails_in_words(args: dict[str, Any], ctx: Any) -> str:
    raise ToolFailed("no signal. Try again later.")


def breaks(args: dict[str, Any], ctx: Any) -> str:
    raise KeyError("city")


@pytest.mark.parametrize(
    ("function", "seconds", "words"),
    [
        (fails_in_words, 20, "Error: no signal. Try again later."),
        (breaks, 20, "Error: KeyError: 'city'"),
        (for_ever, 0.05, "Error: act took longer than 0.05 s."),
        (lambda args, ctx: time.sleep(0.3), 0.05, "Error: act took longer than 0.05 s."),
    ],
    ids=["words", "bug", "timeout", "timeout of a thread"],
)
async def test_a_tool_that_fails_is_answered_in_words_and_the_run_goes_on(
    serve: Serve, function: Function, seconds: float, words: str
) -> None:
    async with serve(tools=tool(function, read_only=True, timeout_seconds=seconds)) as gateway:
        run = await gateway.run("acts")
        [result] = [event for event in await gateway.trace(run["id"]) if event["type"] == "tool_result"]

    assert run["status"] == "completed"
    assert answers(run) == [words]
    assert (result["ok"], f"Error: {result['error']}") == (False, words)
    assert run["tool_runs"] == 1


@pytest.mark.parametrize(
    ("policies", "status", "answer"),
    [
        ({"tool_errors": "vague"}, "completed", "Error: the tool failed."),
        ({"tool_errors": "fatal"}, "failed", "Error: no signal. Try again later."),
    ],
)
async def test_what_an_error_does_is_a_policy(serve: Serve, policies: dict[str, str], status: str, answer: str) -> None:
    async with serve(tools=tool(fails_in_words, read_only=True)) as gateway:
        run = await gateway.run("acts", policies=policies)

    assert run["status"] == status
    assert answers(run) == [answer]
