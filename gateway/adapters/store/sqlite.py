"""The record in one SQLite file: events, the index of runs, and the answers given under idempotency keys.

Writes are committed in groups, or go to a tail first (writer.py). Reads have a connection and a thread of their own, so
that a list waits for no write. Only one gateway at a time has the file.
"""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from gateway.adapters.store.ahead import Ahead
from gateway.adapters.store.cursor import behind, microseconds, parse
from gateway.adapters.store.opening import Durability, Opened, open_files, unavailable
from gateway.adapters.store.rows import Row, entry_from, events_of, group_from, records_in, rows_of, says
from gateway.adapters.store.statements import named_statements, sql_folder
from gateway.adapters.store.transactions import Transactions
from gateway.adapters.store.works import Append, Keep, carry_out
from gateway.adapters.store.writer import Checkpoints, LoopWriter, ThreadWriter, Writer
from gateway.core.errors import Unavailable
from gateway.core.ports import Claim, Entry, Group, Key, Record, Spread
from gateway.core.run import Status

T = TypeVar("T")

NO_LIMIT = -1
SEARCHED_MAX = 10_000
"""Runs that one page of a search looks through: some 20 ms."""


class SqliteStore:
    """EventLog, Index, Stats and Answers. Open one with `SqliteStore.open`; it is its own async context manager."""

    def __init__(self, opened: Opened, sql: dict[str, str]) -> None:
        self._path = opened.path
        self._sql = sql
        self._lock = opened.lock
        self._in_order = opened.lock.was_left_in_order
        self._writer = self._writer_of(opened)
        self._reading = opened.reading
        self._reader = ThreadPoolExecutor(1, "store-reader")
        self._closed = False
        self._going_on: dict[str, int] = {}
        """Runs whose rows are known to say `running`, and where they go on: nobody else writes them."""
        self._asked_last: dict[str, Row] = {}
        """Of runs that are being written, what was asked for last: only that can say where they go on."""

    @classmethod
    async def open(cls, path: Path | str, *, durability: Durability = "process") -> Self:
        """Open the file, or create it and its directory. Raises Unavailable in one sentence.

        `process` survives the death of the process, `machine` also that of the machine.
        """
        sql = named_statements(sql_folder() / "queries.sql")
        return cls(await asyncio.to_thread(open_files, path, durability, sql), sql)

    async def close(self) -> None:
        """Finish what was asked for and let go of the file. The writer is last: its end empties the write-ahead log."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._reader.shutdown)
        self._reading.close()
        await self._writer.close()
        self._lock.release(in_order=self._in_order)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def all_taken_up(self) -> None:
        self._in_order = True

    @property
    def was_closed_in_order(self) -> bool:
        """Whether whoever had the store last closed it, having taken up all that it had found. A new one was."""
        return self._lock.was_left_in_order

    # --- EventLog ---------------------------------------------------------------------------------------------------

    async def append(self, records: Sequence[Record], entry: Entry | None, key: Key | None = None) -> None:
        """As the port says. A caller that is cancelled while it waits does not know whether the records are in: they
        are all in or all out. Shield the call where that matters."""
        run_id, seq, count, _ = events = events_of(records)
        place = self._going_on.pop(run_id, None)  # until it is known that this was written
        row, figures = rows_of(entry, goes_on=place is not None)
        claim = key and (key.key, key.fingerprint, run_id, time.time_ns() // 1000)
        self._asked_last[run_id] = events
        try:
            await self._writer.write(Append(events, seq in (1, place), row, figures, claim))
        finally:
            was_last = self._asked_last.get(run_id) is events
            if was_last:
                del self._asked_last[run_id]
        if not was_last:
            return
        if (entry is None and place is not None) or (entry is not None and entry.status is Status.RUNNING):
            self._going_on[run_id] = seq + count

    async def read(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Record]:
        bounds = {"run_id": run_id, "after": after, "limit": NO_LIMIT if limit is None else limit}
        return records_in(await self._select("read_events", bounds), after)[:limit]

    # --- Index ------------------------------------------------------------------------------------------------------

    async def page(
        self, *, status: Status | None, agent: str | None, text: str | None = None, before: str | None, limit: int
    ) -> tuple[list[Entry], str | None]:
        cursor = parse(before)
        words = (text or "").casefold().split()
        seen_max = SEARCHED_MAX if words else limit
        by_status = "running" if status is Status.RUNNING else "status"
        filters = [name for name, value in (("agent", agent), (by_status, status)) if value is not None]
        query = "page_of_" + "_and_".join(filters) if filters else "page"
        values = {"status": status and str(status), "agent": agent, "created_at": cursor.created_us, "id": cursor.id}
        rows = functools.partial(self._reading.execute, self._sql[query], {**values, "limit": seen_max + 1})
        found, last = await self._read(lambda: look_through(rows(), words, limit, seen_max))
        return [entry_from(row) for row in found], None if last is None else behind(entry_from(last))

    async def running(self) -> list[str]:
        return [id_ for (id_,) in await self._select("running", ())]

    async def count(self, reason: str) -> int:
        return (await self._select("count_of_reason", (reason,)))[0][0]

    # --- Stats ------------------------------------------------------------------------------------------------------

    async def groups(self, since: datetime) -> list[Group]:
        return [group_from(row) for row in await self._select("stats_groups", {"since": microseconds(since)})]

    async def spread(self, since: datetime) -> Spread:
        turns: dict[int, int] = dict(await self._select("stats_turns", {"since": microseconds(since)}))
        runs = sum(turns.values())
        costs = dict(await self._select("stats_costs", {"since": microseconds(since), "runs": runs}))
        places = [(runs * per_cent + 99) // 100 for per_cent in (50, 90, 99, 100)] if runs else []
        return Spread(turns, [Decimal(costs[place]) for place in places])

    async def most_expensive(self, since: datetime, limit: int) -> list[Entry]:
        rows = await self._select("stats_most_expensive", {"since": microseconds(since), "limit": limit})
        return [entry_from(row) for row in rows]

    # --- Answers ----------------------------------------------------------------------------------------------------

    async def claimed(self, key: str) -> Claim | None:
        rows = await self._select("claimed", (key,))
        return Claim(*rows[0]) if rows else None

    async def keep(self, key: str, status: int, body: bytes) -> None:
        """The first answer kept stands. Raises WrongState for a key that nobody claimed."""
        await self._writer.write(Keep(status, body, key))

    # --- writing ----------------------------------------------------------------------------------------------------

    def _writer_of(self, opened: Opened) -> Writer:
        explain = functools.partial(unavailable, opened.path)
        transactions = Transactions(opened.writing, functools.partial(carry_out, self._sql), explain)
        if opened.tail is None or opened.checkpointing is None:
            return ThreadWriter(transactions, opened.writing)
        ahead = Ahead(opened.tail, opened.writing, self._sql)
        return LoopWriter(transactions, opened.writing, ahead, Checkpoints(opened.checkpointing))

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _select(self, query: str, values: Any) -> list[Row]:
        return await self._read(lambda: self._reading.execute(self._sql[query], values).fetchall())

    async def _read(self, work: Callable[[], T]) -> T:
        self._require_open()
        await self._writer.all_in()
        self._require_open()  # it may have been closed meanwhile
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, work)
        except sqlite3.Error as error:
            raise unavailable(self._path, error) from error

    def _require_open(self) -> None:
        if self._closed:
            raise Unavailable("The store is closed.")


def look_through(rows: Iterable[Row], words: list[str], limit: int, seen_max: int) -> tuple[list[Row], Row | None]:
    """Rows in which all words occur, and the last that was looked at, if there are more behind it."""
    found: list[Row] = []
    last = None
    for seen, row in enumerate(rows):
        if seen == seen_max or len(found) == limit:
            return found, last
        last = row
        if says(row, words):
            found.append(row)
    return found, None
