"""Exact sums of money, which SQLite keeps as decimal text and could itself only add as binary fractions."""

from __future__ import annotations

import sqlite3
from decimal import Decimal

from gateway.core.pricing import ZERO


class DecimalSum:
    """The aggregate `decimal_sum`; its result is decimal text again."""

    def __init__(self) -> None:
        self._sum = ZERO

    def step(self, text: str) -> None:
        self._sum += Decimal(text)

    def finalize(self) -> str:
        return str(self._sum)


def add_decimal_sum(connection: sqlite3.Connection) -> None:
    connection.create_aggregate("decimal_sum", 1, DecimalSum)  # pyright: ignore[reportArgumentType]  its stub knows numbers only
