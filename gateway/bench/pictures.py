"""Pictures of what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from gateway.bench.six_tables import PARTS, label_lines, part
from gateway.bench.tasks import TASKS

if TYPE_CHECKING:
    from gateway.bench.overhead import Report
    from gateway.bench.six_tasks import Report as SixTasks

COLOURS = {
    "prefill_ms": "#1f6feb",
    "decode_ms": "#79b8ff",
    "queue_ms": "#bbb",
    "unsplit_ms": "#1f6feb",
    "tools_ms": "#1a7f37",
    "harness_ms": "#d29922",
}

HEADROOM = 1.25


def draw_overhead(report: Report, file: Path) -> None:
    """Latency and throughput beside the bare loop's, and the growth of a runaway."""
    figure, (latency, throughput, growth) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    at_once = [str(row.concurrency) for row in report.rows]
    latency.plot(at_once, [row.bare_ms for row in report.rows], "o-", color="#888", label="bare loop")
    latency.plot(at_once, [row.gateway_ms for row in report.rows], "o-", color="#1f6feb", label="gateway, median")
    latency.plot(at_once, [row.gateway_p99_ms for row in report.rows], "o:", color="#1f6feb", label="gateway, p99")
    latency.set(title="a three-turn run", xlabel="at once", ylabel="ms", yscale="log")
    throughput.plot(at_once, [row.bare_runs_per_second for row in report.rows], "o-", color="#888", label="bare loop")
    throughput.plot(
        at_once, [row.gateway_runs_per_second for row in report.rows], "o-", color="#1f6feb", label="gateway"
    )
    throughput.set(title="throughput", xlabel="at once", ylabel="runs a second", ylim=(0, None))
    turns = [row.to_turn for row in report.growth]
    growth.plot(turns, [row.bytes_a_turn for row in report.growth], "o-", color="#1a7f37", label="bytes a turn")
    most = max(row.bytes_a_turn for row in report.growth)  # a level line leaves itself no margin above
    growth.set(title="a runaway: what a turn writes", xlabel="turn", ylabel="bytes", ylim=(0, most * HEADROOM))
    for axes in (latency, throughput, growth):
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    machine = report.machine
    figure.suptitle(f"{machine.cores} cores, Python {machine.python}, {machine.taken_at}", fontsize=9, color="#666")
    figure.savefig(file, dpi=110)
    plt.close(figure)


def draw_six_tasks(report: SixTasks, file: Path) -> None:
    """The wall of each task, split, and a mark where it was published. Times are of the first pass, one at a time."""
    runs = report.single[0].runs
    figure, axes = plt.subplots(figsize=(10, 4.5), layout="constrained")
    rows = [f"{run.number}. {run.question}" for run in runs]
    left = [0.0] * len(runs)
    for name, words in PARTS.items():
        widths = [part(run.split, name) / 1000 for run in runs]
        if any(widths):
            axes.barh(rows, widths, left=left, color=COLOURS[name], label=words)
            left = [start + width for start, width in zip(left, widths, strict=True)]
    published = [TASKS[run.number - 1].published.ms / 1000 for run in runs]
    axes.plot(published, rows, "|", color="#cf222e", markersize=18, markeredgewidth=2, label="published")
    axes.invert_yaxis()
    axes.set(xlabel="seconds", xlim=(0, None))
    axes.legend(frameon=False, loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("\n".join(label_lines(report.label)), fontsize=9, color="#666")
    figure.savefig(file, dpi=110)
    plt.close(figure)
