"""A store of which a part is still in its tail: who reads it, who moves it, and what is there after a death."""

from __future__ import annotations

import asyncio
import itertools
import logging
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from gateway.adapters.store import works
from gateway.adapters.store.ahead import appends_in, tail_of
from gateway.adapters.store.rows import Row
from gateway.adapters.store.sqlite import SqliteStore
from gateway.adapters.store.tail import Left, Tail, left_in
from gateway.core.errors import Unavailable, WrongState
from gateway.core.ports import Entry, Key, Record
from gateway.core.run import Status
from tests.adapters.store.test_sqlite import entry

COUNTER = itertools.count()


async def alone(store: SqliteStore, run_id: str, *seqs: int, turns: int = 0, status: Status = Status.RUNNING) -> None:
    """An append that nobody shares a commit with."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await store.append(records(run_id, *seqs), replace(entry(run_id, turns), status=status))


def records(run_id: str, *seqs: int) -> list[Record]:
    return [Record(run_id, seq, b"%d" % seq) for seq in seqs]


def in_tail(path: Path) -> list[tuple[str, int]]:
    return [(append.events[0], append.events[1]) for append in appends_in(left_in(tail_of(path)))]


def in_database(path: Path) -> list[tuple[str, int, int]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute("SELECT run_id, seq, count FROM events ORDER BY run_id, seq").fetchall()


def copied(path: Path) -> Path:
    """The store's files as a death at this moment would leave them."""
    folder = path.parent / f"copy{next(COUNTER)}"
    folder.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        shutil.copy(file, folder)
    return folder / path.name


async def settled(store: SqliteStore, run_id: str) -> None:
    """As after a while: commits have nothing to gather, and the tail is moved."""
    await alone(store, run_id, 1)
    await store.running()


async def test_a_lone_append_goes_to_the_tail_and_is_moved_by_whoever_reads(store: SqliteStore, path: Path) -> None:
    await settled(store, "r1")
    await alone(store, "r1", 2, 3)
    await alone(store, "r2", 1)
    await alone(store, "r1", 4, turns=7)

    assert in_tail(path) == [("r1", 2), ("r2", 1), ("r1", 4)]
    assert in_database(path) == [("r1", 1, 1)]
    assert await store.read("r1") == records("r1", 1, 2, 3, 4)
    assert in_database(path) == [("r1", 1, 1), ("r1", 2, 3), ("r2", 1, 1)]
    assert [found.turns for found in (await store.page(status=None, agent=None, before=None, limit=9))[0]] == [0, 7]


async def test_a_tail_is_moved_after_a_while_by_itself(store: SqliteStore, path: Path) -> None:
    await settled(store, "r1")
    await alone(store, "r1", 2)
    await asyncio.sleep(0.3)

    assert in_database(path) == [("r1", 1, 1), ("r1", 2, 1)]


async def test_nothing_is_left_of_a_tail_when_the_store_is_closed(path: Path) -> None:
    async with await SqliteStore.open(path) as store:
        await settled(store, "r1")
        await alone(store, "r1", 2)
        assert tail_of(path).exists()

    assert not tail_of(path).exists()
    assert in_database(path) == [("r1", 1, 1), ("r1", 2, 1)]


@pytest.mark.parametrize("durability", ["process", "machine"])
async def test_what_a_dead_process_left_in_the_tail_is_there_when_the_store_is_opened(
    store: SqliteStore, path: Path, durability: Literal["process", "machine"]
) -> None:
    await settled(store, "r1")
    await alone(store, "r1", 2, 3)
    await alone(store, "r2", 1)
    await alone(store, "r2", 2, turns=3, status=Status.COMPLETED)

    async with await SqliteStore.open(copied(path), durability=durability) as next_one:
        assert await next_one.running() == ["r1"]
        assert await next_one.read("r1") == records("r1", 1, 2, 3)
        assert await next_one.read("r2") == records("r2", 1, 2)


async def test_a_second_beginning_of_a_run_that_is_in_the_tail_is_refused(store: SqliteStore, path: Path) -> None:
    await settled(store, "r1")
    await alone(store, "r2", 1)
    await alone(store, "r2", 2, status=Status.COMPLETED)
    assert in_tail(path) == [("r2", 1), ("r2", 2)]

    with pytest.raises(WrongState, match="record 1 of run r2 is taken"):
        await alone(store, "r2", 1)
    assert await store.read("r2") == records("r2", 1, 2)


async def test_a_run_that_stopped_in_the_tail_goes_on_behind_it(store: SqliteStore, path: Path) -> None:
    await settled(store, "r1")
    await alone(store, "r1", 2, status=Status.INTERRUPTED)
    assert in_tail(path) == [("r1", 2)]
    with pytest.raises(WrongState, match="record 2 of run r1 is taken"):
        await alone(store, "r1", 2)
    await alone(store, "r1", 3)

    assert await store.running() == ["r1"]
    assert await store.read("r1") == records("r1", 1, 2, 3)


async def test_a_key_is_claimed_in_the_database_alone(store: SqliteStore, path: Path) -> None:
    await settled(store, "r1")
    await alone(store, "r1", 2)
    await store.append(records("r2", 1), entry("r2"), Key("key", "f"))

    assert in_database(path) == [("r1", 1, 1), ("r1", 2, 1), ("r2", 1, 1)]
    with pytest.raises(WrongState, match="claimed"):
        await store.append(records("r3", 1), entry("r3"), Key("key", "f"))


async def test_while_another_program_writes_a_lone_append_waits_for_nothing_and_who_reads_waits_for_the_move(
    store: SqliteStore, path: Path
) -> None:
    await settled(store, "r1")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        await asyncio.wait_for(alone(store, "r1", 2), 1)
        reading = asyncio.ensure_future(store.read("r1"))
        await asyncio.sleep(0.3)
        assert not reading.done()
        other.execute("ROLLBACK")

        assert await reading == records("r1", 1, 2)


async def test_what_cannot_be_moved_stays_in_the_tail_and_everybody_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with await SqliteStore.open(path) as store:
        await settled(store, "r1")
        await alone(store, "r1", 2)
        with monkeypatch.context() as broken:
            refuse_commits(broken)
            with pytest.raises(Unavailable, match="disk"):
                await store.read("r1")
            with pytest.raises(Unavailable, match="disk"):
                await alone(store, "r1", 3)
            assert in_tail(path) == [("r1", 2)]
        assert [record.levelno for record in caplog.records] == [logging.ERROR]

        await alone(store, "r1", 3)
        assert await store.read("r1") == records("r1", 1, 2, 3)


async def test_what_could_not_be_moved_before_the_end_is_moved_when_the_store_is_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        async with await SqliteStore.open(path) as store:
            await settled(store, "r1")
            await alone(store, "r1", 2)
            refuse_commits(broken)
    assert in_tail(path) == [("r1", 2)]

    async with await SqliteStore.open(path) as store:
        assert await store.read("r1") == records("r1", 1, 2)


def refuse_commits(monkeypatch: pytest.MonkeyPatch, *, times: int | None = None) -> None:
    """For so many commits, or all."""
    last_said = works.last_said
    refusals = itertools.count() if times is None else iter(range(2 * times))  # all works at once, and then the first

    def refuse(appends: list[works.Append]) -> tuple[list[Row], list[Row]]:
        if next(refusals, None) is None:
            return last_said(appends)
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorname = "SQLITE_FULL"
        raise error

    monkeypatch.setattr(works, "last_said", refuse)


@pytest.mark.parametrize("older_by", ["a move", "a commit", "all that there was"])
async def test_a_tail_that_goes_on_from_a_newer_database_is_kept_and_not_used(
    store: SqliteStore, path: Path, older_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A backup put in the place of the database; or two files of which the machine's death took more from one."""
    await settled(store, "r1")
    older = copied(path)
    if older_by == "a commit":
        await store.append(records("r2", 1), entry("r2"), Key("key", "f"))
    else:
        await alone(store, "r1", 2)
        await store.running()
    await alone(store, "r1", 3 if older_by != "a commit" else 2)
    await alone(store, "r3", 1, turns=9)
    if older_by == "all that there was":
        for file in older.parent.iterdir():
            file.unlink()
    shutil.copy(tail_of(path), tail_of(older))
    left = left_in(tail_of(path))
    assert left is not None

    async with await SqliteStore.open(older) as next_one:
        expected = [] if older_by == "all that there was" else records("r1", 1)
        assert await next_one.read("r1") == expected
        assert await next_one.read("r3") == []
    kept = older.with_name(f"{tail_of(older).name}.{left.mark}")
    assert left_in(kept) == left
    assert [record.getMessage() for record in caplog.records] == [
        f"store.db.tail does not belong to the database beside it, and is kept as {kept.name}: "
        "it goes on from a newer database"
    ]


async def test_what_is_moved_already_is_not_taken_in_again(store: SqliteStore, path: Path) -> None:
    await settled(store, "r1")
    await alone(store, "r2", 1)
    await alone(store, "r2", 2)
    await store.running()
    left = copied(path)
    assert in_tail(left) == [("r2", 1), ("r2", 2)]

    async with await SqliteStore.open(left) as next_one:
        assert await next_one.read("r2") == records("r2", 1, 2)
    assert sorted(file.name for file in left.parent.iterdir()) == ["store.db", "store.db.lock"]


async def test_a_tail_that_was_taken_in_by_one_that_died_before_it_went_is_not_taken_in_again(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await settled(store, "r1")
    await alone(store, "r1", 2)
    left = copied(path)
    with monkeypatch.context() as dying:
        dying.setattr(Path, "unlink", None)
        with pytest.raises(TypeError):
            await SqliteStore.open(left)
    assert in_tail(left) == [("r1", 2)]

    async with await SqliteStore.open(left) as next_one:
        assert await next_one.read("r1") == records("r1", 1, 2)
    assert caplog.records == []


async def test_behind_what_is_new_in_a_tail_nothing_of_before_is_read(store: SqliteStore, path: Path) -> None:
    await settled(store, "r1")
    for seq in range(2, 9):
        await alone(store, "r1", seq)
    await store.running()
    await alone(store, "r1", 9)

    assert in_tail(path) == [("r1", 9)]
    assert b"r1" in tail_of(path).read_bytes()[200:]


async def test_a_tail_of_another_kind_is_refused_and_left_alone(path: Path) -> None:
    tail_of(path).write_bytes(b"AgSC tail 2\n and so on")

    with pytest.raises(Unavailable, match=r"store\.db cannot be used: store\.db\.tail is not of this version\.$"):
        await SqliteStore.open(path)
    assert tail_of(path).read_bytes() == b"AgSC tail 2\n and so on"


async def test_whole_payloads_that_are_no_appends_are_refused_and_left_alone(path: Path) -> None:
    tail = Tail(tail_of(path), 0)
    tail.begin(0)
    tail.append(b"\x93\x01\x02\x03")
    tail.close(needed=True)

    with pytest.raises(Unavailable, match=r"store\.db cannot be used: "):
        await SqliteStore.open(path)
    assert left_in(tail_of(path)) == Left(0, [b"\x93\x01\x02\x03"])


# --- any history ----------------------------------------------------------------------------------------------------


class Step(Struct, frozen=True):
    """Appends of some runs at once, and how many records each; which of them stop. Then, perhaps, something more."""

    runs: dict[int, int]
    stopping: frozenset[int]
    then: Literal["nothing", "read", "crash", "crash before the tail is begun anew", "lock"]


Steps = st.lists(
    st.builds(
        Step,
        st.dictionaries(st.integers(0, 3), st.integers(1, 3), min_size=1, max_size=3)
        | st.dictionaries(st.integers(0, 3), st.integers(1, 3), min_size=1, max_size=1),
        st.frozensets(st.integers(0, 3), max_size=2),
        st.sampled_from(
            ["nothing", "nothing", "nothing", "read", "crash", "crash before the tail is begun anew", "lock"]
        ),
    ),
    max_size=20,
)


@settings(max_examples=60)
@given(steps=Steps)
async def test_whatever_the_order_of_appends_reads_and_deaths_what_was_acknowledged_is_there(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    folder = tmp_path_factory.mktemp("history")
    path, store = folder / "store.db", await SqliteStore.open(folder / "store.db")
    seqs: dict[str, int] = {}
    said: dict[str, Entry] = {}
    try:
        for step in steps:
            async with locked(path, step.then == "lock"):
                await asyncio.gather(*(one_append(store, seqs, said, number, step) for number in step.runs))
            if step.then == "read":
                await holds(store, seqs, said)
            elif step.then.startswith("crash"):
                left = left_by(path, store, moved=step.then == "crash before the tail is begun anew")
                await store.close()
                path, store = left, await SqliteStore.open(left)
                await holds(store, seqs, said)
        await holds(store, seqs, said)
    finally:
        await store.close()


async def one_append(store: SqliteStore, seqs: dict[str, int], said: dict[str, Entry], number: int, step: Step) -> None:
    run_id, before = f"r{number}", seqs.get(f"r{number}", 0)
    status = Status.COMPLETED if number in step.stopping else Status.RUNNING
    new = replace(entry(run_id, turns=before), status=status)
    quiet = before > 0 and status is said[run_id].status
    last = before + step.runs[number]
    await store.append(records(run_id, *range(before + 1, last + 1)), None if quiet and number % 2 else new)
    seqs[run_id] = last
    said[run_id] = said[run_id] if quiet and number % 2 else new


async def holds(store: SqliteStore, seqs: dict[str, int], said: dict[str, Entry]) -> None:
    for run_id, last in seqs.items():
        assert await store.read(run_id) == records(run_id, *range(1, last + 1))
    entries, _ = await store.page(status=None, agent=None, before=None, limit=100)
    assert {found.id: found for found in entries} == said


@asynccontextmanager
async def locked(path: Path, is_locked: bool) -> AsyncIterator[None]:
    """Another program writes, for a moment."""
    if not is_locked:
        yield
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        asyncio.get_running_loop().call_later(0.005, other.execute, "ROLLBACK")
        yield
        await asyncio.sleep(0.006)


def left_by(path: Path, store: SqliteStore, *, moved: bool) -> Path:
    """What a death leaves: at this moment, or in the middle of a commit, between the database's end of it and the
    tail's."""
    if not moved:
        return copied(path)
    tail = tail_of(path).read_bytes()
    store._writer._move()
    left = copied(path)
    tail_of(left).write_bytes(tail)
    return left
