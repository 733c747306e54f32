"""Figures over many runs are read from an index that covers those that have stopped: only the few rows of runs that go
on are touched."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.adapters.store.sqlite import SqliteStore
from gateway.adapters.store.statements import named_statements, sql_folder
from gateway.adapters.store.sums import add_decimal_sum

VALUES = {"since": 0, "runs": 10, "limit": 10}


@pytest.mark.parametrize("statement", ["stats_groups", "stats_turns", "stats_costs", "stats_most_expensive"])
async def test_figures_come_from_the_covering_index(tmp_path: Path, statement: str) -> None:
    async with await SqliteStore.open(tmp_path / "runs.db"):
        pass
    sql = named_statements(sql_folder() / "queries.sql")[statement]

    with closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        add_decimal_sum(connection)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", VALUES)]

    reads = [step for step in plan if "runs" in step.split()]
    assert any("USING COVERING INDEX runs_stats" in step for step in reads), plan
    assert any("USING INDEX runs_running" in step for step in reads), plan
    assert not any(step.startswith("SCAN runs") for step in reads), plan
