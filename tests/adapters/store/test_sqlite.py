"""What only SQLite promises: one gateway a file, what is left after kill -9, and commits that runs share."""

from __future__ import annotations

import asyncio
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.adapters.store.opening import Durability, open_files
from gateway.adapters.store.sqlite import SqliteStore
from gateway.adapters.store.statements import migrate, named_statements, numbered_migrations, sql_folder
from gateway.adapters.store.transactions import Outcomes, Transactions
from gateway.adapters.store.works import Mark
from gateway.core.errors import Unavailable, WrongState
from gateway.core.ports import Claim, Entry, Key, Record
from gateway.core.run import Status

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


def entry(run_id: str, turns: int = 0) -> Entry:
    return Entry(
        id=run_id,
        agent="files",
        model="plan",
        status=Status.RUNNING,
        reason=None,
        turns=turns,
        tool_runs=0,
        cost_usd=Decimal(0),
        unconfirmed_cost_usd=Decimal(0),
        created_at=NOON,
        updated_at=NOON,
    )


# --- the death of the process ---------------------------------------------------------------------------------------

APPENDS_FOR_EVER = """
import asyncio, itertools, sys
from decimal import Decimal
from datetime import UTC, datetime
from gateway.adapters.store.sqlite import SqliteStore
from gateway.core.ports import Entry, Record
from gateway.core.run import Status

async def one_run(store, name):
    for turn in itertools.count(1):
        await asyncio.sleep(0)
        group = [Record(name, seq, b"%d" % seq * 50) for seq in range(turn * 3 - 2, turn * 3 + 1)]
        row = Entry(id=name, agent="a", model="m", status=Status.RUNNING, reason=None, turns=turn, tool_runs=0,
            cost_usd=Decimal(turn), unconfirmed_cost_usd=Decimal(0), created_at=datetime.now(UTC),
            updated_at=datetime.now(UTC))
        await store.append(group, row)
        print(name, turn, flush=True)

async def main():
    store = await SqliteStore.open(sys.argv[1])
    await asyncio.gather(*(one_run(store, f"r{n}") for n in range(int(sys.argv[2]))))

asyncio.run(main())
"""


@contextmanager
def appending(path: Path, runs: int = 8) -> Iterator[subprocess.Popen[str]]:
    """Another process that appends for ever, three records at a time, and says which appends were acknowledged."""
    command = [sys.executable, "-c", APPENDS_FOR_EVER, path, str(runs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("runs", [1, 8])
@pytest.mark.parametrize("kill_after", [1, 50, 1500])
async def test_after_kill_9_every_acknowledged_append_is_there_and_nothing_is_torn(
    path: Path, kill_after: int, runs: int
) -> None:
    with appending(path, runs) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(kill_after)]
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.read().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]  # it may have died in the middle of one
    acknowledged = {name: int(turn) for name, turn in map(str.split, whole)}

    async with await SqliteStore.open(path) as store:
        entries, _ = await store.page(status=None, agent=None, before=None, limit=100)
        for found in entries:
            records = await store.read(found.id)
            assert records == [Record(found.id, seq, b"%d" % seq * 50) for seq in range(1, found.turns * 3 + 1)]
            assert found.turns in (acknowledged.get(found.id, 0), acknowledged.get(found.id, 0) + 1)
        assert set(acknowledged) <= {found.id for found in entries}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# --- one gateway a file ---------------------------------------------------------------------------------------------


async def test_a_second_store_on_the_file_is_refused_by_name_until_the_first_is_closed(path: Path) -> None:
    async with await SqliteStore.open(path):
        words = r"store\.db is in use: another gateway \(process \d+\) uses it; choose another with --store\.$"
        with pytest.raises(Unavailable, match=words):
            await SqliteStore.open(path)

    await (await SqliteStore.open(path)).close()


async def test_another_process_holds_the_file_until_it_dies(path: Path) -> None:
    with appending(path) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(Unavailable, match=f"process {child.pid}"):
            await SqliteStore.open(path)

    await (await SqliteStore.open(path)).close()


async def test_a_link_to_the_file_is_the_same_file(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(path)
    async with await SqliteStore.open(path):
        with pytest.raises(Unavailable, match="another gateway"):
            await SqliteStore.open(tmp_path / "link.db")


# --- commits --------------------------------------------------------------------------------------------------------


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many works there were in each transaction."""
    sizes: list[int] = []
    commit = Transactions.commit

    def noting(transactions: Transactions[Any], works: Sequence[Any], sure: Sequence[Any] = ()) -> Outcomes:
        sizes.append(sum(not isinstance(work, Mark) for work in (*sure, *works)))
        return commit(transactions, works, sure)

    monkeypatch.setattr(Transactions, "commit", noting)
    return sizes


@pytest.mark.parametrize("durability", ["process", "machine"])
async def test_appends_of_concurrent_runs_share_commits(path: Path, durability: Durability, commits: list[int]) -> None:
    async with await SqliteStore.open(path, durability=durability) as store:
        await asyncio.gather(*(store.append([Record(f"r{n}", 1, b"x")], entry(f"r{n}")) for n in range(200)))
        await store.running()

        assert sum(commits) == 200
        assert len(commits) <= 20


async def test_appends_need_no_commit_until_somebody_looks(store: SqliteStore, commits: list[int]) -> None:
    for seq in range(1, 6):
        await store.append([Record("r1", seq, b"x")], entry("r1"))
    assert commits == [1]  # of the first that is written at all

    await store.running()
    assert commits == [1, 4]


async def test_appends_with_keys_of_concurrent_runs_share_commits(store: SqliteStore, commits: list[int]) -> None:
    await asyncio.gather(
        *(store.append([Record(f"r{n}", 1, b"x")], entry(f"r{n}"), Key(f"k{n}", "f")) for n in range(200))
    )

    assert sum(commits) == 200
    assert len(commits) <= 20


async def test_a_lone_append_is_committed_at_once_where_it_waits_for_the_disk(path: Path, commits: list[int]) -> None:
    async with await SqliteStore.open(path, durability="machine") as store:
        for seq in range(1, 6):
            await store.append([Record("r1", seq, b"x")], entry("r1"))

        assert commits == [1] * 5


async def test_more_appends_than_the_queue_holds_wait_and_none_is_lost(store: SqliteStore) -> None:
    await asyncio.gather(*(store.append([Record(f"r{n}", 1, b"x")], entry(f"r{n}")) for n in range(2500)))

    assert len(await store.running()) == 2500


async def test_what_an_append_writes_does_not_grow_with_the_run(store: SqliteStore, path: Path) -> None:
    log = path.with_name("store.db-wal")

    async def written_by_ten_appends(first: int) -> int:
        before = log.stat().st_size
        for seq in range(first, first + 10):
            await store.append([Record("r1", seq, b"x" * 100)], entry("r1", seq))
            await store.running()
        return log.stat().st_size - before

    short = await written_by_ten_appends(1)
    await store.append([Record("r1", seq, b"x" * 100) for seq in range(11, 2011)], None)
    await store.running()

    assert await written_by_ten_appends(2011) <= short * 2


async def test_a_list_does_not_wait_for_a_commit(store: SqliteStore, path: Path) -> None:
    await store.append([Record("r1", 1, b"x")], entry("r1"))
    await store.running()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        held_up = asyncio.ensure_future(store.append([Record("r2", 1, b"x")], entry("r2"), Key("key", "f")))

        assert await store.running() == ["r1"]
        assert not held_up.done()

        other.execute("ROLLBACK")
        await held_up


@pytest.mark.parametrize(("durability", "synchronous"), [("process", 1), ("machine", 2)])
def test_durability_is_how_far_a_commit_waits(path: Path, durability: Durability, synchronous: int) -> None:
    opened = open_files(path, durability, named_statements(sql_folder() / "queries.sql"))

    assert opened.writing.execute("PRAGMA synchronous").fetchone() == (synchronous,)
    assert opened.writing.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert (opened.tail is None) == (opened.checkpointing is None) == (durability == "machine")
    opened.reading.close()
    opened.writing.close()
    opened.lock.release(in_order=True)


# --- idempotency keys -----------------------------------------------------------------------------------------------


async def test_keys_older_than_thirty_days_are_forgotten_when_the_store_is_opened(path: Path) -> None:
    async with await SqliteStore.open(path) as store:
        for name in ("old", "young", "new"):
            await store.append([Record(name, 1, b"x")], entry(name), Key(name, "f"))
            await store.keep(name, 201, b"{}")
        grow_older(path, "old", days=30.01)
        grow_older(path, "young", days=29.99)
        assert await store.claimed("old") == Claim("f", "old", 201, b"{}")

    async with await SqliteStore.open(path) as store:
        assert await store.claimed("old") is None
        assert await store.claimed("young") == Claim("f", "young", 201, b"{}")
        assert await store.claimed("new") == Claim("f", "new", 201, b"{}")
        assert await store.read("old") == [Record("old", 1, b"x")]


def grow_older(path: Path, key: str, *, days: float) -> None:
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE keys SET created_at = created_at - ? WHERE key = ?", (int(days * 86_400_000_000), key))


# --- in words -------------------------------------------------------------------------------------------------------


@contextmanager
def disk_full_at(size: int) -> Iterator[None]:
    """No file of this process grows beyond the size: what a full disk looks like to SQLite."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def test_a_full_disk_is_said_in_words_and_the_store_goes_on_when_there_is_room(store: SqliteStore) -> None:
    await store.append([Record("r1", 1, b"small")], entry("r1"))
    with disk_full_at(1_000_000):
        appends = [store.append([Record(f"big{n}", 1, b"x" * 900_000)], entry(f"big{n}")) for n in range(4)]
        failures = await asyncio.gather(*appends, return_exceptions=True)

    assert any(isinstance(failure, Unavailable) and "full" in str(failure) for failure in failures)
    await store.append([Record("r1", 2, b"small")], entry("r1"))
    assert len(await store.read("r1")) == 2
    for n, failure in enumerate(failures):
        assert len(await store.read(f"big{n}")) == (failure is None)


async def test_a_directory_that_does_not_exist_is_created(tmp_path: Path) -> None:
    await (await SqliteStore.open(tmp_path / "a" / "b" / "store.db")).close()

    assert (tmp_path / "a" / "b" / "store.db").exists()


async def refusal(path: Path) -> str:
    with pytest.raises(Unavailable) as refused:
        await SqliteStore.open(path)
    sentence = str(refused.value)
    assert str(path) in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


async def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("notes of mine\n" * 100)

    assert "it is not a SQLite database" in await refusal(path)
    assert path.read_text() == "notes of mine\n" * 100


async def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("CREATE TABLE bookmarks (url)")
    before = path.read_bytes()

    assert "it is a database of another program" in await refusal(path)
    assert path.read_bytes() == before


async def test_a_database_of_a_newer_gateway_is_refused(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 999")

    assert "was written by a newer gateway (its schema is 999, this one knows" in await refusal(path)


async def test_runs_that_an_older_gateway_wrote_event_by_event_are_read_and_go_on(path: Path) -> None:
    """Up to its fourth schema a row held one event."""
    with closing(sqlite3.connect(path)) as older:
        older.execute("PRAGMA journal_mode = WAL")
        migrate(older, numbered_migrations(sql_folder() / "migrations")[:4])
        older.execute(
            "INSERT INTO runs (id, agent, model, status, turns, tool_runs, cost_usd, unconfirmed_cost_usd, created_at,"
            " updated_at) VALUES ('r1', 'files', 'plan', 'running', 1, 0, '0', '0', 0, 0)"
        )
        older.executemany("INSERT INTO events (run_id, seq, body) VALUES ('r1', ?, ?)", [(1, b"a"), (2, b"b")])
        older.commit()

    async with await SqliteStore.open(path) as store:
        with pytest.raises(WrongState, match="record 2 of run r1 is taken"):
            await store.append([Record("r1", 2, b"other")], None)
        await store.append([Record("r1", 3, b"c"), Record("r1", 4, b"d")], entry("r1", 2))

        assert await store.running() == ["r1"]
        assert [record.body for record in await store.read("r1")] == [b"a", b"b", b"c", b"d"]
        assert [record.seq for record in await store.read("r1", 1, 2)] == [2, 3]


async def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.db").mkdir()

    assert "cannot be used" in await refusal(tmp_path / "file" / "store.db")
    assert "it cannot be opened or created" in await refusal(tmp_path / "folder.db")


async def closed(path: Path, *, having_taken_up_all: bool = False) -> bool:
    """Opens and closes the store, and says how it was found."""
    async with await SqliteStore.open(path) as store:
        if having_taken_up_all:
            store.all_taken_up()
        return store.was_closed_in_order


def died(path: Path) -> None:
    opened = open_files(path, "process", named_statements(sql_folder() / "queries.sql"))
    opened.reading.close()
    opened.writing.close()
    opened.lock.release(in_order=False)  # as the kernel does when its holder dies


async def test_a_store_tells_whether_it_was_closed_in_good_order(path: Path) -> None:
    assert await closed(path)
    assert await closed(path)
    died(path)
    assert not await closed(path)
    assert not await closed(path, having_taken_up_all=True)  # the one before had taken up nothing
    assert await closed(path)


@pytest.mark.parametrize("in_order", [True, False])
async def test_a_store_that_cannot_be_opened_is_left_as_it_was_found(path: Path, in_order: bool) -> None:
    assert await closed(path)
    if not in_order:
        died(path)
    set_version(path, 99)
    with pytest.raises(Unavailable, match="newer gateway"):
        await SqliteStore.open(path)
    set_version(path, len(numbered_migrations(sql_folder() / "migrations")))

    assert await closed(path) is in_order


def set_version(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


async def test_a_refused_opener_keeps_no_lock(path: Path) -> None:
    path.write_text("not a database, " * 100)
    await refusal(path)
    path.unlink()

    await (await SqliteStore.open(path)).close()


async def test_a_damaged_file_is_said_in_words(path: Path) -> None:
    async with await SqliteStore.open(path) as store:
        for n in range(100):
            await store.append([Record(f"r{n}", 1, b"x" * 1000)], entry(f"r{n}"))
    content = bytearray(path.read_bytes())
    behind = len(content) // 2  # of what a gateway reads and writes to begin with
    content[behind:] = b"\xff" * (len(content) - behind)
    path.write_bytes(content)

    async with await SqliteStore.open(path) as store:
        with pytest.raises(Unavailable, match="it is damaged"):
            await asyncio.gather(*(store.read(f"r{n}") for n in range(100)))
