"""`gateway stats`: the figures of many runs, as tables."""

from __future__ import annotations

from collections.abc import Iterable

import typer
from rich.table import Table
from rich.text import Text

from gateway.cli.options import Connection
from gateway.cli.progress import headline, money
from gateway.cli.render import STYLE, console, printable
from gateway.cli.talk import talk
from gateway.core.explain import plural
from gateway.core.statistics import Bar, Report

BAR_COLUMNS = 40
FIGURES = ("runs", "turns", "cost", "p50", "p90", "p99", "max")


def stats(connection: Connection, days: int) -> None:
    told = talk(connection, lambda gateway: gateway.stats(days))
    if connection.as_json:
        typer.echo(told.body)
    else:
        show_stats(told.value)


def show_stats(report: Report) -> None:
    out = console()
    out.print(
        Text(f"{plural(report.runs, 'run')} since {report.since:%Y-%m-%d} (UTC) for {money(report.cost_usd)}", "bold")
    )
    if not report.runs:
        return
    turns, cost = report.turns, report.cost
    spread = [
        ("turns a run", *map(str, (turns.p50, turns.p90, turns.p99, turns.max))),
        ("cost of a run", *map(money, (cost.p50, cost.p90, cost.p99, cost.max))),
    ]
    tables = [
        table(("", "p50", "p90", "p99", "max"), spread),
        table(("way out", "runs"), ((headline(each.status, each.reason), str(each.runs)) for each in report.by_status)),
        table(("turns", "runs", ""), bars(turns.histogram)),
        table(
            ("agent", "runs", "turns", "cost"),
            (shares(e.agent, e.runs, e.turns, money(e.cost_usd)) for e in report.by_agent),
        ),
        table(
            ("model", "runs", "turns", "cost"),
            (shares(e.model, e.runs, e.turns, money(e.cost_usd)) for e in report.by_model),
        ),
        table(("day", "runs", "cost"), ((str(e.day), str(e.runs), money(e.cost_usd)) for e in report.by_day if e.runs)),
        table(
            ("most expensive", "agent", "model", "turns", "cost", "status"),
            (
                (e.id, e.agent, e.model, str(e.turns), money(e.cost_usd), Text(e.status, STYLE[e.status]))
                for e in report.most_expensive
            ),
        ),
    ]
    for each in tables:
        out.print()
        out.print(each)


def shares(name: str, runs: int, turns: int, cost: str) -> tuple[str, ...]:
    return name, str(runs), str(turns), cost


def bars(histogram: list[Bar]) -> Iterable[tuple[str, str, str]]:
    """The bars that are not empty, the longest as long as there is room."""
    longest = max(bar.runs for bar in histogram)
    below = 0
    for bar in histogram:
        name = f"over {below}" if bar.le is None else str(bar.le) if bar.le == below + 1 else f"{below + 1}-{bar.le}"
        below = bar.le or below
        if bar.runs:
            yield name, str(bar.runs), "█" * max(1, round(bar.runs * BAR_COLUMNS / longest))


def table(headings: tuple[str, ...], rows: Iterable[tuple[str | Text, ...]]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        figures = heading in FIGURES
        made.add_column(heading, justify="right" if figures else "left", overflow="fold", no_wrap=figures)
    for row in rows:
        made.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in row))
    return made
