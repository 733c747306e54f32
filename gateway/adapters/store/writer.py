"""Writing, in groups: whatever has been asked for meanwhile is committed next, in one transaction.

Knows SQLite, and nothing of what is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

from gateway.core.errors import GatewayError, Unavailable

WAITING_MAX = 1024
LOCKED_RETRY_SECONDS = 0.002
LOCKED_SECONDS_MAX = 5.0

Work = Callable[[sqlite3.Connection], None]
Outcomes = list[Exception | None]


class Job(NamedTuple):
    work: Work
    done: asyncio.Future[None]


class Writer(Protocol):
    """Owns the connection that writes, from its construction to the end of `close`."""

    @property
    def commits(self) -> int: ...

    async def write(self, work: Work) -> None:
        """Do the work in a transaction, all or nothing, and return when it is durable.

        Once asked for it is carried out, also if the caller is cancelled meanwhile: shield the call to learn how it
        ended.
        """
        ...

    async def close(self) -> None:
        """Finish what is asked for, then close the connection."""
        ...


class Transactions:
    """Carries out jobs on a connection, a group at a time. `explain` makes an error of SQLite one for callers."""

    def __init__(self, connection: sqlite3.Connection, explain: Callable[[sqlite3.Error], Exception]) -> None:
        self.commits = 0
        self._connection = connection
        self._explain = explain

    def is_locked(self) -> bool:
        """Take the lock for the next `commit`, and say whether somebody else has it."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            return error.sqlite_errorcode == sqlite3.SQLITE_BUSY
        return False

    def commit(self, group: list[Job]) -> Outcomes:
        try:
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN IMMEDIATE")
            outcomes = [self._attempt(job.work) for job in group] if len(group) > 1 else [self._alone(group[0].work)]
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            return [self._explain(error) for _ in group]
        self.commits += 1
        return outcomes

    def _alone(self, work: Work) -> Exception | None:
        """A group of one needs no savepoint: what fails is the transaction."""
        try:
            work(self._connection)
        except sqlite3.Error:
            raise
        except GatewayError as error:
            self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN")
            return error
        return None

    def _attempt(self, work: Work) -> Exception | None:
        """One job of the group. What fails alone is undone alone, unless SQLite has given up the whole transaction."""
        self._connection.execute("SAVEPOINT job")
        try:
            work(self._connection)
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


def settle(group: list[Job], outcomes: Outcomes) -> None:
    for job, error in zip(group, outcomes, strict=True):
        if job.done.done():
            continue
        if error is None:
            job.done.set_result(None)
        else:
            job.done.set_exception(error)


class LoopWriter:
    """Commits on the event loop, once a turn of it. For `synchronous = NORMAL`, where a commit is a few dozen
    microseconds of copying to the kernel: handing it to a thread and back would cost more than it does. As long as one
    job comes a turn, it does not even wait for the loop to come round.

    What waits for the disk is the checkpoint, and that is done by `checkpoints` elsewhere.
    """

    def __init__(self, transactions: Transactions, connection: sqlite3.Connection, checkpoints: Checkpoints) -> None:
        self._transactions = transactions
        self._connection = connection
        self._checkpoints = checkpoints
        self._loop = asyncio.get_running_loop()
        self._group: list[Job] = []
        self._jobs_this_turn = 0
        self._alone = False
        self._locked_until: float | None = None
        self._closed = False
        connection.execute("PRAGMA busy_timeout = 0")  # the event loop must not sleep: `_commit` tries again

    @property
    def commits(self) -> int:
        return self._transactions.commits

    async def write(self, work: Work) -> None:
        if self._closed:
            raise Unavailable("The store is closed.")
        if not self._jobs_this_turn:
            self._loop.call_soon(self._come_round)
        self._jobs_this_turn += 1
        job = Job(work, self._loop.create_future())
        self._group.append(job)
        if self._alone and self._jobs_this_turn == 1:
            self._commit()
        await job.done

    def _come_round(self) -> None:
        self._alone = self._jobs_this_turn == 1
        self._jobs_this_turn = 0
        if self._group:
            self._commit()

    def _commit(self) -> None:
        """What has been asked for, unless it was committed already while the file was locked."""
        if not self._group:
            return
        if self._is_locked():
            self._loop.call_later(LOCKED_RETRY_SECONDS, self._commit)
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
        if self._group:
            await asyncio.wait([job.done for job in self._group])
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


class ThreadWriter:
    """Commits in a thread of its own. For `synchronous = FULL`, where every commit waits for the disk."""

    def __init__(self, transactions: Transactions, connection: sqlite3.Connection) -> None:
        self._transactions = transactions
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(WAITING_MAX)
        self._queue: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._closing = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    @property
    def commits(self) -> int:
        return self._transactions.commits

    async def write(self, work: Work) -> None:
        await self._slots.acquire()
        if self._closing:
            self._slots.release()
            raise Unavailable("The store is closed.")
        await self._submit(work)

    async def close(self) -> None:
        """The thread does both, since a checkpoint takes time."""
        if not self._closing:
            self._closing = True
            await self._slots.acquire()
            with contextlib.suppress(Unavailable):
                await self._submit(self._end)
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
            group = self._next_group()
            self._report(group, self._transactions.commit(group))
        self._connection.close()

    def _next_group(self) -> list[Job]:
        group = [self._queue.get()]
        with contextlib.suppress(queue.Empty):
            while len(group) < WAITING_MAX:
                group.append(self._queue.get_nowait())
        return group

    def _report(self, group: list[Job], outcomes: Outcomes) -> None:
        """One wake-up of the event loop for the whole group; none if the loop is gone, and all who waited with it."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, group, outcomes)

    def _end(self, _: sqlite3.Connection) -> None:
        self._ended = True
