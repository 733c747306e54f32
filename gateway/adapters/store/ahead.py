"""What is ahead of the database: appends that are durable in the tail, and moved a little later."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gateway.adapters.store.tail import Tail, payloads_in
from gateway.adapters.store.works import Append, Work

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(list[Append]).decode


class Ahead:
    """Takes only what nothing can speak against, since nobody could be told of it any more when it is moved. Belongs to
    whoever has the connection."""

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
        """Whether they are durable now: all of them, or none."""
        if not self._tail.append(encode(works)):
            return False
        self.works += works
        return True

    def moved(self) -> None:
        """The database has all of them."""
        self.works.clear()
        self._begun.clear()
        self._tail.begin_anew()

    def close(self) -> None:
        """What has not been moved is found by whoever opens the store next."""
        self._tail.close(needed=bool(self.works))


def appends_in(tail: Path) -> list[Append]:
    """In order, and with those that the database has already. Raises OSError, ValueError and msgspec.DecodeError."""
    return [append for payload in payloads_in(tail) for append in decode(payload)]
