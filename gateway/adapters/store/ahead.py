"""What is ahead of the database: appends that are durable in the tail, and moved a little later."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gateway.adapters.store.tail import Left, Tail, left_in
from gateway.adapters.store.works import Append, Mark, Work, carry_out
from gateway.core.errors import WrongState

log = logging.getLogger(__name__)

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(list[Append]).decode


class Ahead:
    """Takes only what nothing can speak against, since nobody could be told of it any more when it is moved; nothing
    before the first commit, which gives the database its mark. Belongs to whoever has the connection."""

    def __init__(self, tail: Tail, connection: sqlite3.Connection, sql: Mapping[str, str]) -> None:
        self.works: list[Work] = []
        self._tail = tail
        self._connection = connection
        self._is_begun = sql["is_begun"]
        self._begun: set[str] = set()

    def takes(self, work: Work) -> bool:
        """Whether the run is known to go on there, or nobody has begun it; it counts as begun then. A key is known to
        the database alone."""
        if not isinstance(work, Append) or work.claim is not None or not work.follows:
            return False
        run_id, seq, _, _ = work.events
        return seq > 1 or (work.row is not None and self._begins(run_id))

    def _begins(self, run_id: str) -> bool:
        """What the database does not answer, it says again when the work is committed."""
        try:
            is_new = run_id not in self._begun and not self._connection.execute(self._is_begun, (run_id,)).fetchone()
        except sqlite3.Error:
            return False
        self._begun.add(run_id)
        return is_new

    def note(self, works: Sequence[Work]) -> bool:
        """Whether they are durable now: all of them, or none. What cannot even be encoded is for a commit to refuse."""
        try:
            payload = encode(works)
        except (UnicodeEncodeError, OverflowError):
            return False
        if not self._tail.append(payload):
            return False
        self.works += works
        return True

    def to_commit(self) -> list[Work]:
        """All of them, and that the database has them then."""
        return [*self.works, Mark(self._tail.mark + 1)]

    def committed(self) -> None:
        self.works.clear()
        self._begun.clear()
        self._tail.begin(self._tail.mark + 1)

    def gives_way(self) -> bool:
        """Whether there is more room on the disk now, for a commit."""
        return self._tail.gives_way()

    def close(self) -> None:
        """What has not been moved is found by whoever opens the store next."""
        self._tail.close(needed=bool(self.works))


def tail_of(database: Path) -> Path:
    return database.with_name(database.name + ".tail")


def take_in(path: Path, connection: sqlite3.Connection, sql: Mapping[str, str]) -> int:
    """Move to the database what a gateway that died has left in its tail, if it goes on from just this database. One
    with a smaller mark has been moved already. Returns the mark from which those of this process count on. Raises
    sqlite3.Error, OSError, ValueError and msgspec.DecodeError."""
    (mark,) = connection.execute(sql["mark"]).fetchone()
    next_mark = max(mark + 1, time.time_ns())  # whatever may still turn up beside this database goes on from another
    left = left_in(path)
    if left is not None and left.mark > mark:
        put_aside(path, left, "it goes on from a newer database")
    elif left is not None and left.mark == mark:
        os.truncate(path, left.end)  # the room that it kept is for what follows
        try:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                carry_out(sql, connection, [*appends_in(left), Mark(next_mark)])
        except (WrongState, OverflowError) as error:
            put_aside(path, left, str(error))
    path.unlink(missing_ok=True)
    return next_mark


def appends_in(left: Left | None) -> list[Append]:
    return [append for payload in left.payloads for append in decode(payload)] if left else []


def put_aside(path: Path, left: Left, why: str) -> None:
    """A backup was put in the place of the database, or the machine has lost what was in it."""
    kept = path.with_name(f"{path.name}.{left.mark}")
    path.rename(kept)
    log.warning("%s does not belong to the database beside it, and is kept as %s: %s", path.name, kept.name, why)
