"""The six tasks for people: each as it came out here, and below it as published."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.bench.tasks import STAND_IN_WORDS, TASKS, Published, Split, TaskRun, Totals
from gateway.core.run import Status

if TYPE_CHECKING:
    from gateway.bench.six_tasks import Label, Pass, Report

PIPE_COLUMNS = 120
MARKS = {True: ("✓", "green"), False: ("✗", "red"), None: ("", "")}
PARTS = {
    "prefill_ms": "prefill",
    "decode_ms": "decode",
    "queue_ms": "queue",
    "unsplit_ms": "model, not split",
    "tools_ms": "tools",
    "harness_ms": "harness and HTTP",
}


def print_report(report: Report) -> None:
    folded = sys.stdout.isatty() or "COLUMNS" in os.environ
    out = Console(highlight=False, width=None if folded else PIPE_COLUMNS)
    for line in label_lines(report.label):
        out.print(Text(line), soft_wrap=True)
    out.print()
    single = report.single
    out.print(task_table(single))
    out.print()
    out.print(totals_table(single, report.published, report.label))
    out.print()
    out.print(split_table(single))
    for line in closing_lines(report):
        out.print(Text(line), soft_wrap=True)


def label_lines(label: Label) -> list[str]:
    machine = label.machine
    weights = f"{label.file}, {label.quantisation}" if label.file else f"{label.model}, quantisation not told"
    cores = f"{machine.cores} cores ({machine.processor})"
    lines = [f"The six tasks, four tools, greedy: {weights}; {cores}; {machine.taken_at}."]
    if label.kind == "stand-in":
        lines.append(f"{STAND_IN_WORDS}.")
    if label.kind == "other":
        lines.append("The published figures are of Qwen2.5-0.5B-Instruct, which this is not.")
    return lines


def who(label: Label) -> str:
    """The name of a column of figures that were measured here."""
    return "here, stand-in" if label.kind == "stand-in" else "here"


def new_table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")


# --- one after another ----------------------------------------------------------------------------------------------


def task_table(passes: Sequence[Pass]) -> Table:
    """Answers and counts of the first pass, and the median of the times."""
    median_of = f", wall: median of {len(passes)}" if len(passes) > 1 else ""
    table = new_table(f"One after another (below each: as published{median_of})")
    for heading in ("", "task", "turns", "tools", "wall ms", "answer"):
        table.add_column(heading, justify="right" if heading in ("turns", "tools", "wall ms") else "left")
    for run in passes[0].runs:
        task = TASKS[run.number - 1]
        add_run(table, run, median_ms(passes, run.number), task.wanted)
        add_published(table, task.published)
    return table


def median_ms(passes: Sequence[Pass], number: int) -> float:
    return median(run.wall_ms for each in passes for run in each.runs if run.number == number)


def add_run(table: Table, run: TaskRun, wall_ms: float, wanted: str) -> None:
    answer = Text(answer_words(run))
    for words in remarks(run, wanted):
        answer.append(f" [{words}]", "yellow")
    table.add_row(
        Text(*MARKS[run.right]),
        Text(f"{run.number}. {run.question}"),
        str(run.turns),
        str(run.tools),
        f"{wall_ms:,.0f}",
        answer,
    )


def answer_words(run: TaskRun) -> str:
    if run.status is Status.COMPLETED:
        return run.answer or "(nothing)"
    return f"({run.status}{f', {run.reason}' if run.reason else ''})"


def remarks(run: TaskRun, wanted: str) -> list[str]:
    words = [] if run.right else [f"wanted: {wanted}"]
    if run.named_unread:
        words.append(f"never read: {', '.join(run.named_unread)}")
    if run.lost_calls:
        words.append("a call in words")
    return words


def add_published(table: Table, published: Published) -> None:
    answer = published.answer or "(answer not published)"
    cells = ("   as published", str(published.turns), str(published.tools), f"{published.ms:,}", answer)
    table.add_row(Text(*MARKS[published.right]), *(Text(cell, "cyan") for cell in cells))


def totals_table(passes: Sequence[Pass], published: Totals, label: Label) -> Table:
    table = new_table("In total")
    for heading in ("", "turns", "tools", "wall ms", "mean turn ms", "right", "named unread", "calls lost"):
        table.add_column(heading, justify="right" if heading else "left")
    for each in passes:
        table.add_row(who(label), *total_cells(each.totals))
    table.add_row(Text("published", "cyan"), *(Text(cell, "cyan") for cell in total_cells(published)))
    return table


def total_cells(each: Totals) -> list[str]:
    counts = (each.turns, each.tools, each.wall_ms, each.mean_turn_ms, each.right, each.named_unread, each.lost_calls)
    return ["" if count is None else f"{count:,.0f}" for count in counts]


def split_table(passes: Sequence[Pass]) -> Table:
    """Of the first pass. Parts that no task has are left out."""
    runs = passes[0].runs
    shown = [name for name in PARTS if any(part(run.split, name) for run in runs)]
    table = new_table("Where the time went, ms")
    table.add_column("task")
    for heading in [*(PARTS[name] for name in shown), "prompt tokens", "cached", "generated"]:
        table.add_column(heading, justify="right")
    for run in runs:
        times = [f"{part(run.split, name):,.0f}" for name in shown]
        table.add_row(str(run.number), *times, *map(str, (run.prompt_tokens, run.cached_tokens, run.completion_tokens)))
    return table


def part(split: Split, name: str) -> float:
    return getattr(split, name)


# --- at once --------------------------------------------------------------------------------------------------------


def closing_lines(report: Report) -> list[str]:
    lines = ["", f"The model server's cache before the first task: {report.single[0].cache}."]
    if report.together:
        lines.append(together_line(report))
    return lines


def together_line(report: Report) -> str:
    alone = median(each.seconds for each in report.single)
    together = median(each.seconds for each in report.together)
    first = report.together[0]
    counts = f"{first.totals.turns} turns, {first.totals.tools} tool runs, {first.totals.right} right"
    return (
        f"{first.at_once} agents at once finish the six tasks in {together:.1f} s ({counts}); one after another they "
        f"take {alone:.1f} s: {together / alone:.2f} of the time."
    )
