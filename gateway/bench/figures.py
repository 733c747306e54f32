"""`gateway figures`: every published scenario through a real gateway, beside what was published."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from gateway.bench.expected import Figures, Ratio, as_published, differences, load_expected, ratios
from gateway.bench.measuring import STOP_REASON, Measured, Results, measure
from gateway.bench.scenarios import SCENARIOS
from gateway.bench.tables import print_tables
from gateway.core.codec import encode
from gateway.core.errors import GatewayError
from gateway.core.run import Status

SECONDS_MAX = 120.0


def figures(*, as_json: bool) -> int:
    """Measures, prints, and returns the exit code: 1 on any difference, or if it could not be measured."""
    try:
        results = asyncio.run(measured_in_a_folder())
    except (GatewayError, TimeoutError) as error:
        Console(stderr=True, highlight=False).print(f"The figures could not be measured: {error}", markup=False)
        return 1
    expected = load_expected()
    found = all_differences(results, expected)
    if as_json:
        sys.stdout.write(json_of(results, expected, found) + "\n")
    else:
        print_tables(results, expected, found)
    return 1 if found else 0


async def measured_in_a_folder() -> Results:
    with tempfile.TemporaryDirectory(prefix="gateway-figures-") as folder:
        async with asyncio.timeout(SECONDS_MAX):
            return await measure(Path(folder))


# --- comparing ------------------------------------------------------------------------------------------------------


def all_differences(results: Results, expected: dict[str, Figures]) -> list[str]:
    rows = rows_of(results)
    return [
        *differences(rows, expected),
        *(f"{each.about}: {each.here} here, {each.published} published." for each in ratios(rows) if differs(each)),
        *file_differences(results.scenarios),
        *stop_differences(results),
    ]


def rows_of(results: Results) -> dict[str, Figures]:
    return {name: measured.figures for name, measured in results.scenarios.items()}


def differs(ratio: Ratio) -> bool:
    return ratio.here != ratio.published


def file_differences(measured: dict[str, Measured]) -> list[str]:
    """What was said to be deleted, or kept, must be."""
    return [
        f"{scenario.name}: access.log is {'gone' if measured[scenario.name].file_deleted else 'still there'}."
        for scenario in SCENARIOS
        if measured[scenario.name].file_deleted is not scenario.deletes
    ]


def stop_differences(results: Results) -> list[str]:
    stop = results.timings.stop
    if (stop.status, stop.reason) == (Status.INTERRUPTED, STOP_REASON):
        return []
    return [f"Stop: the run is {stop.status}, reason {stop.reason!r}, and not interrupted, {STOP_REASON!r}."]


# --- as data --------------------------------------------------------------------------------------------------------


def json_of(results: Results, expected: dict[str, Figures], found: list[str]) -> str:
    """The keys and fields of figures.json; what it does not have stands under keys that begin with `_`."""
    rows = rows_of(results)
    body: dict[str, Any] = {name: as_published(rows[name], row) for name, row in expected.items()}
    body["_more"] = {name: row for name, row in rows.items() if name not in expected}
    body["_per_turn_prompt_tokens"] = {
        name: [turn.prompt_tokens for turn in measured.turns] for name, measured in results.scenarios.items()
    }
    body["_ratios"] = ratios(rows)
    body["_timings"] = results.timings
    body["_differences"] = found
    return msgspec.json.format(encode(body), indent=1).decode()
