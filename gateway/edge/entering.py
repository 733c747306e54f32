"""How a request enters a run, whatever API it came by: it starts one or joins one, and what happens to the run when the
client goes away meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from gateway.core.errors import WrongState
from gateway.core.events import RunStarted
from gateway.core.ports import Key
from gateway.core.run import Run
from gateway.edge.answers import IdempotentAnswers
from gateway.service.runs import Runs

CLIENT_GONE = "the client went away"

T = TypeVar("T")


def new_run_id(now: datetime) -> str:
    """Ids that are made one after the other sort so: what is written together then lies together in the store. They
    are no secrets, and need not be hard to guess."""
    return f"run_{int(now.timestamp() * 1000):011x}{random.getrandbits(36):09x}"


async def unhurried(work: Coroutine[Any, Any, T]) -> T:
    """Finish what changes a run even if the client goes away meanwhile: half a command would be worse than one."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(seen)
    return await asyncio.shield(task)


def seen(task: asyncio.Future[Any]) -> None:
    """What it raised is for the client, and need not be logged if that has gone."""
    if not task.cancelled():
        task.exception()


async def start_or_join(runs: Runs, answers: IdempotentAnswers, run_id: str, first: RunStarted, key: Key | None) -> Run:
    """The new run; or the one that the key stands for, if a request with the same key was faster."""
    try:
        return await runs.start(run_id, first, key)
    except WrongState:
        claim = None if key is None else await answers.claimed(key)
        if claim is None:
            raise
        return await runs.settled(claim.run_id)


class Attended:
    """Around what a client waits for. One that goes away does not cancel its run unless it asked for that."""

    def __init__(self, runs: Runs, run_id: str, *, cancels: bool) -> None:
        self.run_id = run_id
        self._runs = runs
        self._cancels = cancels

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._cancels and isinstance(error, asyncio.CancelledError | ConnectionResetError):
            await unhurried(self._runs.cancel_driven(self.run_id, CLIENT_GONE))
