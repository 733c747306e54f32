"""Tools as Python functions: what the model reads of whatever they do, and that none of them holds up the gateway."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.tools.tool import Function, Tool
from gateway.adapters.tools.toolbox import LocalToolbox, bounded
from gateway.core.errors import ToolFailed
from gateway.core.ports import Toolbox
from gateway.core.pricing import Price
from gateway.core.run import Limits, Policies, Run, ToolSpec

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


class Context:
    idempotency_key = "r1:1:0"

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.cancelled = False

    def progress(self, label: str) -> None:
        self.labels.append(label)


def run_of(agent: str = "files") -> Run:
    return Run(
        id="r1",
        agent=agent,
        model="plan",
        tools=(),
        limits=Limits(),
        policies=Policies(),
        price=Price(free=True),
        messages=(),
        created_at=NOON,
        updated_at=NOON,
        driven_since=NOON,
    )


def spec_of(**fields: Any) -> ToolSpec:
    return ToolSpec(name="probe", description="A tool.", parameters={"type": "object", "properties": {}}, **fields)


async def use(
    function: Function, *, ctx: Context | None = None, timeout_seconds: float | None = None, **limits: Any
) -> str:
    spec = spec_of(timeout_seconds=timeout_seconds)
    toolbox: Toolbox = LocalToolbox({"files": {"probe": Tool(spec, function)}}, **limits)
    return await toolbox.use(run_of(), spec, {"n": 1}, ctx or Context())


async def failure(function: Function, **options: Any) -> ToolFailed:
    with pytest.raises(ToolFailed) as failed:
        await use(function, **options)
    return failed.value


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Set at the end, so that no thread outlives its test."""
    event = threading.Event()
    yield event
    event.set()


# --- what comes back ------------------------------------------------------------------------------------------------


async def plus_one(args: dict[str, Any], ctx: Any) -> dict[str, int]:
    return {"n": args["n"] + 1}


class Callable:
    async def __call__(self, args: dict[str, Any], ctx: Any) -> str:
        return "called"


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda args, ctx: f"n is {args['n']}", "n is 1"),
        (lambda args, ctx: "", ""),
        (lambda args, ctx: {"ä": [1, 2.5, None, True]}, '{"ä":[1,2.5,null,true]}'),
        (lambda args, ctx: None, "null"),
        (plus_one, '{"n":2}'),
        (functools.partial(plus_one), '{"n":2}'),
        (Callable(), "called"),
        (lambda args, ctx: "lone \udcff surrogate", "lone ? surrogate"),
    ],
)
async def test_text_comes_back_as_it_is_and_anything_else_as_json(function: Function, text: str) -> None:
    assert await use(function) == text


async def test_each_agent_has_its_own_tools_and_one_that_is_gone_is_said_for_good() -> None:
    spec = spec_of()
    toolbox = LocalToolbox({"a": {"probe": Tool(spec, lambda args, ctx: "a")}, "b": {}})

    assert await toolbox.use(run_of("a"), spec, {}, Context()) == "a"
    for agent in ("b", "unknown"):
        with pytest.raises(ToolFailed, match=r"^the tool probe is no longer configured\.$") as failed:
            await toolbox.use(run_of(agent), spec, {}, Context())
        assert failed.value.permanent


async def test_a_long_result_is_cut_in_words() -> None:
    assert await use(lambda args, ctx: "x" * 1000, result_bytes_max=100) == "x" * 100 + "… [cut: 900 bytes more]"


@pytest.mark.parametrize("permanent", [False, True])
@pytest.mark.parametrize("error", [ValueError, ToolFailed])
async def test_the_words_of_an_error_are_as_bounded_as_a_result(error: type[Exception], permanent: bool) -> None:
    def fails(args: dict[str, Any], ctx: Any) -> str:
        raise ToolFailed("x" * 1000, permanent=permanent) if error is ToolFailed else error("x" * 1000)

    with pytest.raises(ToolFailed) as failed:
        await use(fails, result_bytes_max=100)

    assert str(failed.value).startswith("x" * 100 if error is ToolFailed else "ValueError: " + "x" * 88)
    assert "bytes more]" in str(failed.value)
    assert failed.value.permanent is (permanent and error is ToolFailed)


async def test_an_error_whose_words_are_no_text_is_told_as_text() -> None:
    def fails(args: dict[str, Any], ctx: Any) -> str:
        raise ValueError("half of \ud83d")

    with pytest.raises(ToolFailed, match=r"half of \?"):
        await use(fails)


@given(text=st.text(max_size=80), bytes_max=st.integers(1, 60))
def test_a_cut_never_breaks_a_character_and_counts_what_is_missing(text: str, bytes_max: int) -> None:
    size = len(text.encode())
    kept, cut, words = bounded(text, bytes_max).rpartition("… [cut: ")
    if size <= bytes_max:
        assert bounded(text, bytes_max) == text
        return

    assert cut
    assert text.startswith(kept)
    assert bytes_max - 4 < len(kept.encode()) <= bytes_max
    assert words == f"{size - len(kept.encode())} bytes more]"


# --- failures in words ----------------------------------------------------------------------------------------------


def raising(error: BaseException) -> Function:
    def function(args: dict[str, Any], ctx: Any) -> str:
        raise error

    return function


def raising_later(error: BaseException) -> Function:
    async def function(args: dict[str, Any], ctx: Any) -> str:
        raise error

    return function


@pytest.mark.parametrize("kind", [raising, raising_later])
@pytest.mark.parametrize("permanent", [True, False])
async def test_what_a_tool_says_itself_is_passed_on(kind: Any, permanent: bool) -> None:
    said = ToolFailed("try tomorrow.", permanent=permanent)

    assert await failure(kind(said)) is said


@pytest.mark.parametrize("kind", [raising, raising_later])
async def test_a_permission_error_is_permanent(kind: Any) -> None:
    failed = await failure(kind(PermissionError(13, "Permission denied", "/etc/shadow")))

    assert str(failed) == "permission denied: /etc/shadow"
    assert failed.permanent


@pytest.mark.parametrize("kind", [raising, raising_later])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("path"), "KeyError: 'path'"),
        (TimeoutError("the database"), "TimeoutError: the database"),
        (SystemExit(3), "SystemExit: 3"),
        (concurrent.futures.CancelledError(), "CancelledError: "),
    ],
)
async def test_any_other_error_is_named_and_logged_with_its_traceback(
    kind: Any, error: BaseException, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    failed = await failure(kind(error), timeout_seconds=60)

    assert str(failed) == words
    assert not failed.permanent
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[1] is error


@pytest.mark.parametrize("kind", [raising, raising_later])
async def test_a_tool_that_cancels_itself_does_not_cancel_the_run(kind: Any) -> None:
    assert str(await failure(kind(asyncio.CancelledError()))) == "probe was cancelled from within."


async def test_a_result_that_is_no_json_is_a_failure_and_not_a_crash() -> None:
    assert "unsupported" in str(await failure(lambda args, ctx: object()))


# --- time and Stop --------------------------------------------------------------------------------------------------


async def test_an_async_tool_that_takes_too_long_is_cancelled_and_said() -> None:
    ended = asyncio.Event()

    async def slow(args: dict[str, Any], ctx: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    failed = await failure(slow, timeout_seconds=0.01)

    assert str(failed) == "probe took longer than 0.01 s."
    assert not failed.permanent
    assert ended.is_set()


async def test_a_thread_whose_time_is_up_sees_that_it_is_cancelled_and_is_heard_no_more() -> None:
    seen, ended, ctx = list[bool](), threading.Event(), Context()

    def slow(args: dict[str, Any], watched: Any) -> str:
        watched.progress("began")
        while not watched.cancelled:
            time.sleep(0.001)
        watched.progress("too late")
        seen.append(watched.cancelled)
        ended.set()
        return "too late"

    failed = await failure(slow, ctx=ctx, timeout_seconds=0.05)

    assert str(failed) == "probe took longer than 0.05 s."
    assert await asyncio.to_thread(ended.wait, 5)
    assert seen == [True]
    assert ctx.labels == ["began"]


async def test_stop_cancels_an_async_tool() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def slow(args: dict[str, Any], ctx: Any) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    using = asyncio.ensure_future(use(slow, timeout_seconds=60))
    await began.wait()
    using.cancel()

    with pytest.raises(asyncio.CancelledError):
        await using
    assert ended.is_set()


async def test_stop_does_not_wait_for_a_thread_that_ignores_it(released: threading.Event) -> None:
    began = threading.Event()

    def stubborn(args: dict[str, Any], ctx: Any) -> str:
        began.set()
        released.wait(10)
        return "at last"

    using = asyncio.ensure_future(use(stubborn))
    assert await asyncio.to_thread(began.wait, 5)
    using.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(using, 1)


async def test_a_plain_tool_does_not_hold_up_the_event_loop_and_may_report_progress(released: threading.Event) -> None:
    ctx = Context()

    def waits(args: dict[str, Any], watched: Any) -> str:
        assert watched.idempotency_key == "r1:1:0"
        watched.progress("half")
        return f"released {released.wait(10)}"

    using = asyncio.ensure_future(use(waits, ctx=ctx))
    await asyncio.sleep(0)
    released.set()

    assert await using == "released True"
    assert ctx.labels == ["half"]


async def test_threads_are_bounded_and_waiting_for_one_ends_in_words(released: threading.Event) -> None:
    spec, began = spec_of(), threading.Semaphore(0)

    def waits(args: dict[str, Any], ctx: Any) -> str:
        began.release()
        return f"released {released.wait(10)}"

    toolbox = LocalToolbox({"files": {"probe": Tool(spec, waits)}}, threads_max=2, thread_wait_seconds=0.02)
    two = [asyncio.ensure_future(toolbox.use(run_of(), spec, {}, Context())) for _ in range(2)]
    for _ in two:
        await asyncio.to_thread(began.acquire)

    with pytest.raises(ToolFailed, match="all 2 threads for tools are busy"):
        await toolbox.use(run_of(), spec, {}, Context())

    released.set()
    assert await asyncio.gather(*two) == ["released True"] * 2
    assert await toolbox.use(run_of(), spec, {}, Context()) == "released True"


STUBBORN = """
import asyncio, threading
from gateway.adapters.tools.threads import DaemonThreads

async def main():
    began = threading.Event()
    using = asyncio.ensure_future(DaemonThreads(4, 1).run(lambda: (began.set(), threading.Event().wait())))
    await asyncio.to_thread(began.wait)
    using.cancel()

asyncio.run(main())
print("ended")
"""


def test_a_tool_that_never_returns_does_not_keep_the_process_from_ending() -> None:
    child = subprocess.run([sys.executable, "-c", STUBBORN], capture_output=True, text=True, timeout=10, check=True)

    assert child.stdout == "ended\n"
