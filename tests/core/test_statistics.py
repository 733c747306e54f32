"""Figures over many runs, from groups."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.ports import Group, Spread
from gateway.core.run import Status
from gateway.core.statistics import Bar, Report, histogram, percentile, report

FIRST = datetime(2026, 11, 1, tzinfo=UTC)
TODAY = datetime(2026, 11, 3, 15, 30, tzinfo=UTC)
NOTHING = Spread({}, [])


def group(**fields: Any) -> Group:
    values: dict[str, Any] = {
        "day": date(2026, 11, 2),
        "agent": "files",
        "model": "plan",
        "status": Status.COMPLETED,
        "reason": None,
        "is_child": False,
        "runs": 1,
        "turns": 3,
        "own_cost_usd": Decimal("0.1"),
    }
    return Group(**{**values, **fields})


def reported(*groups: Group, spread: Spread = NOTHING) -> Report:
    return report(FIRST, TODAY, groups, spread, [])


def test_without_runs_all_is_zero_and_every_day_is_there() -> None:
    empty = reported()

    assert (empty.runs, empty.cost_usd, empty.by_status, empty.by_agent) == (0, Decimal(0), [], [])
    assert [(day.day.day, day.runs, day.cost_usd) for day in empty.by_day] == [(1, 0, 0), (2, 0, 0), (3, 0, 0)]
    assert (empty.turns.p50, empty.turns.max, empty.cost.p99) == (0, 0, Decimal(0))


def test_a_subagents_run_counts_under_its_agent_and_nowhere_as_a_run_of_its_own() -> None:
    found = reported(
        group(agent="lead", own_cost_usd=Decimal("0.3")),
        group(agent="research", is_child=True, turns=6, own_cost_usd=Decimal("0.2")),
    )

    assert (found.runs, found.cost_usd) == (1, Decimal("0.5"))
    assert [(row.agent, row.runs, row.cost_usd, row.turns) for row in found.by_agent] == [
        ("lead", 1, Decimal("0.3"), 3),
        ("research", 1, Decimal("0.2"), 6),
    ]
    assert [(row.status, row.runs) for row in found.by_status] == [(Status.COMPLETED, 1)]


groups = st.lists(
    st.builds(
        group,
        day=st.dates(FIRST.date(), TODAY.date()),
        agent=st.sampled_from("abc"),
        model=st.sampled_from("xyz"),
        status=st.sampled_from(list(Status)),
        is_child=st.booleans(),
        runs=st.integers(1, 9),
        turns=st.integers(0, 99),
        own_cost_usd=st.decimals(0, 100, places=6),
    )
)


@given(groups)
def test_the_costs_of_all_days_agents_and_models_each_add_up_to_the_cost(groups: list[Group]) -> None:
    found = reported(*groups)

    for rows in (found.by_day, found.by_agent, found.by_model):
        assert sum((row.cost_usd for row in rows), Decimal(0)) == found.cost_usd
    assert sum(row.runs for row in found.by_day) == sum(row.runs for row in found.by_status) == found.runs


@given(st.lists(st.integers(0, 500), min_size=1), st.sampled_from([50, 90, 99, 100]))
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(turns: list[int], per_cent: int) -> None:
    value = percentile(Counter(turns), per_cent)

    assert value in turns
    assert sum(each <= value for each in turns) * 100 >= len(turns) * per_cent
    assert sum(each < value for each in turns) * 100 < len(turns) * per_cent


@given(st.lists(st.integers(0, 500)))
def test_every_run_is_in_one_bar(turns: list[int]) -> None:
    assert sum(bar.runs for bar in histogram(Counter(turns))) == len(turns)


@pytest.mark.parametrize(("turns", "bar"), [(1, 1), (5, 6), (12, 12), (13, 20), (201, None)])
def test_a_bar_holds_what_is_above_the_bar_before(turns: int, bar: int | None) -> None:
    assert [each for each in histogram({turns: 4}) if each.runs] == [Bar(bar, 4)]


def test_the_last_day_is_today() -> None:
    assert reported().by_day[-1].day == TODAY.date()
    assert timedelta(days=len(reported().by_day) - 1) == TODAY.date() - FIRST.date()
