"""A group of works as one transaction, in which one that cannot be done takes none of the others with it.

Knows SQLite, and nothing of what is written.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

W = TypeVar("W")

CarryOut = Callable[[sqlite3.Connection, Sequence[W]], None]
"""Does some works in the open transaction; raises if one of them cannot be done, whatever the others did."""

Outcomes = list[Exception | None]


class Transactions(Generic[W]):
    """Carries out works on a connection, a group at a time. `explain` makes an error of SQLite one for callers."""

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

    def commit(self, works: Sequence[W], sure: Sequence[W] = ()) -> Outcomes:
        """What became of those that are sure, and then of the works. Raises if nothing at all is in, as it is if SQLite
        cannot do what is sure."""
        try:
            outcomes = self._together([*sure, *works]) or self._one_by_one(works, sure)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._explain(error) from error
        except Exception:
            self._roll_back()
            raise
        return [self._explain(error) if isinstance(error, sqlite3.Error) else error for error in outcomes]

    def _begin(self) -> None:
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN IMMEDIATE")

    def _together(self, works: Sequence[W]) -> Outcomes | None:
        """All at once, as it goes nearly always; None if something is wrong with one of them."""
        self._begin()
        try:
            self._carry_out(self._connection, works)
        except Exception:  # noqa: BLE001  each of them says it again below
            self._roll_back()
            return None
        return [None for _ in works]

    def _one_by_one(self, works: Sequence[W], sure: Sequence[W]) -> Outcomes:
        self._begin()
        return [*map(self._surely, sure), *map(self._alone, works)]

    def _surely(self, work: W) -> Exception | None:
        error = self._alone(work)
        if isinstance(error, sqlite3.Error):
            raise error
        return error

    def _alone(self, work: W) -> Exception | None:
        """One work of the group. What fails is undone alone, unless SQLite has given up the whole transaction."""
        self._connection.execute("SAVEPOINT job")
        try:
            self._carry_out(self._connection, [work])
        except Exception as error:
            if not self._connection.in_transaction:
                raise
            self._connection.execute("ROLLBACK TO job")
            return error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("RELEASE job")
        return None

    def _roll_back(self) -> None:
        """A transaction that could not be committed. If even this fails, the next BEGIN says so."""
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
