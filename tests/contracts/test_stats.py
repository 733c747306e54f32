"""What every store promises about figures over many runs. It joins by the same line as in test_store.py."""

# ruff: noqa: F811

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

from gateway.core.ports import Entry, EventLog, Index, Stats
from gateway.core.run import Parent, Status
from tests.contracts.test_store import entry, open_store, records, store  # noqa: F401  the fixtures of the contract

MIDNIGHT = datetime(2025, 6, 1, tzinfo=UTC)


class Store(EventLog, Index, Stats, Protocol): ...


async def keep(store: Store, run_id: str, **fields: Any) -> Entry:
    kept = entry(run_id, **{"created_at": MIDNIGHT, "status": Status.COMPLETED, **fields})
    await store.append(records(run_id, 1), kept)
    return kept


async def test_an_empty_store_has_no_figures(store: Store) -> None:
    spread = await store.spread(MIDNIGHT)

    assert await store.groups(MIDNIGHT) == []
    assert (spread.turns, spread.costs) == ({}, [])
    assert await store.most_expensive(MIDNIGHT, 10) == []


async def test_runs_are_grouped_by_day_agent_model_and_way_out(store: Store) -> None:
    await keep(store, "r1", turns=3, cost_usd=Decimal("0.1"))
    await keep(store, "r2", turns=5, cost_usd=Decimal("0.2"), created_at=MIDNIGHT + timedelta(hours=23, minutes=59))
    await keep(store, "r3", turns=1, created_at=MIDNIGHT + timedelta(days=1))
    await keep(store, "r4", status=Status.INTERRUPTED, reason="approval", model="other")

    groups = await store.groups(MIDNIGHT)

    found = {(group.day, group.model, group.status, group.reason): group for group in groups}
    assert len(found) == len(groups) == 3
    together = found[date(2025, 6, 1), "plan", Status.COMPLETED, None]
    assert (together.runs, together.turns, together.own_cost_usd) == (2, 8, Decimal("0.3"))
    assert found[date(2025, 6, 2), "plan", Status.COMPLETED, None].runs == 1
    assert found[date(2025, 6, 1), "other", Status.INTERRUPTED, "approval"].runs == 1


async def test_a_run_counts_once_with_its_last_figures(store: Store) -> None:
    await keep(store, "r1", status=Status.RUNNING, turns=1, cost_usd=Decimal(1))
    await store.append(records("r1", 2), entry("r1", created_at=MIDNIGHT, turns=2, cost_usd=Decimal(3)))

    (group,) = await store.groups(MIDNIGHT)

    assert (group.runs, group.turns, group.own_cost_usd) == (1, 2, Decimal(3))


async def test_runs_from_before_the_period_do_not_count(store: Store) -> None:
    await keep(store, "before", created_at=MIDNIGHT - timedelta(microseconds=1), cost_usd=Decimal(9))
    await keep(store, "first", created_at=MIDNIGHT, cost_usd=Decimal(1))

    assert [group.own_cost_usd for group in await store.groups(MIDNIGHT)] == [Decimal(1)]
    assert (await store.spread(MIDNIGHT)).costs == [Decimal(1)] * 4
    assert [run.id for run in await store.most_expensive(MIDNIGHT, 10)] == ["first"]


async def test_money_is_summed_exactly(store: Store) -> None:
    for number in range(30):
        await keep(store, f"r{number}", cost_usd=Decimal("0.000000000000000001") + Decimal("0.1"))

    (group,) = await store.groups(MIDNIGHT)

    assert group.own_cost_usd == Decimal("3.000000000000000030")


async def test_what_a_subagent_spent_counts_once(store: Store) -> None:
    await keep(store, "parent", cost_usd=Decimal("0.5"), delegated_cost_usd=Decimal("0.2"), turns=2)
    await keep(
        store, "child", cost_usd=Decimal("0.2"), parent=Parent("parent", "parent:1:0"), agent="research", turns=7
    )

    groups = {group.agent: group for group in await store.groups(MIDNIGHT)}
    spread = await store.spread(MIDNIGHT)

    assert (groups["files"].own_cost_usd, groups["research"].own_cost_usd) == (Decimal("0.3"), Decimal("0.2"))
    assert (groups["files"].is_child, groups["research"].is_child) == (False, True)
    assert (spread.turns, spread.costs) == ({2: 1}, [Decimal("0.5")] * 4)
    assert [run.id for run in await store.most_expensive(MIDNIGHT, 10)] == ["parent"]


async def test_percentiles_are_nearest_ranks_and_the_dearest_runs_come_first(store: Store) -> None:
    chance = random.Random(5)
    costs = [Decimal(chance.randrange(1, 10**9)) / 10**6 for _ in range(137)]
    turns = [chance.randrange(1, 9) for _ in costs]
    for number, (cost, taken) in enumerate(zip(costs, turns, strict=True)):
        await keep(store, f"r{number}", cost_usd=cost, turns=taken)

    spread = await store.spread(MIDNIGHT)
    dearest = await store.most_expensive(MIDNIGHT, 5)

    ranked = sorted(costs)
    assert spread.costs == [ranked[69 - 1], ranked[124 - 1], ranked[136 - 1], ranked[137 - 1]]
    assert spread.turns == Counter(turns)
    assert [run.cost_usd for run in dearest] == ranked[::-1][:5]
