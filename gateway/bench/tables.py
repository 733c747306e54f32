"""The figures for people: each scenario as it was measured here, and below it as published."""

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

WIDTHS = {"turns": 6, "tool_runs": 7, "messages": 10, "prompt_tokens": 11, "completion_tokens": 9, "cost_usd": 12}
HEADINGS = {"tool_runs": "tools", "prompt_tokens": "in", "completion_tokens": "out", "cost_usd": "USD"}
LABEL_WIDTH = 12
PIPE_COLUMNS = 200
LEGEND = (
    "Each scenario as it came out here, and below it as it should. A figure that stands by itself was published; one "
    "in (parentheses) is derived with the published formula. USD are dollars; in and out are tokens."
)
PUBLISHED_STOP_MS = {"stop": "1,202", "without_stop": "3,015"}


def print_tables(results: Results, expected: Mapping[str, Figures], found: list[str]) -> None:
    folded = sys.stdout.isatty() or "COLUMNS" in os.environ
    out = Console(highlight=False, width=None if folded else PIPE_COLUMNS)
    out.print(LEGEND)
    rows = {name: measured.figures for name, measured in results.scenarios.items()}
    for group in GROUPS:
        out.print()
        out.print(group_text(group, rows, expected), soft_wrap=True)
        if group.rows == ("plan",):
            out.print(plan_table(results.scenarios["plan"].turns, expected["plan"]))
    for table in (ratio_table(rows), timing_table(results)):
        out.print()
        out.print(table)
    stop = results.timings.stop
    out.print(Text(f"The stopped run is {stop.status}, and its reason: {stop.reason}"), soft_wrap=True)
    out.print()
    print_verdict(out, expected, found)


def print_verdict(out: Console, expected: Mapping[str, Figures], found: list[str]) -> None:
    for difference in found:
        out.print(Text(f"✗ {difference}", "red"))
    if not found:
        out.print(
            Text(f"✓ All {len(expected)} rows are equal, and the ratios; files are gone or kept as asked.", "green")
        )


def new_table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")


# --- figures --------------------------------------------------------------------------------------------------------


def group_text(group: Group, rows: Mapping[str, Figures], expected: Mapping[str, Figures]) -> Text:
    """Three lines a scenario, of one width, so that they fit a terminal of 80 columns."""
    shown = [name for name in WIDTHS if any(getattr(rows[row], name) is not UNSET for row in group.rows)]
    headings = "".join(HEADINGS.get(name, name).rjust(WIDTHS[name]) for name in shown)
    lines = [Text(group.title, "bold"), Text(f"{'':{LABEL_WIDTH}}{headings}  status", "dim")]
    for name in group.rows:
        lines += scenario_lines(name, shown, rows[name], expected[name])
    for name in group.more:
        lines += [Text(f"  {name} (not in the figures: what we do by default)"), measured_line(shown, rows[name])]
    return Text("\n").join(lines)


def scenario_lines(name: str, shown: list[str], here: Figures, expected: Figures) -> list[Text]:
    equal = all(agrees(getattr(here, field), getattr(expected, field)) for field in Figures.__struct_fields__)
    mark = ("✓ ", "green") if equal else ("✗ ", "bold red")
    answer = cell(here.output) and f" · {expected_words(name, 'output', cell(here.output))}"
    figures = [expected_words(name, field, cell(getattr(expected, field))).rjust(WIDTHS[field]) for field in shown]
    status = expected_words(name, "status", cell(expected.status))
    return [
        Text.assemble(mark, (name, "bold"), answer),
        measured_line(shown, here),
        Text(f"{'  published':{LABEL_WIDTH}}{''.join(figures)}  {status}", "cyan"),
    ]


def measured_line(shown: list[str], here: Figures) -> Text:
    figures = "".join(cell(getattr(here, field)).rjust(WIDTHS[field]) for field in shown)
    return Text(f"{'  here':{LABEL_WIDTH}}{figures}  {here.status}")


def expected_words(row: str, field: str, text: str) -> str:
    return text if not text or field in PUBLISHED.get(row, ()) else f"({text})"


def cell(value: Any) -> str:
    if value is UNSET or value is None:
        return ""
    if isinstance(value, Decimal):
        return f"{value:.6f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def plan_table(turns: list[Turn], expected: Figures) -> Table:
    """The plan run turn by turn."""
    table = new_table("\nPlan, turn by turn")
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
    table.add_row(
        "Stop at 1.2 s into scan_archive: stopped at", f"{timings.stop.stopped_ms:,.0f}", PUBLISHED_STOP_MS["stop"]
    )
    table.add_row("… from Stop to its answer", f"{timings.stop.reply_ms:,.1f}", "")
    table.add_row("… progress was told at", progress(timings.stop), "506, 1,007")
    unstopped = f"{timings.without_stop.stopped_ms:,.0f}"
    table.add_row("scan_archive without Stop", unstopped, PUBLISHED_STOP_MS["without_stop"])
    return table


def progress(stop: Stopped) -> str:
    return ", ".join(f"{ms:,.0f}" for ms in stop.progress_ms)
