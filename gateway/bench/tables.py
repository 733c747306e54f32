"""The figures for people: each row measured here, and below it the published one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from msgspec import UNSET
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.bench.expected import PUBLISHED, Figures, agrees, ratios
from gateway.bench.measuring import Results, Stopped
from gateway.bench.scenarios import GROUPS, Group
from gateway.core.events import Turn

COLUMNS = {
    "turns": "turns",
    "tool_runs": "tools",
    "messages": "messages",
    "prompt_tokens": "in",
    "completion_tokens": "out",
    "cost_usd": "USD",
    "status": "status",
    "output": "answer",
}
PIPE_COLUMNS = 200
LEGEND = (
    "Each row as it came out here, and below it as it should. A figure that stands by itself was published; one in "
    "(parentheses) is derived with the published formula."
)
PUBLISHED_STOP_MS = {"stop": "1,202", "without_stop": "3,015"}


def print_tables(results: Results, expected: Mapping[str, Figures], found: list[str]) -> None:
    folded = sys.stdout.isatty() or "COLUMNS" in os.environ
    out = Console(highlight=False, width=None if folded else PIPE_COLUMNS)
    out.print(LEGEND)
    rows = {name: measured.figures for name, measured in results.scenarios.items()}
    for group in GROUPS:
        out.print()
        out.print(group_table(group, rows, expected))
        if group.rows == ("plan",):
            out.print()
            out.print(plan_table(results.scenarios["plan"].turns, expected["plan"]))
    for table in (ratio_table(rows), timing_table(results)):
        out.print()
        out.print(table)
    out.print()
    print_verdict(out, expected, found)


def print_verdict(out: Console, expected: Mapping[str, Figures], found: list[str]) -> None:
    for difference in found:
        out.print(Text(f"✗ {difference}", "red"))
    if not found:
        out.print(Text(f"✓ All figures of {len(expected)} rows are equal.", "green"))


def new_table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")


# --- figures --------------------------------------------------------------------------------------------------------


def group_table(group: Group, rows: Mapping[str, Figures], expected: Mapping[str, Figures]) -> Table:
    shown = [name for name in COLUMNS if any(getattr(rows[row], name) is not UNSET for row in group.rows)]
    table = new_table(group.title)
    table.add_column("")
    for name in shown:
        text = name in ("status", "output")
        table.add_column(COLUMNS[name], justify="left" if text else "right", overflow="fold", no_wrap=not text)
    table.add_column("")
    for row in group.rows:
        add_pair(table, row, shown, rows[row], expected[row])
    for row in group.more:
        table.add_row(row, *(cell(getattr(rows[row], name)) for name in shown), Text("not compared", "dim"))
    return table


def add_pair(table: Table, name: str, shown: list[str], here: Figures, expected: Figures) -> None:
    equal = all(agrees(getattr(here, field), getattr(expected, field)) for field in Figures.__struct_fields__)
    mark = Text("✓", "green") if equal else Text("✗", "bold red")
    table.add_row(name, *(cell(getattr(here, field)) for field in shown), mark)
    table.add_row("", *(expected_cell(name, field, expected) for field in shown), "")


def expected_cell(row: str, field: str, expected: Figures) -> Text:
    text = cell(getattr(expected, field))
    if not text or field in PUBLISHED.get(row, ()):
        return Text(text, "cyan")
    return Text(f"({text})", "dim")


def cell(value: Any) -> str:
    if value is UNSET or value is None:
        return ""
    if isinstance(value, Decimal):
        return f"{value:.6f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def plan_table(turns: list[Turn], expected: Figures) -> Table:
    """The plan run turn by turn."""
    table = new_table("Plan, turn by turn")
    for heading in ("turn", "in", "published", "out", "total", "USD so far", "finish"):
        table.add_column(heading, justify="left" if heading == "finish" else "right")
    published = expected.per_turn_prompt_tokens or []
    for turn, wanted in zip(turns, published, strict=False):
        numbers = (turn.turn, turn.prompt_tokens, wanted, turn.completion_tokens, turn.total_tokens)
        table.add_row(*map(cell, numbers), cell(turn.cost_usd), turn.finish or "")
    return table


def ratio_table(rows: Mapping[str, Figures]) -> Table:
    table = new_table("Ratios")
    for heading in ("", "here", "published", ""):
        table.add_column(heading, justify="right" if heading else "left")
    for each in ratios(rows):
        mark = Text("✓", "green") if each.here == each.published else Text("✗", "bold red")
        table.add_row(each.about, each.here, Text(each.published, "cyan"), mark)
    return table


# --- timings --------------------------------------------------------------------------------------------------------


def timing_table(results: Results) -> Table:
    timings = results.timings
    table = new_table("Timings: of this machine, and never compared")
    for heading in ("", "here, ms", "published, ms"):
        table.add_column(heading, justify="right" if heading else "left")
    published = {"0": "89"}
    for latency, ms in timings.plan_ms_by_latency.items():
        table.add_row(f"plan, {latency} ms a reply", f"{ms:,.0f}", published.get(latency, ""))
    table.add_row("plan, the harness's own share", f"{timings.plan_harness_ms:,.1f}", "15")
    table.add_row(stop_words(timings.stop), f"{timings.stop.stopped_ms:,.0f}", PUBLISHED_STOP_MS["stop"])
    table.add_row("… from Stop to its answer", f"{timings.stop.reply_ms:,.1f}", "")
    table.add_row("… progress was told at", progress(timings.stop), "506, 1,007")
    table.add_row(
        "scan_archive without Stop", f"{timings.without_stop.stopped_ms:,.0f}", PUBLISHED_STOP_MS["without_stop"]
    )
    return table


def stop_words(stop: Stopped) -> str:
    return f"Stop at 1.2 s into scan_archive: {stop.status}, “{stop.reason}”"


def progress(stop: Stopped) -> str:
    return ", ".join(f"{ms:,.0f}" for ms in stop.progress_ms)
