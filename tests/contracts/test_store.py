"""What every store promises. A new adapter joins by a line in ADAPTERS; nothing here knows which one it is."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.adapters.store.sqlite import SqliteStore
from gateway.core.errors import BadRequest, Unavailable, WrongState
from gateway.core.ports import Answers, Claim, Entry, EventLog, Index, Key, Record
from gateway.core.run import Parent, Status

NOON = datetime(2025, 6, 1, 12, 0, 0, 123456, tzinfo=UTC)
ADAPTERS = ["sqlite"]


class Store(EventLog, Index, Answers, Protocol):
    async def close(self) -> None: ...


Open = Callable[[str], Awaitable[Store]]
"""Opens the store of that name: a new one, or the same again once it was closed."""


@pytest.fixture(params=ADAPTERS)
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    openers = {"sqlite": lambda name: SqliteStore.open(tmp_path / f"{name}.db")}
    opened: list[Store] = []

    async def open_named(name: str) -> Store:
        opened.append(await openers[request.param](name))
        return opened[-1]

    yield open_named
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: Open) -> Store:
    return await open_store("store")


def entry(run_id: str = "r1", **fields: Any) -> Entry:
    values: dict[str, Any] = {
        "id": run_id,
        "agent": "files",
        "model": "plan",
        "status": Status.RUNNING,
        "reason": None,
        "turns": 0,
        "tool_runs": 0,
        "cost_usd": Decimal(0),
        "unconfirmed_cost_usd": Decimal(0),
        "created_at": NOON,
        "updated_at": NOON,
    }
    return Entry(**{**values, **fields})


def records(run_id: str, *seqs: int) -> list[Record]:
    return [Record(run_id, seq, b'{"type":"turn","n":%d}' % seq) for seq in seqs]


async def everything(store: Store) -> list[Entry]:
    entries, _ = await store.page(status=None, agent=None, before=None, limit=1000)
    return entries


async def pages(
    store: Store, *, limit: int, status: Status | None = None, agent: str | None = None, text: str | None = None
) -> list[Entry]:
    """All pages, one after the other, as a client reads them."""
    found: list[Entry] = []
    cursor: str | None = None
    while True:
        entries, cursor = await store.page(status=status, agent=agent, text=text, before=cursor, limit=limit)
        assert len(entries) <= limit
        found += entries
        if cursor is None:
            return found


# --- the log --------------------------------------------------------------------------------------------------------


async def test_what_was_appended_is_read_back_in_order(store: Store) -> None:
    await store.append(records("r1", 1, 2), entry())
    await store.append(records("r1", 3), None)

    assert await store.read("r1") == records("r1", 1, 2, 3)


async def test_reading_goes_on_after_a_record_and_stops_at_a_limit(store: Store) -> None:
    await store.append(records("r1", 1, 2, 3, 4, 5), entry())

    assert await store.read("r1", after=3) == records("r1", 4, 5)
    assert await store.read("r1", after=1, limit=2) == records("r1", 2, 3)
    assert await store.read("r1", after=5) == []


async def test_an_unknown_run_has_no_records(store: Store) -> None:
    await store.append(records("r1", 1), entry())

    assert await store.read("r2") == []


@pytest.mark.parametrize("together", [1, 3, 120])
async def test_reading_may_begin_and_stop_anywhere_however_the_records_were_written(
    store: Store, together: int
) -> None:
    seqs = range(1, 121)
    for first in seqs[::together]:
        await store.append(records("r1", *range(first, first + together)), entry())

    assert await store.read("r1") == records("r1", *seqs)
    for after in (0, 1, 2, 3, 9, 10, 11, 99, 100, 118, 119, 120, 121):
        for limit in (0, 1, 2, 4, 200):
            assert await store.read("r1", after, limit) == records("r1", *seqs)[after : after + limit]


@pytest.mark.parametrize("seqs", [(1, 3), (2, 1), (1, 1)])
async def test_records_that_do_not_follow_one_another_are_refused(store: Store, seqs: tuple[int, ...]) -> None:
    with pytest.raises(WrongState):
        await store.append(records("r1", *seqs), entry())

    assert await everything(store) == []


async def test_an_event_is_one_line(store: Store) -> None:
    with pytest.raises(ValueError, match="an event of run r1 is not one line"):
        await store.append([Record("r1", 1, b"one\ntwo")], entry())


@pytest.mark.parametrize("again", [1, 2, 3, 4])
async def test_no_record_is_written_over_wherever_it_stands(open_store: Open, again: int) -> None:
    """By whoever has written the run, and by another who has not."""
    store = await open_store("store")
    await store.append(records("r1", 1, 2, 3), entry())
    await store.append(records("r1", 4), None)
    for _ in range(2):
        with pytest.raises(WrongState):
            await store.append([Record("r1", again, b"other")], entry(turns=7))
        assert await store.read("r1") == records("r1", 1, 2, 3, 4)
        assert [found.turns for found in await everything(store)] == [0]
        await store.close()
        store = await open_store("store")


async def test_bodies_are_bytes_and_come_back_as_they_were(store: Store) -> None:
    bodies = [bytes(range(256)).replace(b"\n", b""), "Grüße, 世界 \0".encode(), b"", b"x" * 300_000]
    wanted = [Record("r1", seq, body) for seq, body in enumerate(bodies, 1)]

    await store.append(wanted, entry())

    assert await store.read("r1") == wanted


async def test_a_record_that_is_taken_is_refused_and_nothing_of_that_append_is_written(store: Store) -> None:
    await store.append(records("r1", 1, 2), entry(turns=1))

    with pytest.raises(WrongState):
        await store.append([Record("r1", 2, b"other"), *records("r1", 3)], entry(turns=2))

    assert await store.read("r1") == records("r1", 1, 2)
    assert [found.turns for found in await everything(store)] == [1]


async def test_a_first_append_that_fails_leaves_no_run_behind(store: Store) -> None:
    with pytest.raises(WrongState):
        await store.append(records("r1", 1, 1), entry(), Key("k", "f"))

    assert await everything(store) == []
    assert await store.read("r1") == []
    assert await store.claimed("k") is None


async def test_records_of_a_run_that_is_not_in_the_index_are_refused(store: Store) -> None:
    with pytest.raises(WrongState):
        await store.append(records("r1", 1), None)

    assert await store.read("r1") == []


async def test_a_conflict_fails_its_own_append_and_none_that_goes_with_it(store: Store) -> None:
    await store.append(records("r0", 1), entry("r0"))
    names = [f"r{n}" for n in range(1, 20)]
    appends = [store.append(records(name, 1, 2), entry(name)) for name in names]

    *done, conflict = await asyncio.gather(*appends, store.append(records("r0", 1), None), return_exceptions=True)

    assert done == [None] * 19
    assert isinstance(conflict, WrongState)
    assert [await store.read(name) for name in names] == [records(name, 1, 2) for name in names]


async def test_of_two_writers_of_one_record_exactly_one_wins(store: Store) -> None:
    await store.append(records("r1", 1), entry())
    rivals = [Record("r1", 2, b"%d" % n) for n in range(8)]

    results = await asyncio.gather(*(store.append([rival], None) for rival in rivals), return_exceptions=True)

    winners = [rival for rival, result in zip(rivals, results, strict=True) if result is None]
    assert len(winners) == 1
    assert all(isinstance(result, WrongState) for result in results if result is not None)
    assert await store.read("r1", after=1) == winners


async def test_an_append_whose_caller_is_cancelled_is_all_in_or_all_out(store: Store) -> None:
    names = [f"r{n}" for n in range(40)]
    tasks = [asyncio.ensure_future(store.append(records(name, 1, 2, 3), entry(name))) for name in names]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.append(records("last", 1), entry("last"))

    indexed = {found.id for found in await everything(store)}
    for index, name in enumerate(names):
        found = await store.read(name)
        assert found in ([], records(name, 1, 2, 3))
        assert (name in indexed) == bool(found)
        assert index % 2 == 0 or found


Plan = Sequence[tuple[int, int]]
"""Appends in order: to which run, and how many records."""


@settings(max_examples=25)
@given(plan=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=40))
async def test_runs_that_append_at_the_same_time_each_keep_their_order(open_store: Open, plan: Plan) -> None:
    store = await open_store(f"plan{next(COUNTER)}")

    async def one_run(number: int) -> list[Record]:
        run_id, written = f"r{number}", list[Record]()
        for size in (size for run, size in plan if run == number):
            group = records(run_id, *range(len(written) + 1, len(written) + size + 1))
            await store.append(group, entry(run_id, turns=len(written) + size))
            written += group
        return written

    written = await asyncio.gather(*(one_run(number) for number in range(6)))

    assert [await store.read(f"r{number}") for number in range(6)] == written
    turns = {found.id: found.turns for found in await everything(store)}
    assert turns == {f"r{number}": len(each) for number, each in enumerate(written) if each}
    await store.close()


COUNTER = itertools.count()


# --- the index ------------------------------------------------------------------------------------------------------


async def test_an_index_row_comes_back_exactly(store: Store) -> None:
    wanted = entry(
        status=Status.INTERRUPTED,
        reason="approval",
        turns=2,
        tool_runs=1,
        cost_usd=Decimal("0.100000000000000000000000001"),
        unconfirmed_cost_usd=Decimal("0.000684"),
        created_at=NOON,
        updated_at=NOON + timedelta(microseconds=1),
        parent=Parent("r0", "r0:1:0"),
    )

    await store.append(records("r1", 1), wanted)

    assert await everything(store) == [wanted]


async def test_times_of_other_zones_are_the_same_instants(store: Store) -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5, minutes=45)))

    await store.append(records("r1", 1), entry(created_at=elsewhere))

    [found] = await everything(store)
    assert found.created_at == NOON
    assert found.created_at.utcoffset() == timedelta()


async def test_a_later_entry_replaces_the_row_and_an_append_without_one_leaves_it(store: Store) -> None:
    await store.append(records("r1", 1), entry())
    stopped = entry(status=Status.COMPLETED, turns=3, cost_usd=Decimal("0.00247"), updated_at=NOON + timedelta(hours=1))
    await store.append(records("r1", 2), stopped)
    await store.append(records("r1", 3), None)

    assert await everything(store) == [stopped]


def many_runs() -> list[Entry]:
    """250 runs; some begin at the same instant, so that only the id orders them."""
    statuses = itertools.cycle([Status.COMPLETED, Status.RUNNING, Status.FAILED, Status.INTERRUPTED, Status.COMPLETED])
    return [
        entry(
            f"r{n:03}",
            status=next(statuses),
            agent=f"agent{n % 3}",
            created_at=NOON + timedelta(seconds=n // 4),
            task=f"Which of files-{n % 10} mentions ÄRGER?",
        )
        for n in range(250)
    ]


@pytest.fixture
async def full(store: Store) -> Store:
    await asyncio.gather(*(store.append(records(each.id, 1), each) for each in many_runs()))
    return store


@pytest.mark.parametrize("limit", [1, 7, 100, 250, 1000])
async def test_pages_show_every_run_once_and_newest_first(full: Store, limit: int) -> None:
    assert await pages(full, limit=limit) == many_runs()[::-1]


@pytest.mark.parametrize("status", [None, Status.COMPLETED, Status.RUNNING, Status.BUDGET_EXCEEDED])
@pytest.mark.parametrize("agent", [None, "agent1", "nobody"])
async def test_filters_narrow_every_page(full: Store, status: Status | None, agent: str | None) -> None:
    found = await pages(full, limit=11, status=status, agent=agent)

    wanted = (run for run in many_runs()[::-1] if status in (None, run.status) and agent in (None, run.agent))
    assert found == list(wanted)


SEARCHES = {
    "": lambda run: True,
    "  mentions  WHICH ": lambda run: True,
    "ärger": lambda run: True,
    "mentions Files-7": lambda run: "files-7" in run.task,
    "agent1 files-4 FAILED": lambda run: run.agent == "agent1" and run.status is Status.FAILED and "-4" in run.task,
    "r017": lambda run: run.id == "r017",
    "nowhere": lambda run: False,
}


@pytest.mark.parametrize("status", [None, Status.RUNNING, Status.FAILED])
@pytest.mark.parametrize("text", SEARCHES)
async def test_a_search_finds_runs_by_all_of_its_words(full: Store, text: str, status: Status | None) -> None:
    found = await pages(full, limit=4, text=text, status=status)

    wanted = [run for run in many_runs()[::-1] if SEARCHES[text](run) and status in (None, run.status)]
    assert found == wanted


async def test_a_page_of_a_search_looks_through_so_many_runs_and_the_next_one_goes_on(
    full: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.adapters.store.sqlite.SEARCHED_MAX", 100)

    first, cursor = await full.page(status=None, agent=None, text="r017", before=None, limit=10)

    assert first == []
    assert cursor is not None
    assert [run.id for run in await pages(full, limit=10, text="r017")] == ["r017"]


async def test_runs_that_begin_between_two_pages_do_not_shift_the_second(full: Store) -> None:
    first, cursor = await full.page(status=None, agent=None, before=None, limit=10)
    await full.append(records("new", 1), entry("new", created_at=NOON + timedelta(days=1)))

    second, _ = await full.page(status=None, agent=None, before=cursor, limit=10)

    assert first + second == many_runs()[::-1][:20]


@pytest.mark.parametrize(
    "cursor", ["", "nonsense", "!!!!", "W10", "WzEsMl0", "WyJhIiwiYiJd", "é", "Wzk5OTk5OTk5OTk5OTk5OTk5OTk5LCJhIl0"]
)
async def test_a_cursor_that_is_not_ours_is_refused_by_name(store: Store, cursor: str) -> None:
    with pytest.raises(BadRequest) as refused:
        await store.page(status=None, agent=None, before=cursor, limit=10)

    assert refused.value.param == "cursor"


async def test_running_runs_are_listed_oldest_first_and_leave_the_list_when_they_stop(full: Store) -> None:
    running = [run.id for run in many_runs() if run.status is Status.RUNNING]
    assert await full.running() == running

    await full.append(records(running[0], 2), entry(running[0], status=Status.COMPLETED))

    assert await full.running() == running[1:]


async def test_the_row_of_a_run_follows_it_through_stops_and_going_on(store: Store) -> None:
    """Whatever of a row an adapter writes: each status, with what belongs to it, as it was given last."""
    stopped = {"status": Status.INTERRUPTED, "reason": "approval"}
    story = [{}, {}, {}, stopped, {}, {}, {"status": Status.COMPLETED}]

    for number, fields in enumerate(story):
        now = NOON + timedelta(seconds=number)
        figures = {"turns": number, "tool_runs": 2 * number, "cost_usd": Decimal(number) / 1000, "updated_at": now}
        expected = entry(**figures, unconfirmed_cost_usd=Decimal(number) / 100, delegated_cost_usd=Decimal(1), **fields)
        await store.append(records("r1", number + 1), expected)

        assert await everything(store) == [expected]
        assert await store.running() == (["r1"] if expected.status is Status.RUNNING else [])


async def test_a_stop_that_nobody_waited_for_is_not_forgotten_when_the_run_goes_on(store: Store) -> None:
    await store.append(records("r1", 1), entry())
    left = asyncio.create_task(store.append(records("r1", 2), entry(status=Status.INTERRUPTED, reason="cancelled")))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)

    await store.append(records("r1", 3), entry(turns=1))

    assert await everything(store) == [entry(turns=1)]


# --- answers --------------------------------------------------------------------------------------------------------


async def test_a_key_is_claimed_with_the_first_record_and_keeps_the_answer(store: Store) -> None:
    assert await store.claimed("k") is None

    await store.append(records("r1", 1), entry(), Key("k", "f1"))
    assert await store.claimed("k") == Claim("f1", "r1")

    await store.keep("k", 201, b'{"id":"r1"}')
    assert await store.claimed("k") == Claim("f1", "r1", 201, b'{"id":"r1"}')


async def test_a_second_claim_of_a_key_is_refused_and_writes_nothing(store: Store) -> None:
    await store.append(records("r1", 1), entry("r1"), Key("k", "f1"))

    with pytest.raises(WrongState):
        await store.append(records("r2", 1), entry("r2"), Key("k", "f1"))

    assert await store.read("r2") == []
    assert [found.id for found in await everything(store)] == ["r1"]
    assert await store.claimed("k") == Claim("f1", "r1")


async def test_of_many_claims_of_one_key_at_the_same_time_exactly_one_starts_a_run(store: Store) -> None:
    claims = [store.append(records(f"r{n}", 1), entry(f"r{n}"), Key("k", f"f{n}")) for n in range(12)]

    results = await asyncio.gather(*claims, return_exceptions=True)

    [winner] = [n for n, result in enumerate(results) if result is None]
    assert await store.claimed("k") == Claim(f"f{winner}", f"r{winner}")
    assert [found.id for found in await everything(store)] == [f"r{winner}"]


async def test_the_first_answer_kept_stands(store: Store) -> None:
    await store.append(records("r1", 1), entry(), Key("k", "f1"))
    await store.keep("k", 201, b"")
    await store.keep("k", 503, b"later")

    assert await store.claimed("k") == Claim("f1", "r1", 201, b"")


async def test_an_answer_is_kept_only_under_a_claimed_key(store: Store) -> None:
    with pytest.raises(WrongState):
        await store.keep("k", 201, b"{}")


# --- its life -------------------------------------------------------------------------------------------------------


async def test_everything_is_there_after_reopening(open_store: Open) -> None:
    store = await open_store("again")
    await store.append(records("r1", 1, 2), entry(), Key("k", "f"))
    await store.keep("k", 201, b"{}")
    await store.close()

    again = await open_store("again")

    assert await again.read("r1") == records("r1", 1, 2)
    assert await everything(again) == [entry()]
    assert await again.running() == ["r1"]
    assert await again.claimed("k") == Claim("f", "r1", 201, b"{}")
    await again.append(records("r1", 3), None)


async def test_closing_finishes_the_appends_that_were_asked_for(open_store: Open) -> None:
    store = await open_store("closing")
    appends = [asyncio.ensure_future(store.append(records(f"r{n}", 1), entry(f"r{n}"))) for n in range(50)]
    await asyncio.sleep(0)

    await store.close()

    assert await asyncio.gather(*appends) == [None] * 50
    assert len(await everything(await open_store("closing"))) == 50


async def test_a_closed_store_says_so_and_closing_twice_is_no_error(open_store: Open) -> None:
    store = await open_store("closed")
    await store.close()
    await store.close()

    with pytest.raises(Unavailable):
        await store.append(records("r1", 1), entry())
    with pytest.raises(Unavailable):
        await store.read("r1")
