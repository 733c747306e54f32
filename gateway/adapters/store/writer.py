"""The one thread that writes. Whatever has queued up while it committed is committed next, in one transaction.

Knows SQLite, and nothing of what is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import NamedTuple

from gateway.core.errors import Unavailable

WAITING_MAX = 1024

Work = Callable[[sqlite3.Connection], None]
Outcomes = list[Exception | None]


class Job(NamedTuple):
    work: Work
    done: asyncio.Future[None]


class Writer:
    """Owns the connection that writes, from its construction to the end of `close`.

    `explain` makes an error of SQLite one that callers may see. Belongs to the event loop that it was made on.
    """

    def __init__(self, connection: sqlite3.Connection, explain: Callable[[sqlite3.Error], Exception]) -> None:
        self.commits = 0
        self._connection = connection
        self._explain = explain
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(WAITING_MAX)
        self._queue: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._closing = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    async def write(self, work: Work) -> None:
        """Do the work in a transaction, all or nothing, and return when it is durable.

        Once queued it is carried out, also if the caller is cancelled meanwhile: shield the call to learn how it ended.
        """
        await self._slots.acquire()
        if self._closing:
            self._slots.release()
            raise Unavailable("The store is closed.")
        await self._submit(work)

    async def close(self) -> None:
        """Finish what is queued, then close the connection. The thread does both, since a checkpoint takes time."""
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
        for job, error in zip(group, outcomes, strict=True):
            self._slots.release()
            if job.done.done():
                continue
            if error is None:
                job.done.set_result(None)
            else:
                job.done.set_exception(error)

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended:
            group = self._next_group()
            self._report(group, self._commit(group))
        self._connection.close()

    def _next_group(self) -> list[Job]:
        group = [self._queue.get()]
        with contextlib.suppress(queue.Empty):
            while len(group) < WAITING_MAX:
                group.append(self._queue.get_nowait())
        return group

    def _commit(self, group: list[Job]) -> Outcomes:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            outcomes = [self._attempt(job.work) for job in group]
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            return [self._explain(error) for _ in group]
        self.commits += 1
        return outcomes

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

    def _report(self, group: list[Job], outcomes: Outcomes) -> None:
        """One wake-up of the event loop for the whole group; none if the loop is gone, and all who waited with it."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, group, outcomes)

    def _end(self, _: sqlite3.Connection) -> None:
        self._ended = True
