"""SQL from files: named statements, and numbered migrations. Knows nothing of runs."""

from __future__ import annotations

import re
import sqlite3
from importlib.resources import files
from importlib.resources.abc import Traversable

from msgspec import Struct

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Migration(Struct, frozen=True):
    """One step of the schema. A file that has been released is never edited: the next number mends it."""

    version: int
    sql: str


def sql_folder() -> Traversable:
    return files("gateway.adapters.store") / "sql"


def named_statements(file: Traversable) -> dict[str, str]:
    """The statements of a file by their names: each begins with a line `-- name: …`."""
    _, *parts = _NAME.split(file.read_text("utf-8"))
    names, bodies = parts[::2], parts[1::2]
    if len(set(names)) < len(names):
        raise ValueError(f"{file.name} uses a name twice")
    return {name: body.strip() for name, body in zip(names, bodies, strict=True)}


def numbered_migrations(folder: Traversable) -> list[Migration]:
    """The migrations of a folder in order. Their numbers are 1, 2, 3… without a gap."""
    found = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    steps = sorted((Migration(int(file.name[:4]), file.read_text("utf-8")) for file in found), key=lambda m: m.version)
    if [step.version for step in steps] != list(range(1, len(steps) + 1)):
        raise ValueError(f"the migrations are not numbered without gaps: {sorted(file.name for file in found)}")
    return steps


def schema_version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def migrate(connection: sqlite3.Connection, steps: list[Migration]) -> None:
    """Bring a database up to date, a transaction a step, so that a step that fails leaves the one before it."""
    done = schema_version(connection)
    for step in steps[done:]:
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE;\n{step.sql}\nPRAGMA user_version = {step.version};\nCOMMIT;",
            )
        except sqlite3.Error:
            if connection.in_transaction:
                connection.rollback()
            raise
