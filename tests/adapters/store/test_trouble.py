"""A store in trouble: a disk that is full, files that others write, callers that do what they must not."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.adapters.store import writer
from gateway.adapters.store.sqlite import SqliteStore
from gateway.core.errors import Unavailable, WrongState
from gateway.core.ports import Record
from gateway.core.run import Status
from tests.adapters.store.test_moving import alone, copied, in_database, records, refuse_commits, settled
from tests.adapters.store.test_sqlite import entry

# --- a full disk ----------------------------------------------------------------------------------------------------

IN_A_SMALL_DISK = ("unshare", "--map-root-user", "--mount", "sh", "-c")
MOUNTED = 'mount -t tmpfs -o size=8m none "$0" && exec "$@"'

FILLS_THE_DISK = """
import asyncio, json, os, signal, sys
from pathlib import Path
from gateway.adapters.store.sqlite import SqliteStore
from gateway.core.errors import Unavailable
from gateway.core.ports import Record
from tests.adapters.store.test_sqlite import entry

store_path = Path(sys.argv[1]) / "store.db"
acknowledged, told = {f"r{n}": 0 for n in range(4)}, set()

async def one_run(store, name):
    while True:
        try:
            await store.append([Record(name, acknowledged[name] + 1, b"x" * 3000)], entry(name))
        except Unavailable as error:
            told.add(str(error))
            return
        acknowledged[name] += 1

async def lengths(store):
    return {name: len(await store.read(name)) for name in acknowledged}

async def fill():
    store = await SqliteStore.open(store_path)
    await asyncio.gather(*(one_run(store, name) for name in acknowledged))
    print(json.dumps([acknowledged, await lengths(store), sorted(told)]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

async def look():
    async with await SqliteStore.open(store_path) as store:
        print(json.dumps(await lengths(store)), flush=True)

if not (child := os.fork()):
    asyncio.run(fill())
os.waitpid(child, 0)
asyncio.run(look())
asyncio.run(look())
"""


DIES_BEFORE_THE_DISK_IS_FULL = """
import asyncio, json, os, signal, sys
from pathlib import Path
from gateway.adapters.store.sqlite import SqliteStore
from gateway.core.ports import Record
from tests.adapters.store.test_sqlite import entry

store_path = Path(sys.argv[1]) / "store.db"

async def begin():
    store = await SqliteStore.open(store_path)
    for seq in range(1, 201):
        await store.append([Record("r1", seq, b"x" * 3000)], entry("r1"))
    os.kill(os.getpid(), signal.SIGKILL)

def fill():
    with open(store_path.with_name("ballast"), "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)

async def look():
    async with await SqliteStore.open(store_path) as store:
        print(json.dumps(len(await store.read("r1"))))

if not (child := os.fork()):
    asyncio.run(begin())
os.waitpid(child, 0)
try:
    fill()
except OSError:
    asyncio.run(look())
"""


def can_mount() -> bool:
    return subprocess.run([*IN_A_SMALL_DISK, "mount -t tmpfs none /mnt"], capture_output=True).returncode == 0


def on_a_small_disk(folder: Path, program: str) -> list[Any]:
    """What the program prints."""
    command = [*IN_A_SMALL_DISK, MOUNTED, str(folder), sys.executable, "-c", program, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert not done.returncode, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


small_disk = pytest.mark.skipif(not can_mount(), reason="needs a small disk of its own: unshare and mount")


@small_disk
def test_on_a_disk_that_is_full_what_was_acknowledged_can_be_read_by_this_process_and_the_next(tmp_path: Path) -> None:
    (acknowledged, read, told), next_read, last_read = on_a_small_disk(tmp_path, FILLS_THE_DISK)

    assert min(acknowledged.values()) > 100
    assert read == next_read == last_read == acknowledged
    assert told == [f"The store {tmp_path / 'store.db'} cannot be used: the disk is full."]


@small_disk
def test_a_tail_that_a_dead_process_left_is_taken_in_though_the_disk_is_full_since(tmp_path: Path) -> None:
    assert on_a_small_disk(tmp_path, DIES_BEFORE_THE_DISK_IS_FULL) == [200]


async def test_what_is_in_the_tail_is_moved_with_the_room_that_the_tail_gives_back(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await settled(store, "r1")
    await alone(store, "r1", 2)
    refuse_commits(monkeypatch, times=1)

    assert await store.read("r1") == records("r1", 1, 2)


async def test_a_disk_that_was_full_is_not_blamed_for_a_lock(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await settled(store, "r1")
    await alone(store, "r1", 2)
    refuse_commits(monkeypatch, times=2)
    with pytest.raises(Unavailable, match="disk is full"):
        await store.read("r1")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        asyncio.get_running_loop().call_later(0.05, other.execute, "ROLLBACK")

        assert await store.read("r1") == records("r1", 1, 2)


# --- what nobody should do ------------------------------------------------------------------------------------------


async def test_of_two_appends_of_a_run_at_once_the_second_is_no_less_taken(store: SqliteStore) -> None:
    await asyncio.gather(*(store.append(records(name, 1), entry(name)) for name in ("r1", "r2", "r3")))
    await asyncio.gather(
        store.append(records("r1", 2), entry("r1")),
        store.append(records("r1", 3), replace(entry("r1"), status=Status.COMPLETED)),
    )

    with pytest.raises(WrongState, match="record 3 of run r1 is taken"):
        await store.append(records("r1", 3), entry("r1"))
    assert await store.read("r1") == records("r1", 1, 2, 3)


async def test_what_cannot_be_written_at_all_is_refused_and_what_was_gathered_with_it_is_written(
    store: SqliteStore,
) -> None:
    await settled(store, "r0")
    entries = [entry("r1"), replace(entry("r2"), task="half a \ud800"), entry("r3")]
    outcomes = await asyncio.gather(
        *(store.append(records(each.id, 1), each) for each in entries), return_exceptions=True
    )

    assert [type(outcome) for outcome in outcomes] == [type(None), UnicodeEncodeError, type(None)]
    assert sorted(await store.running()) == ["r0", "r1", "r3"]


async def test_what_is_durable_and_was_made_impossible_since_is_left_out_and_holds_nobody_up(
    store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody has written to the database beside the gateway."""
    await settled(store, "r1")
    await settled(store, "r2")
    await alone(store, "r1", 2)
    await alone(store, "r2", 2)
    foreign_row(path, "r1", 2)

    assert await store.read("r2") == records("r2", 1, 2)
    assert (await store.read("r1"))[1].body == b"foreign"
    assert [record.getMessage() for record in caplog.records] == [
        "what was durable cannot go to the database, and is left out of it: "
        "record 2 of run r1 is taken: somebody else drives this run."
    ]
    await alone(store, "r2", 3)
    assert await store.read("r2") == records("r2", 1, 2, 3)


async def test_a_tail_that_was_made_impossible_since_is_kept_and_holds_nobody_up(
    store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await settled(store, "r1")
    await alone(store, "r1", 2)
    left = copied(path)
    foreign_row(left, "r1", 2)

    async with await SqliteStore.open(left) as next_one:
        assert (await next_one.read("r1"))[1].body == b"foreign"
    (kept,) = left.parent.glob("store.db.tail.*")
    assert (
        caplog.records[0]
        .getMessage()
        .startswith(
            f"store.db.tail does not belong to the database beside it, and is kept as {kept.name}: record 2 of run r1"
        )
    )


def foreign_row(path: Path, run_id: str, seq: int) -> None:
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("INSERT INTO events (run_id, seq, count, body) VALUES (?, ?, 1, ?)", (run_id, seq, b"foreign"))


async def test_a_read_that_waits_while_the_store_is_closed_is_told(path: Path) -> None:
    store = await SqliteStore.open(path)
    await settled(store, "r1")
    await alone(store, "r1", 2)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        reading = asyncio.ensure_future(store.read("r1"))
        await asyncio.sleep(0.02)
        closing_it = asyncio.ensure_future(store.close())
        await asyncio.sleep(0.02)
        other.execute("ROLLBACK")
        await closing_it

    with pytest.raises(Unavailable, match="The store is closed"):
        await reading
    assert in_database(path) == [("r1", 1, 1), ("r1", 2, 1)]


async def test_few_large_events_are_moved_out_of_the_write_ahead_log_as_many_small_ones_are(
    store: SqliteStore, path: Path
) -> None:
    for seq in range(1, 121):
        await store.append([Record("r1", seq, b"x" * 2**20)], entry("r1"))

    await asyncio.sleep(0.2)
    assert path.stat().st_size > writer.CHECKPOINT_BYTES
