"""Index rows to SQLite's columns and back: times as microseconds, money as decimal text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from gateway.adapters.store.cursor import EPOCH, instant, microseconds
from gateway.core.ports import Entry, Group
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
