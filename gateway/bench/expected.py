"""The published figures, and what differs from them. A field that is null or missing there is not compared."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gateway.core.run import Status

MICRO = Decimal("0.000001")


class Figures(Struct, frozen=True, kw_only=True):
    """One row of figures.json."""

    turns: int
    tool_runs: int
    messages: int | UnsetType = UNSET
    prompt_tokens: int | UnsetType = UNSET
    completion_tokens: int | UnsetType = UNSET
    cost_usd: Decimal
    status: Status
    output: str | UnsetType = UNSET
    per_turn_prompt_tokens: list[int] | UnsetType | None = UNSET


class Ratio(Struct, frozen=True, kw_only=True):
    """A figure that compares two rows, as the text gives it."""

    about: str
    here: str
    published: str


EVERY = frozenset(Figures.__struct_fields__)
PUBLISHED: Mapping[str, frozenset[str]] = {
    "plan": EVERY,
    "runaway_cap_8": frozenset({"prompt_tokens"}),
    "runaway_cap_20": frozenset({"cost_usd"}),
    "runaway_cap_50": frozenset({"prompt_tokens"}),
    "runaway_cap_100": frozenset({"prompt_tokens"}),
    "runaway_budget_0.01": frozenset({"turns", "cost_usd", "status"}),
    "denied_cap_12": frozenset({"turns", "tool_runs", "prompt_tokens", "cost_usd"}),
    "destructive_stop": frozenset({"turns", "cost_usd", "status"}),
    "kill_after_turn_2": EVERY,
    "kill_and_resume": frozenset({"turns", "tool_runs", "cost_usd", "status"}),
}
"""The fields that the text itself prints. The others were derived with its formula."""


def load_expected() -> dict[str, Figures]:
    return decode_figures(files("gateway.bench").joinpath("figures.json").read_bytes())


def decode_figures(body: bytes) -> dict[str, Figures]:
    return msgspec.json.decode(body, type=dict[str, Figures])


def as_published(here: Figures, expected: Figures) -> Figures:
    """The row with the fields that figures.json has: null where it has null, money to six decimals."""
    shown: dict[str, Any] = {
        name: None if getattr(expected, name) is None else getattr(here, name)
        for name in Figures.__struct_fields__
        if getattr(expected, name) is not UNSET
    }
    return Figures(**{**shown, "cost_usd": here.cost_usd.quantize(MICRO)})


def differences(here: Mapping[str, Figures], expected: Mapping[str, Figures]) -> list[str]:
    """One sentence for each figure that is not the expected one."""
    missing = [f"{name}: not measured." for name in expected if name not in here]
    return missing + [
        difference
        for name, row in expected.items()
        if name in here
        for difference in differences_of_row(name, here[name], row)
    ]


def differences_of_row(name: str, here: Figures, expected: Figures) -> list[str]:
    return [
        f"{name}: {field} is {getattr(here, field)!s} here and {getattr(expected, field)!s} in the figures."
        for field in Figures.__struct_fields__
        if not agrees(getattr(here, field), getattr(expected, field))
    ]


def agrees(here: Any, expected: Any) -> bool:
    if expected is None or expected is UNSET:
        return True
    if isinstance(expected, Decimal):
        return isinstance(here, Decimal) and here.quantize(MICRO) == expected.quantize(MICRO)
    return here == expected


def ratios(rows: Mapping[str, Figures]) -> list[Ratio]:
    """What the text says about two rows at once."""
    usd = {name: row.cost_usd for name, row in rows.items()}
    extra = usd["repeat"] - usd["once"]
    return [
        ratio("cap 100, times cap 50: the cost", usd["runaway_cap_100"], usd["runaway_cap_50"], "3.7"),
        ratio("… the input tokens", tokens(rows["runaway_cap_100"]), tokens(rows["runaway_cap_50"]), "3.8"),
        ratio("recovery in words, times the fatal run", usd["recover_worded"], usd["recover_fatal"], "4.7"),
        ratio("the denied run, times the recovered one", usd["denied_cap_12"], usd["recover_worded"], "5.2"),
        Ratio(about="a repeated call costs more, in USD", here=f"{extra:.6f}", published="0.001050"),
        Ratio(about="… which is, in %", here=f"{100 * extra / usd['once']:.0f}", published="75"),
    ]


def ratio(about: str, above: Decimal, below: Decimal, published: str) -> Ratio:
    return Ratio(about=about, here=f"{above / below:.1f}", published=published)


def tokens(row: Figures) -> Decimal:
    return Decimal(0 if row.prompt_tokens is UNSET else row.prompt_tokens)
