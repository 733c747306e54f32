"""Money: exact decimals in US dollars, priced per million tokens."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from msgspec import Struct

MILLION = Decimal(1_000_000)
ZERO = Decimal(0)
BYTES_PER_TOKEN = 4
"""English text and JSON in current tokenizers; an estimate that is recorded as one."""


class Usage(Struct, frozen=True, kw_only=True):
    """Token counts as providers report them: `cached_tokens` are part of the prompt, `reasoning_tokens` of the
    completion."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def plus(self, other: Usage) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


class Price(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """US dollars a million tokens. What is not given costs what its whole costs: cached input as input, reasoning as
    output."""

    input: Decimal = ZERO
    output: Decimal = ZERO
    cached_input: Decimal | None = None
    reasoning: Decimal | None = None
    as_of: date | None = None
    free: bool = False


def cost(price: Price, usage: Usage) -> Decimal:
    """What one call cost, exactly."""
    millionths = price.input * usage.prompt_tokens + price.output * usage.completion_tokens
    if usage.cached_tokens and price.cached_input is not None:
        millionths += (price.cached_input - price.input) * usage.cached_tokens
    if usage.reasoning_tokens and price.reasoning is not None:
        millionths += (price.reasoning - price.output) * usage.reasoning_tokens
    return total(millionths / MILLION)


def total(*amounts: Decimal) -> Decimal:
    """The sum as it is published: without trailing zeros, and never in powers of ten above one."""
    return (sum(amounts, ZERO).normalize() + ZERO) or ZERO
