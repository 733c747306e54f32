"""`gateway bench overhead`: what the harness costs, beside a bare client loop that makes the same three calls. Three
processes: the scripted provider, the gateway with its SQLite record on, and this one."""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import aiohttp
import msgspec
import psutil
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from gateway.adapters.providers.requests import definitions
from gateway.adapters.tools.workspace import Workspace
from gateway.bench.load import BareRun, GatewayRun, OneRun, Timing, merged, timed
from gateway.bench.machine import Machine, this_machine
from gateway.bench.process import Process, announced, serving, workspace_of, write_config
from gateway.bench.scenarios import QUESTION
from gateway.core.codec import decode_event, encode
from gateway.core.events import RunStarted, RunStopped, Turn

CONCURRENCY = (1, 8, 32, 128)
PUBLISHED_SHARE_MS = 15
ROUNDS = 5
RUNAWAY_TURNS = 100
RUNAWAY_STEP = 10
ANNOUNCED = re.compile(rb"scripted provider on (\S+)")


class Row(Struct, frozen=True, kw_only=True):
    """One concurrency. Ratios are the gateway's figure by the bare loop's; memory is the gateway's resident set."""

    concurrency: int
    runs: int
    bare_ms: float
    gateway_ms: float
    gateway_p95_ms: float
    gateway_p99_ms: float
    latency_ratio: float
    bare_runs_per_second: float
    gateway_runs_per_second: float
    throughput_ratio: float
    gateway_cpu_ms_a_run: float
    gateway_memory_mb: float


class Growth(Struct, frozen=True, kw_only=True):
    """Turns `from_turn` to `to_turn` of a runaway: what they wrote, and the harness's time a turn."""

    from_turn: int
    to_turn: int
    bytes_a_turn: int
    harness_ms_a_turn: float


class Report(Struct, frozen=True, kw_only=True):
    machine: Machine
    rows: list[Row]
    growth: list[Growth]


def overhead(*, runs: int, as_json: bool, picture: str | None) -> int:
    """Measure, print the tables or JSON, and draw the picture if one is asked for."""
    report = asyncio.run(measure(runs))
    if as_json:
        sys.stdout.write(encode(report).decode() + "\n")
    else:
        print_report(report)
    if picture is not None:
        from gateway.bench.pictures import draw_overhead

        draw_overhead(report, Path(picture))
    return 0


# --- measuring ------------------------------------------------------------------------------------------------------


async def measure(runs: int) -> Report:
    with tempfile.TemporaryDirectory(prefix="overhead-") as name:
        folder = Path(name)
        async with provider(folder) as base_url:
            config = write_config(folder, {"plan": "plan", "runaway": "runaway"}, provider={"base_url": base_url})
            async with serving(config) as gateway:
                workspace = workspace_of(folder, "plan")
                specs = tuple(tool.spec for tool in Workspace(workspace).tools().values())
                bare = BareRun(base_url, workspace, msgspec.to_builtins(definitions(specs)))
                rows = [await row(bare, gateway, concurrency, runs) for concurrency in CONCURRENCY]
                return Report(machine=this_machine(), rows=rows, growth=await growth(gateway))


@asynccontextmanager
async def provider(folder: Path) -> AsyncIterator[str]:
    """The scripted provider in a process of its own, and its address with /v1. Raises DidNotStart."""
    command = (sys.executable, "-m", "scripted", "serve", "--port", "0")
    async with announced("The scripted provider", command, ANNOUNCED, folder / "scripted.log") as process:
        yield process.url


async def row(bare: OneRun, gateway: Process, concurrency: int, runs: int) -> Row:
    """The two in turn, round by round, so that both have the machine as it is at that time."""
    through = GatewayRun(gateway.url, "plan", policies={"dedupe": "off"})
    process = psutil.Process(gateway.pid)
    rounds: list[tuple[Timing, Timing]] = []
    cpu = 0.0
    for _ in range(ROUNDS):
        bare_timing = await timed(bare, runs=runs // ROUNDS, concurrency=concurrency)
        before = cpu_seconds(process)
        timing = await timed(through, runs=runs // ROUNDS, concurrency=concurrency)
        cpu += cpu_seconds(process) - before
        rounds.append((bare_timing, timing))
    return row_of(concurrency, rounds, cpu, process.memory_info().rss)


def row_of(concurrency: int, rounds: list[tuple[Timing, Timing]], cpu: float, memory_bytes: int) -> Row:
    """Figures over all rounds; a ratio is the median of the rounds' own."""
    bare, gateway = (merged([pair[side] for pair in rounds]) for side in (0, 1))
    return Row(
        concurrency=concurrency,
        runs=len(gateway.each),
        bare_ms=bare.ms(0.5),
        gateway_ms=gateway.ms(0.5),
        gateway_p95_ms=gateway.ms(0.95),
        gateway_p99_ms=gateway.ms(0.99),
        latency_ratio=median(through.ms(0.5) / alone.ms(0.5) for alone, through in rounds),
        bare_runs_per_second=bare.runs_per_second,
        gateway_runs_per_second=gateway.runs_per_second,
        throughput_ratio=median(through.runs_per_second / alone.runs_per_second for alone, through in rounds),
        gateway_cpu_ms_a_run=1000 * cpu / (len(gateway.each) + concurrency * len(rounds)),
        gateway_memory_mb=memory_bytes / 2**20,
    )


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


async def growth(gateway: Process) -> list[Growth]:
    """A runaway of a hundred turns, read from its own trace: the record is the measurement."""
    order = {
        "agent": "runaway",
        "input": QUESTION,
        "limits": {"max_turns": RUNAWAY_TURNS},
        "policies": {"dedupe": "off"},
    }
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{gateway.url}/v1/runs?wait=600", json=order) as response:
            run_id = (await response.json())["id"]
        async with session.get(f"{gateway.url}/v1/runs/{run_id}/events") as response:
            lines = (await response.read()).splitlines()
    return grown(lines)


def grown(lines: Sequence[bytes]) -> list[Growth]:
    bytes_of, harness_ms_of = [0] * RUNAWAY_TURNS, [0.0] * RUNAWAY_TURNS
    turn, last = 0, None
    for line in lines:
        event = decode_event(line)
        if isinstance(event, RunStarted | RunStopped):
            last = event.time
            continue
        bytes_of[turn] += len(line)
        if isinstance(event, Turn):
            assert last is not None
            harness_ms_of[turn] = (event.time - last).total_seconds() * 1000 - event.ms
            last = event.time
            turn = min(turn + 1, RUNAWAY_TURNS - 1)
    return [
        Growth(
            from_turn=first + 1,
            to_turn=first + RUNAWAY_STEP,
            bytes_a_turn=sum(bytes_of[first : first + RUNAWAY_STEP]) // RUNAWAY_STEP,
            harness_ms_a_turn=sum(harness_ms_of[first : first + RUNAWAY_STEP]) / RUNAWAY_STEP,
        )
        for first in range(0, RUNAWAY_TURNS, RUNAWAY_STEP)
    ]


# --- for people -----------------------------------------------------------------------------------------------------


def print_report(report: Report) -> None:
    out = Console()
    machine = report.machine
    out.print(
        f"The three-turn run, through the gateway with its record on and as a bare loop of aiohttp. {machine.cores} "
        f"cores ({machine.processor}), Python {machine.python}, {machine.taken_at}. Published harness: "
        f"{PUBLISHED_SHARE_MS} ms a run.",
        soft_wrap=True,
    )
    out.print(load_table(report.rows))
    out.print(growth_table(report.growth))


def load_table(rows: list[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), title="Under load", title_justify="left")
    for heading in ("at once", "bare ms", "gateway ms", "p95", "p99", "ratio", "bare/s", "gateway/s", "ratio"):
        table.add_column(heading, justify="right")
    table.add_column("CPU ms", justify="right")
    table.add_column("MB", justify="right")
    for each in rows:
        table.add_row(
            str(each.concurrency),
            f"{each.bare_ms:.2f}",
            f"{each.gateway_ms:.2f}",
            f"{each.gateway_p95_ms:.2f}",
            f"{each.gateway_p99_ms:.2f}",
            f"{each.latency_ratio:.2f}",
            f"{each.bare_runs_per_second:.0f}",
            f"{each.gateway_runs_per_second:.0f}",
            f"{each.throughput_ratio:.2f}",
            f"{each.gateway_cpu_ms_a_run:.2f}",
            f"{each.gateway_memory_mb:.0f}",
        )
    return table


def growth_table(rows: list[Growth]) -> Table:
    table = Table(box=None, title="A runaway of 100 turns", title_justify="left")
    for heading in ("turns", "bytes written a turn", "harness ms a turn"):
        table.add_column(heading, justify="right")
    for each in rows:
        table.add_row(f"{each.from_turn}-{each.to_turn}", str(each.bytes_a_turn), f"{each.harness_ms_a_turn:.2f}")
    return table
