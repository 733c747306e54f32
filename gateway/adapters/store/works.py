"""What is written, and the statements that write it: appends of runs, answers that are kept, marks of the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gateway.adapters.store.rows import Row, taken
from gateway.core.errors import WrongState

ROW_BYTES_MAX = 64 * 1024
"""What is written of a run at several times is one row up to this size: who reads on after an event reads its row."""


class Append(NamedTuple):
    """Events of one run, its index row or only the figures in it if that changes, and the idempotency key that it
    begins with. `follows`: no other row can have their place in the middle of it."""

    events: Row
    follows: bool
    row: Row | None
    figures: Row | None
    claim: Row | None


class Keep(NamedTuple):
    """The answer to keep for a key."""

    status: int
    body: bytes
    key: str


class Mark(NamedTuple):
    """By which the database is known as it is behind this: the tail that goes on from it has the same."""

    value: int


Work = Append | Keep | Mark


def carry_out(sql: Mapping[str, str], connection: sqlite3.Connection, works: Sequence[Work]) -> None:
    """A statement for all appends of a group costs little more than one for each would. Raises WrongState for what
    breaks a promise of the port; where there is more than one append, it may name the wrong one."""
    appends = [work for work in works if isinstance(work, Append)]
    rows, figures = last_said(appends)
    try:
        if rows:
            connection.executemany(sql["upsert_run"], rows)
        if figures:
            connection.executemany(sql["go_on_with_run"], figures)
        if claims := [work.claim for work in appends if work.claim is not None]:
            connection.executemany(sql["claim_key"], claims)
        connection.executemany(sql["append_events"], joined([work.events for work in appends if work.follows]))
        for work in appends:
            if not work.follows:
                append_behind(connection, sql, work.events)
    except sqlite3.IntegrityError as error:
        raise conflict(error, appends[0].events) from error
    for work in works:
        if isinstance(work, Mark):
            connection.execute(sql["set_mark"], work)
        elif isinstance(work, Keep) and not connection.execute(sql["keep_answer"], work).rowcount:
            raise WrongState("the idempotency key was never claimed: there is no answer to keep.")


def last_said(appends: Iterable[Append]) -> tuple[list[Row], list[Row]]:
    """Of each run its last index row, and the figures that were said after it."""
    rows: dict[str, Row] = {}
    figures: dict[str, Row] = {}
    for append in appends:
        run_id = append.events[0]
        if append.row is not None:
            rows[run_id] = append.row
            figures.pop(run_id, None)
        elif append.figures is not None:
            figures[run_id] = append.figures
    return list(rows.values()), list(figures.values())


def joined(rows: Iterable[Row]) -> list[Row]:
    """The same events in fewer rows, where some of them follow one another."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        of_run = found.setdefault(row[0], [])
        if of_run and belong_together(of_run[-1], row):
            run_id, seq, count, body = of_run[-1]
            of_run[-1] = (run_id, seq, count + row[2], body + b"\n" + row[3])
        else:
            of_run.append(row)
    return [row for of_run in found.values() for row in of_run]


def belong_together(row: Row, then: Row) -> bool:
    _, seq, count, body = row
    return seq + count == then[1] and len(body) + len(then[3]) < ROW_BYTES_MAX


def append_behind(connection: sqlite3.Connection, sql: Mapping[str, str], events: Row) -> None:
    """Raises WrongState if the run has gone on already."""
    run_id, seq, _, _ = events
    if seq < place_of(connection, sql, run_id):
        raise taken(run_id, seq)
    connection.execute(sql["append_events"], events)


def place_of(connection: sqlite3.Connection, sql: Mapping[str, str], run_id: str) -> int:
    """Where a run goes on: the number of its next event."""
    found = connection.execute(sql["place_behind"], (run_id,)).fetchone()
    return 1 if found is None else found[0]


def conflict(error: sqlite3.IntegrityError, first: Row) -> WrongState:
    """Which promise of the port the append would have broken."""
    run_id, seq, *_ = first
    if error.sqlite_errorname == "SQLITE_CONSTRAINT_FOREIGNKEY":
        return WrongState(f"run {run_id} is not in the index: its first records come with an entry.")
    if "keys.key" in str(error):
        return WrongState("the idempotency key was claimed by another request.", code="key_claimed")
    return taken(run_id, seq)
