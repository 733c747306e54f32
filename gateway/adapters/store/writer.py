"""Writing, in groups: whatever has been asked for meanwhile is written next, together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Awaitable, Sequence
from typing import Protocol

from msgspec import Struct

from gateway.adapters.store.ahead import Ahead
from gateway.adapters.store.transactions import Outcomes, Transactions
from gateway.adapters.store.works import Append, Work
from gateway.core.errors import Unavailable

log = logging.getLogger(__name__)

WAITING_MAX = 1024
GATHERING_TURNS = 8
"""Turns of the event loop whose jobs are written together: each reads from a few sockets only, and what follows then
costs less for some runs at once. What is waited for longer is less than a millisecond."""

CHECKPOINT_BYTES = 24 * 2**20
WORK_BYTES = 2048
"""What a work adds to the write-ahead log besides its events, roughly: the log has 10 to 40 MB at a checkpoint."""

LOCKED_RETRY_SECONDS = 0.002
LOCKED_SECONDS_MAX = 5.0

MOVED_AFTER_SECONDS = 0.1
"""How old the database may be for who looks at the file from outside. Nobody inside sees it older."""

MOVED_AGAIN_SECONDS = 1.0


class Job(Struct, frozen=True):
    """A work, and what becomes of it."""

    work: Work
    done: asyncio.Future[None]


class Writer(Protocol):
    """Owns the connection that writes, from its construction to the end of `close`."""

    def write(self, work: Work) -> Awaitable[None]:
        """Do the work in a transaction, all or nothing. Who awaits it goes on when it is durable.

        Once asked for it is carried out, also if the caller is cancelled meanwhile: shield the call to learn how it
        ended. It may be durable before it is in the database.
        """
        ...

    async def all_in(self) -> None:
        """Return when the database has all that is durable. Raises what it raises."""
        ...

    async def close(self) -> None:
        """Finish what is asked for, then close the connection."""
        ...


def settle(group: Sequence[Job], outcomes: Outcomes) -> None:
    for job, error in zip(group, outcomes, strict=True):
        if job.done.done():
            continue
        if error is None:
            job.done.set_result(None)
        else:
            job.done.set_exception(error)


class LoopWriter:
    """Writes on the event loop. For `synchronous = NORMAL`, where a commit is a few dozen microseconds of copying to
    the kernel: handing it to a thread and back would cost more than it does. What waits for the disk is the checkpoint,
    and that is done by `checkpoints` elsewhere.

    Jobs that come together are written together, once in a few turns of the loop; as long as they come one by one, they
    do not even wait for that. What `ahead` takes is durable by one write to a file, and goes to the database with the
    next commit, or a little later. The others are a commit.
    """

    def __init__(
        self, transactions: Transactions[Work], connection: sqlite3.Connection, ahead: Ahead, checkpoints: Checkpoints
    ) -> None:
        self._transactions = transactions
        self._connection = connection
        self._ahead = ahead
        self._checkpoints = checkpoints
        self._loop = asyncio.get_running_loop()
        self._gathered: list[Job] = []
        self._came = 0
        self._alone = False
        self._to_commit: list[Job] = []
        self._failure: Exception | None = None
        """Why what is ahead could not go to the database. Until it can, everybody waits for a commit."""
        self._locked_until: float | None = None
        self._again: asyncio.TimerHandle | None = None
        self._moving: asyncio.TimerHandle | None = None
        self._closed = False
        connection.execute("PRAGMA busy_timeout = 0")  # the event loop must not sleep: `_commit` tries again

    def write(self, work: Work) -> Awaitable[None]:
        if self._closed:
            raise Unavailable("The store is closed.")
        if not self._came:
            self._loop.call_soon(self._come_round, GATHERING_TURNS - 1)
        self._came += 1
        job = Job(work, self._loop.create_future())
        self._gathered.append(job)
        if self._alone and self._came == 1:
            self._write_gathered()
        return job.done

    def _come_round(self, turns_left: int) -> None:
        if turns_left and not self._alone:
            self._loop.call_soon(self._come_round, turns_left - 1)
            return
        self._alone = self._came == 1
        self._came = 0
        self._write_gathered()

    def _write_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        taken: list[Job] = []
        rest: list[Job] = []
        for job in gathered:
            (taken if self._failure is None and self._ahead.takes(job.work) else rest).append(job)
        if taken and not self._noted(taken):
            rest = gathered
        if rest:
            self._to_commit += rest
            self._commit()

    def _noted(self, jobs: list[Job]) -> bool:
        if not self._ahead.note([job.work for job in jobs]):
            return False
        settle(jobs, [None for _ in jobs])
        if self._moving is None:
            self._moving = self._loop.call_later(MOVED_AFTER_SECONDS, self._move)
        return True

    def _move(self) -> None:
        self._moving = None
        if self._ahead.works:
            self._commit()

    async def all_in(self) -> None:
        while self._ahead.works:
            self._commit()
            while self._again is not None:  # noqa: ASYNC110 - whoever waits here waits for no work of its own
                await asyncio.sleep(LOCKED_RETRY_SECONDS)
            if self._ahead.works and self._failure is not None:
                raise self._failure

    def _commit(self) -> None:
        """What is ahead and what has been asked for; if the file is locked, a little later."""
        if self._again is None:
            self._try()

    def _try(self) -> None:
        self._again = self._loop.call_later(LOCKED_RETRY_SECONDS, self._try) if self._is_locked() else None
        if self._again is not None:
            return
        self._locked_until = None
        jobs, self._to_commit = self._to_commit, []
        works, sure = [job.work for job in jobs], self._ahead.to_commit()
        try:
            outcomes = self._committed(works, sure)
        except Exception as error:  # noqa: BLE001  whoever waits raises it
            self._not_moved(error)
            settle(jobs, [error for _ in jobs])
            return
        self._failure = None
        self._checkpoints.committed([*sure, *works])
        self._ahead.committed()
        for error in filter(None, outcomes[: len(sure)]):
            log.error("what was durable cannot go to the database, and is left out of it: %s", error)
        settle(jobs, outcomes[len(sure) :])

    def _committed(self, works: Sequence[Work], sure: Sequence[Work]) -> Outcomes:
        """On a full disk with the room that the tail has kept for this."""
        try:
            return self._transactions.commit(works, sure)
        except Exception:
            if not self._ahead.gives_way():
                raise
        return self._transactions.commit(works, sure)

    def _not_moved(self, error: Exception) -> None:
        """It is durable all the same, and tried again with each commit, each reading, and by itself."""
        if not self._ahead.works:
            return
        if self._failure is None:
            log.error("what was written last is durable, and not yet in the database: %s", error)
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
        self._write_gathered()
        self._move()
        while self._again is not None:  # noqa: ASYNC110 - also of those who no longer wait, and so of no future
            await asyncio.sleep(LOCKED_RETRY_SECONDS)
        if self._moving is not None:
            self._moving.cancel()
        await asyncio.to_thread(self._checkpoints.close)
        await asyncio.to_thread(self._connection.close)
        self._ahead.close()


class Checkpoints:
    """Moves the write-ahead log into the database from a thread of its own, since that waits for the disk.

    PASSIVE first does the bulk of it beside the writer; RESTART then holds the writer up for what came in meanwhile,
    so that the log begins anew instead of growing for as long as there is always somebody writing.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._bytes = 0
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="store-checkpoints", daemon=True)
        self._thread.start()

    def committed(self, works: Sequence[Work]) -> None:
        events = sum([len(work.events[3]) for work in works if isinstance(work, Append)])
        self._bytes += WORK_BYTES * len(works) + events
        if self._bytes >= CHECKPOINT_BYTES:
            self._bytes = 0
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


class ThreadWriter:
    """Commits in a thread of its own. For `synchronous = FULL`, where every commit waits for the disk."""

    def __init__(self, transactions: Transactions[Work], connection: sqlite3.Connection) -> None:
        self._transactions = transactions
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(WAITING_MAX)
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._closing = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    async def write(self, work: Work) -> None:
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

    def _submit(self, work: Work) -> asyncio.Future[None]:
        job = Job(work, self._loop.create_future())
        self._queue.put(job)
        return job.done

    def _settle(self, group: list[Job], outcomes: Outcomes) -> None:
        for _ in group:
            self._slots.release()
        settle(group, outcomes)

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended:
            if group := self._next_group():
                self._report(group, self._outcomes(group))
        self._connection.close()

    def _outcomes(self, group: list[Job]) -> Outcomes:
        try:
            return self._transactions.commit([job.work for job in group])
        except Exception as error:  # noqa: BLE001  whoever waits raises it
            return [error for _ in group]

    def _next_group(self) -> list[Job]:
        """Waits for a job, and takes what else is there."""
        group: list[Job] = []
        job = self._queue.get()
        with contextlib.suppress(queue.Empty):
            while job is not None:
                group.append(job)
                if len(group) == WAITING_MAX:
                    return group
                job = self._queue.get_nowait()
            self._ended = True
        return group

    def _report(self, group: list[Job], outcomes: Outcomes) -> None:
        """One wake-up of the event loop for the whole group; none if the loop is gone, and all who waited with it."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, group, outcomes)
