"""Runs that wait for people cost their rows and nothing else, however many there are and however long they wait."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.adapters.providers.openai import OpenAIModel
from gateway.adapters.providers.requests import BYTES_MAX, RUNS_MAX
from gateway.adapters.store.sqlite import SqliteStore
from gateway.metrics import Metrics
from gateway.service.afterwards import Afterwards
from gateway.service.feed import Feed
from gateway.service.runs import Runs
from tests.serving import Gateway, Serve

RUNS = 500
AT_ONCE = 25


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Runs]:
    """The services of the gateways of this test."""
    made: list[Runs] = []
    original = Runs.__init__

    def remember(self: Runs, *args: Any, **options: Any) -> None:
        made.append(self)
        original(self, *args, **options)

    monkeypatch.setattr(Runs, "__init__", remember)
    return made


@pytest.fixture
async def gateway(serve: Serve, made: list[Runs]) -> AsyncIterator[Gateway]:
    async with serve() as gateway:
        yield gateway


async def many_wait(gateway: Gateway) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with room:
            run = await gateway.run("destructive")
            assert run["reason"] == "approval"

    await asyncio.gather(*(one() for _ in range(RUNS)))


def of_runs() -> list[str]:
    """The tasks that belong to a run."""
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith(("run ", "rejoin "))]


async def test_runs_that_wait_cost_their_rows_and_nothing_else(gateway: Gateway, made: list[Runs]) -> None:
    await gateway.run("destructive")
    before = len(asyncio.all_tasks())
    await many_wait(gateway)
    await asyncio.sleep(0.05)
    gc.collect()

    [runs] = made
    [afterwards] = runs._ports.observers
    assert isinstance(afterwards, Afterwards)
    [feed] = (observer for observer in afterwards._observers if isinstance(observer, Feed))
    [metrics] = (observer for observer in afterwards._observers if isinstance(observer, Metrics))
    model = runs._ports.model
    assert runs.active == 0
    assert (len(runs._drivers), len(runs._locks), len(runs._rejoining), runs._promised) == (0, 0, 0, 0)
    assert feed._subscriptions == {}
    assert metrics._progress == {}
    assert isinstance(model, OpenAIModel)
    assert len(model._bodies._known) <= RUNS_MAX  # a cache: it forgets the oldest
    assert model._bodies._bytes <= BYTES_MAX
    assert of_runs() == []
    assert len(asyncio.all_tasks()) <= before + 2 * AT_ONCE  # connections kept open, to here and to the provider
    assert gateway.stored_runs() == RUNS + 1


async def test_runs_that_wait_are_not_even_read_when_the_next_process_starts(
    serve: Serve, made: list[Runs], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve() as gateway:
        waiting = [await gateway.run("destructive") for _ in range(10)]
    reads: list[str] = []
    read = SqliteStore.read

    async def counted(store: SqliteStore, run_id: str, *more: Any) -> Any:
        reads.append(run_id)
        return await read(store, run_id, *more)

    monkeypatch.setattr(SqliteStore, "read", counted)
    async with serve() as gateway:
        other = await gateway.run("plan")
        assert other["status"] == "completed"
        assert not set(reads) & {run["id"] for run in waiting}
        assert made[-1].active == 0
        call = {"call_id": waiting[0]["pending_approvals"][0]["call_id"]}
        assert (await gateway.command(waiting[0]["id"], "approve", call)).json["status"] == "completed"
