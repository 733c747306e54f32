"""Commands that meet: whoever comes second sees what the first one did, and a run never has two drivers."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.adapters.store.sqlite import SqliteStore
from gateway.app import assembled
from gateway.config import Config
from gateway.core.commands import RaisedLimits
from gateway.core.errors import Busy, Unavailable, WrongState
from gateway.core.events import VERSION, RunStarted
from gateway.core.messages import User
from gateway.core.pricing import Price
from gateway.core.run import Limits, Policies, Run, Status
from gateway.service.recorder import Recorder
from gateway.service.runs import Runs


@pytest.fixture
async def runs(config: Config) -> AsyncIterator[Runs]:
    async with assembled(config) as (_, runs):
        yield runs


class SlowToAnswer:
    """The store writes at once, and says so only after a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        self.written = asyncio.Event()
        append = SqliteStore.append

        async def appended(store: SqliteStore, *args: Any) -> None:
            await append(store, *args)
            self.written.set()
            await asyncio.sleep(self.seconds)

        monkeypatch.setattr(SqliteStore, "append", appended)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowToAnswer:
    return SlowToAnswer(monkeypatch)


def order(runs: Runs, model: str = "talks", max_turns: int = 20) -> RunStarted:
    return RunStarted(
        agent="files",
        model=model,
        messages=(User("hello"),),
        tools=(),
        limits=Limits(max_turns=max_turns),
        policies=Policies(),
        price=Price(free=True),
        version=VERSION,
        time=runs._ports.clock(),
    )


async def kinds(runs: Runs, run_id: str) -> list[str]:
    return [record.body.split(b'"')[3].decode() for record in await runs._ports.log.read(run_id)]


async def capped(runs: Runs) -> Run:
    await runs.start("r", order(runs, "runaway", max_turns=1))
    return await runs.wait("r", 20)


async def test_a_run_that_is_being_started_is_not_taken_up_as_well(
    runs: Runs, slow: SlowToAnswer, caplog: pytest.LogCaptureFixture
) -> None:
    slow.seconds = 0.1
    starting = asyncio.create_task(runs.start("r", order(runs)))
    await slow.written.wait()

    runs.recover()
    await starting
    slow.seconds = 0
    run = await runs.wait("r", 20)

    assert run.status is Status.COMPLETED
    assert await kinds(runs, "r") == ["run_started", "turn_start", "turn", "run_stopped"]
    assert "cannot be taken up" not in caplog.text


async def test_stop_that_meets_a_resume_comes_after_it(runs: Runs, slow: SlowToAnswer) -> None:
    await capped(runs)
    slow.seconds = 0.1
    slow.written.clear()
    resuming = asyncio.create_task(runs.resume("r", RaisedLimits(max_turns=1000)))
    await slow.written.wait()

    run = await runs.cancel("r", "enough")

    assert (await resuming).status is Status.RUNNING
    assert (run.status, run.reason) == (Status.INTERRUPTED, "cancelled")


async def test_of_two_resumes_one_goes_on_and_the_other_is_told_so(runs: Runs) -> None:
    await capped(runs)

    first, second = await asyncio.gather(
        *(runs.resume("r", RaisedLimits(max_turns=2)) for _ in range(2)), return_exceptions=True
    )

    assert isinstance(first, Run)
    assert isinstance(second, WrongState)
    assert (await runs.wait("r", 20)).turns == 2
    assert (await kinds(runs, "r")).count("run_resumed") == 1


async def test_two_stops_at_the_same_time_are_one(runs: Runs) -> None:
    await runs.start("r", order(runs, "talks@latency=5000"))

    first, second = await asyncio.gather(runs.cancel("r", "one"), runs.cancel("r", "two"))

    assert first == second
    assert (await kinds(runs, "r")).count("run_stopped") == 1


async def test_stop_at_once_leaves_the_first_reply_unconfirmed(runs: Runs) -> None:
    """A run begins with its first request: both are one write."""
    await runs.start("r", order(runs))

    run = await runs.cancel("r", "at once")

    assert run.reason == "cancelled"
    assert await kinds(runs, "r") == ["run_started", "turn_start", "run_stopped"]


async def test_a_run_that_starts_while_the_gateway_closes_is_left_to_the_next_one(
    runs: Runs, slow: SlowToAnswer
) -> None:
    slow.seconds = 0.1
    starting = asyncio.create_task(runs.start("r", order(runs)))
    await slow.written.wait()

    await runs.close(1)
    run = await starting

    assert run.status is Status.RUNNING
    assert runs.active == 0
    assert await kinds(runs, "r") == ["run_started", "turn_start", "turn"]


async def test_a_run_whose_starter_has_gone_meanwhile_is_driven_all_the_same(runs: Runs, slow: SlowToAnswer) -> None:
    slow.seconds = 0.1
    starting = asyncio.create_task(runs.start("r", order(runs)))
    await slow.written.wait()
    starting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await starting

    await asyncio.wait({driver.task for driver in runs._drivers.values()})
    assert (await runs.get("r")).status is Status.COMPLETED


async def test_of_two_that_start_one_run_one_is_told_so(runs: Runs, slow: SlowToAnswer) -> None:
    slow.seconds = 0.1

    first, second = await asyncio.gather(*(runs.start("r", order(runs)) for _ in range(2)), return_exceptions=True)

    assert isinstance(first, Run)
    assert isinstance(second, WrongState)
    assert (await runs.wait("r", 20)).status is Status.COMPLETED


async def test_a_start_that_fails_gives_its_place_back(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    runs_active_max = 1
    async with assembled(config) as (_, runs):
        runs._active_max = runs_active_max
        monkeypatch.setattr(SqliteStore, "append", fails)
        with pytest.raises(RuntimeError):
            await runs.start("r", order(runs))
        monkeypatch.undo()

        await runs.start("r", order(runs, "talks@latency=100"))
        with pytest.raises(Busy):
            await runs.start("s", order(runs))
        assert (await runs.wait("r", 20)).status is Status.COMPLETED
        assert (await runs.start("s", order(runs))).status is Status.RUNNING


async def test_a_run_whose_beginning_failed_behind_somebody_who_left_is_begun_by_the_next(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append, refused, asked = SqliteStore.append, asyncio.Event(), asyncio.Event()

    async def refuses_the_first(store: SqliteStore, *args: Any) -> None:
        if asked.is_set():
            return await append(store, *args)
        asked.set()
        await refused.wait()
        raise Unavailable("the disk is full.")

    monkeypatch.setattr(SqliteStore, "append", refuses_the_first)
    first = asyncio.create_task(runs.start("r", order(runs)))
    await asked.wait()
    second = asyncio.create_task(runs.start("r", order(runs)))
    looks = asyncio.create_task(runs.settled("r"))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0.01)
    refused.set()

    assert (await second).status is Status.RUNNING
    assert (await looks).id == "r"
    assert (await runs.wait("r", 20)).status is Status.COMPLETED
    assert first.cancelled()
    del first
    gc.collect()
    assert "never retrieved" not in caplog.text


async def fails(*args: Any) -> None:
    raise RuntimeError("no")


async def test_a_fault_of_a_plug_in_ends_the_run_and_not_the_gateway(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*args: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(runs._ports.model, "ask", broken)
    await runs.start("r", order(runs))

    run = await runs.wait("r", 20)

    assert run.status is Status.FAILED
    assert run.error == "a fault of the gateway: ZeroDivisionError: a bug"


async def test_a_run_that_stops_while_somebody_looks_at_it_is_not_waited_for(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look is slow, and sees the run as it was: another process's, and still running."""
    await runs.start("r", order(runs))
    done = await runs.wait("r", 20)
    get, first = runs.get, iter([True])

    async def slowly(run_id: str) -> Run:
        if next(first, False):
            await asyncio.sleep(0)
            runs._tell_waiting()
            return replace(done, status=Status.RUNNING)
        return await get(run_id)

    monkeypatch.setattr(runs, "get", slowly)

    assert await asyncio.wait_for(runs.wait("r", None), 5) == done


async def test_who_goes_away_in_the_turn_in_which_another_run_begins_is_let_go(runs: Runs) -> None:
    await Recorder.of_new("r", order(runs), None, runs._ports).write()  # of a process that died: nobody drives it
    waiting = asyncio.create_task(runs.wait("r", 20))
    await asyncio.sleep(0.05)

    runs._tell_waiting()
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting}, timeout=2)

    assert waiting.cancelled()
