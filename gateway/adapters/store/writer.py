"""Writing, in groups: whatever has been asked for meanwhile is committed next, in one transaction.

Knows SQLite, and nothing of what is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from gateway.adapters.store.tail import Tail
from gateway.adapters.store.transactions import Outcomes, Transactions
from gateway.core.errors import Unavailable

log = logging.getLogger(__name__)
encode = msgspec.msgpack.Encoder().encode

WAITING_MAX = 1024
GATHERING_TURNS = 5
"""Turns of the event loop whose jobs are one commit: each reads from a few sockets only, and a commit costs as much as
half a reply. What is waited for longer is less than a millisecond."""

LOCKED_RETRY_SECONDS = 0.002
LOCKED_SECONDS_MAX = 5.0

MOVED_AFTER_SECONDS = 0.1
"""How old the database may be for who looks at the file from outside. Nobody inside sees it older."""

MOVED_AGAIN_SECONDS = 1.0

W = TypeVar("W")

Sure = Callable[[sqlite3.Connection, Sequence[W]], bool]
"""Whether nothing in the database, or on its way there, can speak against a work."""


class Job(Generic[W]):
    """A work, and what becomes of it."""

    __slots__ = ("done", "work")

    def __init__(self, work: W, done: asyncio.Future[None]) -> None:
        self.work = work
        self.done = done


def never(connection: sqlite3.Connection, on_its_way: Sequence[object]) -> bool:
    return False


class Writer(Protocol[W]):
    """Owns the connection that writes, from its construction to the end of `close`."""

    async def write(self, work: W, is_sure: Sure[W] = never) -> None:
        """Do the work in a transaction, all or nothing, and return when it is durable.

        Once asked for it is carried out, also if the caller is cancelled meanwhile: shield the call to learn how it
        ended. What is sure may be durable before it is in the database.
        """
        ...

    async def all_in(self) -> None:
        """Return when the database has all that is durable. Raises what it raises."""
        ...

    async def close(self) -> None:
        """Finish what is asked for, then close the connection."""
        ...


def settle(group: Sequence[Job[W]], outcomes: Outcomes) -> None:
    for job, error in zip(group, outcomes, strict=True):
        if job.done.done():
            continue
        if error is None:
            job.done.set_result(None)
        else:
            job.done.set_exception(error)


class LoopWriter(Generic[W]):
    """Writes on the event loop. For `synchronous = NORMAL`, where a commit is a few dozen microseconds of copying to
    the kernel: handing it to a thread and back would cost more than it does. What waits for the disk is the checkpoint,
    and that is done by `checkpoints` elsewhere.

    Jobs that come together are one commit, once in a few turns of the loop. A job that comes alone has nobody to share
    a commit with: if it is sure it goes to the tail, and to the database with the next commit, or a little later.
    """

    def __init__(
        self, transactions: Transactions[W], connection: sqlite3.Connection, tail: Tail, checkpoints: Checkpoints
    ) -> None:
        self._transactions = transactions
        self._connection = connection
        self._tail = tail
        self._checkpoints = checkpoints
        self._loop = asyncio.get_running_loop()
        self._in_tail: list[W] = []
        self._group: list[Job[W]] = []
        self._gathered = 0
        self._alone = False
        self._failure: Exception | None = None
        """Why what is in the tail could not go to the database. Until it can, everybody waits for a commit."""
        self._locked_until: float | None = None
        self._again: asyncio.TimerHandle | None = None
        self._moving: asyncio.TimerHandle | None = None
        self._closed = False
        connection.execute("PRAGMA busy_timeout = 0")  # the event loop must not sleep: `_commit` tries again

    async def write(self, work: W, is_sure: Sure[W] = never) -> None:
        if self._closed:
            raise Unavailable("The store is closed.")
        if not self._gathered:
            self._loop.call_soon(self._come_round, GATHERING_TURNS - 1)
        self._gathered += 1
        is_alone = self._alone and self._gathered == 1
        if is_alone and self._noted(work, is_sure):
            return
        job = Job(work, self._loop.create_future())
        self._group.append(job)
        if is_alone:
            self._commit()
        await job.done

    def _noted(self, work: W, is_sure: Sure[W]) -> bool:
        """Whether the work is in the tail now."""
        if self._failure is not None or not self._is_sure(is_sure) or not self._tail.append(encode(work)):
            return False
        self._in_tail.append(work)
        if self._moving is None:
            self._moving = self._loop.call_later(MOVED_AFTER_SECONDS, self._move)
        return True

    def _is_sure(self, is_sure: Sure[W]) -> bool:
        """What the database does not answer, it says again when the work is committed."""
        try:
            return is_sure(self._connection, self._in_tail)
        except sqlite3.Error:
            return False

    def _move(self) -> None:
        self._moving = None
        if self._in_tail:
            self._commit()

    async def all_in(self) -> None:
        while self._in_tail:
            self._commit()
            if self._failure is not None:
                raise self._failure
            if self._in_tail:
                await asyncio.sleep(LOCKED_RETRY_SECONDS)

    def _come_round(self, turns_left: int) -> None:
        if turns_left and not self._alone:
            self._loop.call_soon(self._come_round, turns_left - 1)
            return
        self._alone = self._gathered == 1
        self._gathered = 0
        if self._group:
            self._commit()

    def _commit(self) -> None:
        """What has been asked for; if the file is locked, a little later."""
        if self._again is None:
            self._try()

    def _try(self) -> None:
        self._again = self._loop.call_later(LOCKED_RETRY_SECONDS, self._try) if self._is_locked() else None
        if self._again is not None:
            return
        self._locked_until = None
        group, self._group = self._group, []
        try:
            outcomes = self._transactions.commit([job.work for job in group], self._in_tail)
        except Exception as error:  # noqa: BLE001  whoever waits raises it
            self._not_moved(error)
            settle(group, [error for _ in group])
        else:
            self._moved()
            settle(group, outcomes)

    def _moved(self) -> None:
        self._failure = None
        self._in_tail.clear()
        self._tail.begin_anew()
        self._checkpoints.committed()

    def _not_moved(self, error: Exception) -> None:
        """It is durable all the same, and tried again with each commit, each reading, and by itself."""
        if not self._in_tail:
            return
        if self._failure is None:
            log.error("what was written last is in %s, and not yet in the database: %s", self._tail.name, error)
        self._failure = error
        if self._moving is None:
            self._moving = self._loop.call_later(MOVED_AGAIN_SECONDS, self._move)

    def _is_locked(self) -> bool:
        """Whether somebody else writes, a checkpoint as a rule: that is waited for, within bounds."""
        if not self._transactions.is_locked():
            return False
        now = self._loop.time()
        self._locked_until = self._locked_until or now + LOCKED_SECONDS_MAX
        return now < self._locked_until

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._group or self._in_tail:
            self._commit()
        while self._again is not None or self._group:  # noqa: ASYNC110 - also of those who no longer wait
            await asyncio.sleep(LOCKED_RETRY_SECONDS)
        if self._moving is not None:
            self._moving.cancel()
        await asyncio.to_thread(self._checkpoints.close)
        await asyncio.to_thread(self._connection.close)
        self._tail.close(needed=bool(self._in_tail))


class Checkpoints:
    """Moves the write-ahead log into the database from a thread of its own, since that waits for the disk.

    PASSIVE first does the bulk of it beside the writer; RESTART then holds the writer up for what came in meanwhile,
    so that the log begins anew instead of growing for as long as there is always somebody writing.
    """

    def __init__(self, connection: sqlite3.Connection, every_commits: int = 1000) -> None:
        self._connection = connection
        self._every_commits = every_commits
        self._commits = 0
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="store-checkpoints", daemon=True)
        self._thread.start()

    def committed(self) -> None:
        self._commits += 1
        if self._commits % self._every_commits == 0:
            self._wake.set()

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while self._wake.wait() and not self._closing:
            self._wake.clear()
            with contextlib.suppress(sqlite3.Error):  # the writer meets a failing disk itself, and says so
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                self._connection.execute("PRAGMA wal_checkpoint(RESTART)")


class ThreadWriter(Generic[W]):
    """Commits in a thread of its own. For `synchronous = FULL`, where every commit waits for the disk."""

    def __init__(self, transactions: Transactions[W], connection: sqlite3.Connection) -> None:
        self._transactions = transactions
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(WAITING_MAX)
        self._queue: queue.SimpleQueue[Job[W] | None] = queue.SimpleQueue()
        self._closing = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    async def write(self, work: W, is_sure: Sure[W] = never) -> None:
        await self._slots.acquire()
        if self._closing:
            self._slots.release()
            raise Unavailable("The store is closed.")
        await self._submit(work)

    async def all_in(self) -> None:
        """What is durable is in the database."""

    async def close(self) -> None:
        """The thread closes the connection, since that takes time."""
        if not self._closing:
            self._closing = True
            await self._slots.acquire()
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _submit(self, work: W) -> asyncio.Future[None]:
        job = Job(work, self._loop.create_future())
        self._queue.put(job)
        return job.done

    def _settle(self, group: list[Job[W]], outcomes: Outcomes) -> None:
        for _ in group:
            self._slots.release()
        settle(group, outcomes)

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended:
            if group := self._next_group():
                self._report(group, self._outcomes(group))
        self._connection.close()

    def _outcomes(self, group: list[Job[W]]) -> Outcomes:
        try:
            return self._transactions.commit([job.work for job in group])
        except Exception as error:  # noqa: BLE001  whoever waits raises it
            return [error for _ in group]

    def _next_group(self) -> list[Job[W]]:
        """Waits for a job, and takes what else is there."""
        group: list[Job[W]] = []
        job = self._queue.get()
        with contextlib.suppress(queue.Empty):
            while job is not None:
                group.append(job)
                if len(group) == WAITING_MAX:
                    return group
                job = self._queue.get_nowait()
            self._ended = True
        return group

    def _report(self, group: list[Job[W]], outcomes: Outcomes) -> None:
        """One wake-up of the event loop for the whole group; none if the loop is gone, and all who waited with it."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, group, outcomes)
