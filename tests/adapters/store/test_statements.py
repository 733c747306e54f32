"""SQL files: names, numbers, and migrations that fail half-way."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.adapters.store.statements import (
    Migration,
    migrate,
    named_statements,
    numbered_migrations,
    schema_version,
    sql_folder,
)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


def test_each_statement_stands_under_its_name(tmp_path: Path) -> None:
    file = tmp_path / "queries.sql"
    file.write_text("-- about the file\n\n-- name: one\nSELECT 1;\n\n-- name: two\n-- why\nSELECT\n  2;\n")

    assert named_statements(file) == {"one": "SELECT 1;", "two": "-- why\nSELECT\n  2;"}


def test_a_name_used_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "queries.sql"
    file.write_text("-- name: one\nSELECT 1;\n-- name: one\nSELECT 2;\n")

    with pytest.raises(ValueError, match="uses a name twice"):
        named_statements(file)


def test_a_gap_in_the_numbers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0001_first.sql").write_text("SELECT 1;")
    (tmp_path / "0003_third.sql").write_text("SELECT 3;")

    with pytest.raises(ValueError, match="without gaps"):
        numbered_migrations(tmp_path)


def test_migrating_again_does_nothing(connection: sqlite3.Connection) -> None:
    steps = [Migration(1, "CREATE TABLE a (x);"), Migration(2, "CREATE TABLE b (x);")]
    migrate(connection, steps[:1])
    migrate(connection, steps)
    migrate(connection, steps)

    assert schema_version(connection) == 2


def test_a_migration_that_fails_leaves_what_the_one_before_it_left(connection: sqlite3.Connection) -> None:
    steps = [Migration(1, "CREATE TABLE a (x);"), Migration(2, "CREATE TABLE b (x); INSERT INTO nowhere VALUES (1);")]

    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(connection, steps)

    assert schema_version(connection) == 1
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("a",)]


PAGES = ["page", *(f"page_of_{by}" for by in ("status", "running", "agent", "agent_and_status", "agent_and_running"))]


@pytest.mark.parametrize("query", [*PAGES, "running"])
def test_no_list_scans_or_sorts_the_runs(connection: sqlite3.Connection, query: str) -> None:
    migrate(connection, numbered_migrations(sql_folder() / "migrations"))
    statement = named_statements(sql_folder() / "queries.sql")[query]
    values = {"created_at": 0, "id": "", "status": "running", "agent": "a", "limit": 10}

    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]

    assert len(plan) == 1
    assert "USING" in plan[0]
    assert "INDEX runs_" in plan[0]
