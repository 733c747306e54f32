"""Opens a store's file: its directory, its lock, its connections and its schema. Each refusal is one sentence."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from gateway.adapters.store.ahead import tail_of, take_in
from gateway.adapters.store.lock import FileLock
from gateway.adapters.store.statements import migrate, numbered_migrations, schema_version, sql_folder
from gateway.adapters.store.sums import add_decimal_sum
from gateway.adapters.store.tail import Tail
from gateway.core.errors import Unavailable

APPLICATION_ID = 0x41675343
BUSY_TIMEOUT_SECONDS = 5.0
OLDEST_SQLITE = (3, 37, 0)
KEYS_KEPT_SECONDS = 30 * 24 * 3600

Durability = Literal["process", "machine"]

WORDS = {
    "SQLITE_BUSY": "another program has locked it",
    "SQLITE_CANTOPEN": "it cannot be opened or created",
    "SQLITE_CORRUPT": "it is damaged",
    "SQLITE_FULL": "the disk is full",
    "SQLITE_IOERR": "the disk has failed or is full",
    "SQLITE_NOTADB": "it is not a SQLite database",
    "SQLITE_READONLY": "it may not be written",
}


class Opened(Struct, frozen=True):
    """What belongs to an open store. The last two where writes do not wait for the disk."""

    path: Path
    lock: FileLock
    writing: sqlite3.Connection
    reading: sqlite3.Connection
    checkpointing: sqlite3.Connection | None
    tail: Tail | None


def unavailable(path: Path, error: Exception) -> Unavailable:
    """An error of SQLite or of the file system, in words."""
    name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
    why = WORDS.get(name) or (error.strerror if isinstance(error, OSError) else None) or str(error)
    return Unavailable(f"The store {path} cannot be used: {why}.")


def open_files(name: Path | str, durability: Durability, sql: Mapping[str, str]) -> Opened:
    """Raises Unavailable, having closed whatever it had opened."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise Unavailable(f"SQLite {sqlite3.sqlite_version} is too old: the store needs 3.37 or later.")
    path = Path(os.path.realpath(name))  # two names of one file are one lock
    with contextlib.ExitStack() as undo:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = FileLock.take(path)
            undo.callback(lock.release, in_order=lock.was_left_in_order)
            writing = undo.enter_context(contextlib.closing(connect(str(path))))
            prepare(path, writing, durability, sql)
            mark = take_in(tail_of(path), writing, sql)
            reading = undo.enter_context(contextlib.closing(connect(f"{path.as_uri()}?mode=ro")))
            add_decimal_sum(reading)
            checkpointing = tail = None
            if durability == "process":
                checkpointing = undo.enter_context(contextlib.closing(connect(str(path))))
                tail = Tail(tail_of(path), mark)
        except (sqlite3.Error, OSError, ValueError, msgspec.DecodeError) as error:
            raise unavailable(path, error) from error
        undo.pop_all()
    return Opened(path, lock, writing, reading, checkpointing, tail)


def connect(database: str) -> sqlite3.Connection:
    """A connection without implicit transactions. Each is used by one thread, which is not the one that opens it."""
    return sqlite3.connect(
        database,
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        uri=database.startswith("file:"),
    )


def prepare(path: Path, connection: sqlite3.Connection, durability: Durability, sql: Mapping[str, str]) -> None:
    """Make sure that the file is ours to write, and up to date."""
    refuse_foreign(path, connection, sql)
    if connection.execute(sql["write_ahead"]).fetchone()[0] != "wal":
        raise Unavailable(f"The store {path} cannot be used: its file system does not support write-ahead logging.")
    connection.executescript(sql["prepare"])
    connection.executescript(sql[f"durable_{durability}"])
    migrate(connection, numbered_migrations(sql_folder() / "migrations"))
    forget_old_keys(connection, sql)


def forget_old_keys(connection: sqlite3.Connection, sql: Mapping[str, str]) -> None:
    """Idempotency keys that no client asks with any more, and the answers that they hold. A store is as good with
    them: a full disk or a damaged file is said to whoever needs what cannot be written or read."""
    oldest_us = time.time_ns() // 1000 - KEYS_KEPT_SECONDS * 1_000_000
    with contextlib.suppress(sqlite3.Error):
        connection.execute(sql["forget_keys"], (oldest_us,))


def refuse_foreign(path: Path, connection: sqlite3.Connection, sql: Mapping[str, str]) -> None:
    """Before anything is written: another program's database, or one of a newer gateway, stays as it is."""
    tables, application = (connection.execute(sql[name]).fetchone()[0] for name in ("tables", "application"))
    if tables and application != APPLICATION_ID:
        raise Unavailable(f"The store {path} cannot be used: it is a database of another program.")
    ours, theirs = len(numbered_migrations(sql_folder() / "migrations")), schema_version(connection)
    if theirs > ours:
        raise Unavailable(
            f"The store {path} was written by a newer gateway (its schema is {theirs}, this one knows {ours}): update."
        )
