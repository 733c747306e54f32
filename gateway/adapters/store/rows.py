"""Index rows to SQLite's columns and back: times as microseconds, money as decimal text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from gateway.adapters.store.cursor import EPOCH, instant, microseconds
from gateway.core.errors import WrongState
from gateway.core.ports import Entry, Group, Record
from gateway.core.pricing import total
from gateway.core.run import Parent, Status

Row = tuple[Any, ...]

SHOWN = (0, 1, 2, 3, 4, 11, 14)
"""What a search looks into: id, agent, model, status, reason, parent and task."""


def says(row: Row, words: Sequence[str]) -> bool:
    """Whether all of these words, which are case-folded, occur in the row."""
    if not words:
        return True
    shown = " ".join(row[column] or "" for column in SHOWN).casefold()
    return all(word in shown for word in words)


def events_of(records: Sequence[Record]) -> Row:
    """Events that are written together. Raises WrongState if they do not follow one another."""
    first, bodies = records[0], list[bytes]()
    for seq, record in enumerate(records, first.seq):
        if record.seq != seq:
            raise taken(first.run_id, first.seq)
        bodies.append(record.body)
    body = b"\n".join(bodies)
    if body.count(b"\n") >= len(records):
        raise ValueError(f"an event of run {first.run_id} is not one line")
    return first.run_id, first.seq, len(records), body


def records_in(rows: Sequence[Row], after: int) -> list[Record]:
    return [
        Record(run_id, seq, body)
        for run_id, first, bodies in rows
        for seq, body in enumerate(bodies.split(b"\n"), first)
        if seq > after
    ]


def taken(run_id: str, seq: int) -> WrongState:
    return WrongState(f"record {seq} of run {run_id} is taken: somebody else drives this run.", code="seq_taken")


def row_of(entry: Entry) -> Row:
    return (
        entry.id,
        entry.agent,
        entry.model,
        str(entry.status),
        entry.reason,
        entry.turns,
        entry.tool_runs,
        str(entry.cost_usd),
        str(entry.unconfirmed_cost_usd),
        microseconds(entry.created_at),
        microseconds(entry.updated_at),
        entry.parent and entry.parent.run_id,
        entry.parent and entry.parent.call_id,
        str(entry.delegated_cost_usd),
        entry.task,
    )


def rows_of(entry: Entry | None, *, goes_on: bool) -> tuple[Row | None, Row | None]:
    """The whole row; or only the figures, of a run whose row is known to say `running` and will go on saying it."""
    if entry is None:
        return None, None
    return (None, figures_of(entry)) if goes_on and entry.status is Status.RUNNING else (row_of(entry), None)


def figures_of(entry: Entry) -> Row:
    """What changes of a run while it goes on."""
    return (
        entry.turns,
        entry.tool_runs,
        str(entry.cost_usd),
        str(entry.unconfirmed_cost_usd),
        str(entry.delegated_cost_usd),
        microseconds(entry.updated_at),
        entry.id,
    )


def entry_from(row: Row) -> Entry:
    (
        id_,
        agent,
        model,
        status,
        reason,
        turns,
        tool_runs,
        cost,
        unconfirmed,
        created,
        updated,
        parent,
        call,
        delegated,
        task,
    ) = row
    return Entry(
        id=id_,
        agent=agent,
        model=model,
        status=Status(status),
        reason=reason,
        turns=turns,
        tool_runs=tool_runs,
        cost_usd=Decimal(cost),
        unconfirmed_cost_usd=Decimal(unconfirmed),
        created_at=instant(created),
        updated_at=instant(updated),
        parent=None if parent is None else Parent(parent, call),
        delegated_cost_usd=Decimal(delegated),
        task=task,
    )


def group_from(row: Row) -> Group:
    day, agent, model, status, reason, is_child, runs, turns, cost, delegated = row
    return Group(
        day=(EPOCH + timedelta(days=day)).date(),
        agent=agent,
        model=model,
        status=Status(status),
        reason=reason,
        is_child=bool(is_child),
        runs=runs,
        turns=turns,
        own_cost_usd=total(Decimal(cost), -Decimal(delegated)),
    )
