"""Money is exact."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.core.codec import encode
from gateway.core.pricing import ZERO, Price, Usage, cost, total
from tests.core.world import PRICE, tokens

PUBLISHED = json.loads((Path(__file__).parents[1] / "figures.json").read_text(encoding="utf-8"))
BOTH = Price(input=Decimal(2), output=Decimal(12), cached_input=Decimal("0.5"), reasoning=Decimal(24))


@pytest.mark.parametrize(
    ("price", "usage", "expected"),
    [
        (PRICE, tokens(204, 23), "0.000684"),
        (PRICE, tokens(0, 0), "0"),
        (PRICE, tokens(1, 0), "0.000002"),
        (PRICE, tokens(500_000, 0), "1"),
        (PRICE, tokens(5_000_000, 0), "10"),
        (PRICE, replace(tokens(1000, 100), cached_tokens=800, reasoning_tokens=60), "0.0032"),
        (BOTH, tokens(1000, 100), "0.0032"),
        (BOTH, replace(tokens(1000, 100), cached_tokens=800), "0.002"),
        (BOTH, replace(tokens(1000, 100), reasoning_tokens=60), "0.00392"),
        (BOTH, replace(tokens(1000, 100), cached_tokens=800, reasoning_tokens=60), "0.00272"),
        (replace(BOTH, cached_input=ZERO), replace(tokens(1000, 0), cached_tokens=1000), "0"),
        (Price(free=True), tokens(10**9, 10**9), "0"),
        (Price(input=Decimal("0.1"), output=Decimal("0.0000001")), tokens(3, 3), "3.000003E-7"),
    ],
)
def test_what_a_call_costs(price: Price, usage: Usage, expected: str) -> None:
    assert cost(price, usage) == Decimal(expected)
    assert str(cost(price, usage)) == expected


@pytest.mark.parametrize("row", [key for key, row in PUBLISHED.items() if row.get("prompt_tokens") is not None])
def test_the_published_costs_come_from_the_published_tokens(row: str) -> None:
    figures: dict[str, Any] = PUBLISHED[row]
    paid = cost(PRICE, tokens(figures["prompt_tokens"], figures["completion_tokens"]))

    assert round(paid, 6) == round(Decimal(str(figures["cost_usd"])), 6)


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**6)), max_size=30))
def test_the_costs_of_the_turns_make_the_cost_of_the_run(turns: list[tuple[int, int]]) -> None:
    usages = [tokens(prompt, completion) for prompt, completion in turns]
    together = Usage()
    for usage in usages:
        together = together.plus(usage)

    assert total(*(cost(PRICE, usage) for usage in usages)) == cost(PRICE, together)


@pytest.mark.parametrize(
    ("amounts", "written"),
    [
        (["0.000684", "0.000886"], b"0.00157"),
        (["0.000684", "-0.000684"], b"0"),
        (["1000"], b"1000"),
        (["1E+3", "2"], b"1002"),
        (["12.500", "0"], b"12.5"),
        ([], b"0"),
    ],
)
def test_a_sum_is_written_without_trailing_zeros(amounts: list[str], written: bytes) -> None:
    assert encode(total(*(Decimal(amount) for amount in amounts))) == written


def test_usage_adds_up_field_by_field() -> None:
    one = Usage(prompt_tokens=1, completion_tokens=2, total_tokens=3, cached_tokens=4, reasoning_tokens=5)

    assert one.plus(one) == Usage(
        prompt_tokens=2, completion_tokens=4, total_tokens=6, cached_tokens=8, reasoning_tokens=10
    )
