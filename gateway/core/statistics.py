"""Figures over many runs, from what the store has grouped: cost, turns and ways out, by day, agent and model.

A subagent's run counts under its agent and its model, with what it spent itself; everywhere else, runs are those that a
person or a program started, each with all that was spent for it. So nothing is counted twice, and the costs of all
days, of all agents and of all models each add up to `cost_usd`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TypeVar

from msgspec import Struct

from gateway.core.ports import Entry, Group, Spread
from gateway.core.pricing import ZERO, total
from gateway.core.run import Status

TURNS_LE = (1, 2, 3, 4, 6, 8, 12, 20, 30, 50, 100, 200)

K = TypeVar("K")


class OfDay(Struct, frozen=True):
    day: date
    runs: int
    cost_usd: Decimal


class OfStatus(Struct, frozen=True):
    status: Status
    reason: str | None
    runs: int


class OfAgent(Struct, frozen=True):
    agent: str
    runs: int
    cost_usd: Decimal
    turns: int


class OfModel(Struct, frozen=True):
    model: str
    runs: int
    cost_usd: Decimal
    turns: int


class Bar(Struct, frozen=True):
    """How many runs took at most `le` turns and more than the bar before; the last bar, without `le`, has the rest."""

    le: int | None
    runs: int


class Turns(Struct, frozen=True):
    p50: int
    p90: int
    p99: int
    max: int
    histogram: list[Bar]


class Cost(Struct, frozen=True):
    p50: Decimal
    p90: Decimal
    p99: Decimal
    max: Decimal


class Expensive(Struct, frozen=True):
    id: str
    agent: str
    model: str
    turns: int
    cost_usd: Decimal
    status: Status


class Report(Struct, frozen=True, kw_only=True):
    """The answer of /v1/stats."""

    since: datetime
    runs: int
    cost_usd: Decimal
    by_day: list[OfDay]
    by_status: list[OfStatus]
    by_agent: list[OfAgent]
    by_model: list[OfModel]
    turns: Turns
    cost: Cost
    most_expensive: list[Expensive]


def report(
    since: datetime, until: datetime, groups: Sequence[Group], spread: Spread, dearest: Sequence[Entry]
) -> Report:
    started = [group for group in groups if not group.is_child]
    return Report(
        since=since,
        runs=runs_of(started),
        cost_usd=cost_of(groups),
        by_day=days(since.date(), until.date(), groups),
        by_status=ways_out(started),
        by_agent=[OfAgent(*row) for row in shares(groups, lambda group: group.agent)],
        by_model=[OfModel(*row) for row in shares(groups, lambda group: group.model)],
        turns=turns_of(spread.turns),
        cost=Cost(*(spread.costs or (ZERO,) * 4)),
        most_expensive=[
            Expensive(run.id, run.agent, run.model, run.turns, run.cost_usd, run.status) for run in dearest
        ],
    )


def runs_of(groups: Iterable[Group]) -> int:
    return sum(group.runs for group in groups)


def cost_of(groups: Iterable[Group]) -> Decimal:
    return total(*(group.own_cost_usd for group in groups))


def grouped(groups: Iterable[Group], key: Callable[[Group], K]) -> dict[K, list[Group]]:
    found: dict[K, list[Group]] = {}
    for group in groups:
        found.setdefault(key(group), []).append(group)
    return found


def days(first: date, last: date, groups: Sequence[Group]) -> list[OfDay]:
    """Every day of the period, those without runs too."""
    by_day = grouped(groups, lambda group: group.day)
    every = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    return [
        OfDay(day, runs_of(g for g in by_day.get(day, ()) if not g.is_child), cost_of(by_day.get(day, ())))
        for day in every
    ]


def ways_out(groups: Sequence[Group]) -> list[OfStatus]:
    counted = Counter[tuple[Status, str | None]]()
    for group in groups:
        counted[group.status, group.reason] += group.runs
    return [OfStatus(status, reason, runs) for (status, reason), runs in counted.most_common()]


def shares(groups: Sequence[Group], key: Callable[[Group], str]) -> list[tuple[str, int, Decimal, int]]:
    """Name, runs, cost and turns of each, dearest first."""
    rows = [
        (name, runs_of(found), cost_of(found), sum(group.turns for group in found))
        for name, found in grouped(groups, key).items()
    ]
    return sorted(rows, key=lambda row: (-row[2], row[0]))


def turns_of(runs_of_turns: Mapping[int, int]) -> Turns:
    p50, p90, p99, most = (percentile(runs_of_turns, per_cent) for per_cent in (50, 90, 99, 100))
    return Turns(p50, p90, p99, most, histogram(runs_of_turns))


def percentile(counted: Mapping[int, int], per_cent: int) -> int:
    """By nearest rank: the smallest value that so many per cent do not exceed. 0 where there are none."""
    wanted = sum(counted.values()) * per_cent
    seen = 0
    for value in sorted(counted):
        seen += counted[value]
        if seen * 100 >= wanted:
            return value
    return 0


def histogram(counted: Mapping[int, int]) -> list[Bar]:
    bars: list[Bar] = []
    below = 0
    for le in TURNS_LE:
        up_to = sum(runs for turns, runs in counted.items() if turns <= le)
        bars.append(Bar(le, up_to - below))
        below = up_to
    return [*bars, Bar(None, sum(counted.values()) - below)]
