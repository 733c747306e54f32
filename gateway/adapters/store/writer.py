"""Writing, in groups: whatever has been asked for meanwhile is committed next, in one transaction.

Knows SQLite, and nothing of what is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from gateway.core.errors import Unavailable

WAITING_MAX = 1024
GATHERING_TURNS = 5
"""Turns of the event loop whose jobs are one commit: each reads from a few sockets only, and a commit costs as much as
half a reply. What is waited for longer is less than a millisecond."""

LOCKED_RETRY_SECONDS = 0.002
LOCKED_SECONDS_MAX = 5.0

W = TypeVar("W")
W_contra = TypeVar("W_contra", contravariant=True)

CarryOut = Callable[[sqlite3.Connection, Sequence[W]], None]
"""Does some works in the open transaction; raises if one of them cannot be done, whatever the others did."""

Outcomes = list[Exception | None]


class Job(Generic[W]):
    """A work, and what becomes of it."""

    __slots__ = ("done", "work")

    def __init__(self, work: W, done: asyncio.Future[None]) -> None:
        self.work = work
        self.done = done


class Writer(Protocol[W_contra]):
    """Owns the connection that writes, from its construction to the end of `close`."""

    async def write(self, work: W_contra) -> None:
        """Do the work in a transaction, all or nothing, and return when it is durable.

        Once asked for it is carried out, also if the caller is cancelled meanwhile: shield the call to learn how it
        ended.
        """
        ...

    async def close(self) -> None:
        """Finish what is asked for, then close the connection."""
        ...


class Transactions(Generic[W]):
    """Carries out jobs on a connection, a group at a time. `explain` makes an error of SQLite one for callers."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        carry_out: CarryOut[W],
        explain: Callable[[sqlite3.Error], Exception],
    ) -> None:
        self._connection = connection
        self._carry_out = carry_out
        self._explain = explain

    def is_locked(self) -> bool:
        """Take the lock for the next `commit`, and say whether somebody else has it."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
        return False

    def commit(self, group: Sequence[Job[W]]) -> Outcomes:
        try:
            self._begin()
            outcomes = self._together(group) or [self._alone(job.work) for job in group]
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            return [self._explain(error) for _ in group]
        return outcomes

    def _begin(self) -> None:
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN IMMEDIATE")

    def _together(self, group: Sequence[Job[W]]) -> Outcomes | None:
        """The whole group at once, as it goes nearly always; None if something is wrong with one of them."""
        try:
            self._carry_out(self._connection, [job.work for job in group])
        except Exception:  # noqa: BLE001  each of them says it again below
            self._roll_back()
            self._begin()
            return None
        return [None for _ in group]

    def _alone(self, work: W) -> Exception | None:
        """One job of the group. What fails is undone alone, unless SQLite has given up the whole transaction."""
        self._connection.execute("SAVEPOINT job")
        try:
            self._carry_out(self._connection, [work])
        except Exception as error:
            if not self._connection.in_transaction:
                raise
            self._connection.execute("ROLLBACK TO job")
            return self._explain(error) if isinstance(error, sqlite3.Error) else error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("RELEASE job")
        return None

    def _roll_back(self) -> None:
        """A transaction that could not be committed. If even this fails, the next BEGIN says so."""
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def settle(group: Sequence[Job[W]], outcomes: Outcomes) -> None:
    for job, error in zip(group, outcomes, strict=True):
        if job.done.done():
            continue
        if error is None:
            job.done.set_result(None)
        else:
            job.done.set_exception(error)


class LoopWriter(Generic[W]):
    """Commits on the event loop, once in a few turns of it. For `synchronous = NORMAL`, where a commit is a few dozen
    microseconds of copying to the kernel: handing it to a thread and back would cost more than it does. As long as jobs
    come one by one, they do not even wait for that.

    What waits for the disk is the checkpoint, and that is done by `checkpoints` elsewhere.
    """

    def __init__(self, transactions: Transactions[W], connection: sqlite3.Connection, checkpoints: Checkpoints) -> None:
        self._transactions = transactions
        self._connection = connection
        self._checkpoints = checkpoints
        self._loop = asyncio.get_running_loop()
        self._group: list[Job[W]] = []
        self._gathered = 0
        self._alone = False
        self._locked_until: float | None = None
        self._again: asyncio.TimerHandle | None = None
        self._closed = False
        connection.execute("PRAGMA busy_timeout = 0")  # the event loop must not sleep: `_commit` tries again

    async def write(self, work: W) -> None:
        if self._closed:
            raise Unavailable("The store is closed.")
        if not self._gathered:
            self._loop.call_soon(self._come_round, GATHERING_TURNS - 1)
        self._gathered += 1
        job = Job(work, self._loop.create_future())
        self._group.append(job)
        if self._alone and self._gathered == 1:
            self._commit()
        await job.done

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
        settle(group, self._transactions.commit(group))
        self._checkpoints.committed()

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
        while self._group:  # noqa: ASYNC110 - also of those who no longer wait, and so of no future
            await asyncio.sleep(LOCKED_RETRY_SECONDS)
        await asyncio.to_thread(self._checkpoints.close)
        await asyncio.to_thread(self._connection.close)


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

    async def write(self, work: W) -> None:
        await self._slots.acquire()
        if self._closing:
            self._slots.release()
            raise Unavailable("The store is closed.")
        await self._submit(work)

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
                self._report(group, self._transactions.commit(group))
        self._connection.close()

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
