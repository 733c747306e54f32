"""`gateway bench proxy`: what passing a chat completion through costs, beside the bare scripted provider, and beside
other proxies where they are installed (`make peers`). Every server is a process of its own, and so is this."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from gateway.bench.load import Timing, WrongAnswer, merged
from gateway.bench.machine import Machine, this_machine
from gateway.bench.overhead import provider
from gateway.bench.peers import PEERS, Target, started
from gateway.bench.process import DidNotStart, serving, write_config
from gateway.bench.scenarios import QUESTION
from gateway.core.codec import encode

CONCURRENCY = (1, 16, 64)
ROUNDS = 3
MODEL = "plan"
BODY = encode({"model": MODEL, "messages": [{"role": "user", "content": QUESTION}]})


class Row(Struct, frozen=True, kw_only=True):
    """One server at one concurrency. `added` is above the bare provider's in the same rounds."""

    server: str
    concurrency: int
    calls: int
    median_ms: float
    p99_ms: float
    added_median_ms: float
    added_p99_ms: float
    calls_per_second: float
    cpu_ms_a_call: float


class Report(Struct, frozen=True, kw_only=True):
    machine: Machine
    rows: list[Row]


def proxy(*, calls: int, as_json: bool) -> int:
    """Measure, and print the table or JSON."""
    report = asyncio.run(measure(calls))
    if as_json:
        sys.stdout.write(encode(report).decode() + "\n")
    else:
        print_report(report)
    return 0


# --- measuring ------------------------------------------------------------------------------------------------------


async def measure(calls: int) -> Report:
    with tempfile.TemporaryDirectory(prefix="proxy-") as name:
        async with AsyncExitStack() as stack:
            targets = await started_targets(stack, Path(name))
            rows = [row for concurrency in CONCURRENCY for row in await measured(targets, concurrency, calls)]
            return Report(machine=this_machine(), rows=rows)


async def started_targets(stack: AsyncExitStack, folder: Path) -> list[Target]:
    """The bare provider first, then this gateway, then whatever else is installed."""
    base_url = await stack.enter_async_context(provider(folder))
    bare = Target("bare", base_url, pid_of_port(base_url))
    # an agent of the model's name would be asked instead of the model
    config = write_config(folder, {"agent": MODEL}, provider={"base_url": base_url})
    gateway = await stack.enter_async_context(serving(config))
    targets = [bare, Target("gateway", f"{gateway.url}/v1", gateway.pid)]
    for peer in PEERS:
        if not peer.installed():
            continue
        try:
            targets.append(await stack.enter_async_context(started(peer, base_url, MODEL, folder)))
        except (DidNotStart, TimeoutError) as error:
            sys.stderr.write(f"{peer.name} is left out, it does not start: {error or 'in time'}.\n")
    return targets


def pid_of_port(base_url: str) -> int:
    port = urlsplit(base_url).port
    listening = (each for each in psutil.Process().children() for each in connections(each))
    return next(pid for pid, local in listening if local == port)


def connections(process: psutil.Process) -> list[tuple[int, int]]:
    return [(process.pid, each.laddr.port) for each in process.net_connections("tcp") if each.laddr]


async def measured(targets: list[Target], concurrency: int, calls: int) -> list[Row]:
    """All in turn, round by round, so that each has the machine as it is at that time."""
    timings: dict[str, list[Timing]] = {target.name: [] for target in targets}
    cpu = dict.fromkeys(timings, 0.0)
    for _ in range(ROUNDS):
        for target in targets:
            before = target.cpu_seconds()
            timings[target.name].append(await timed(target, calls // ROUNDS, concurrency))
            cpu[target.name] += target.cpu_seconds() - before
    whole = {name: merged(each) for name, each in timings.items()}
    bare = whole[targets[0].name]
    return [row_of(target.name, concurrency, whole[target.name], bare, cpu[target.name]) for target in targets]


def row_of(server: str, concurrency: int, timing: Timing, bare: Timing, cpu_seconds: float) -> Row:
    return Row(
        server=server,
        concurrency=concurrency,
        calls=len(timing.each),
        median_ms=timing.ms(0.5),
        p99_ms=timing.ms(0.99),
        added_median_ms=timing.ms(0.5) - bare.ms(0.5),
        added_p99_ms=timing.ms(0.99) - bare.ms(0.99),
        calls_per_second=timing.runs_per_second,
        cpu_ms_a_call=1000 * cpu_seconds / len(timing.each),
    )


Call = Callable[[bytes], Awaitable[None]]
"""Sends a request over a connection, and reads the answer whole."""


async def timed(target: Target, calls: int, concurrency: int) -> Timing:
    """So many calls by so many connections that are kept, each written and read as bytes: a client of a library would
    take more time than what is measured."""
    request = request_of(target)
    each: list[float] = []
    left = iter(range(calls))

    async def worker(call: Call) -> None:
        for _ in left:
            began = time.perf_counter()
            await call(request)
            each.append(time.perf_counter() - began)

    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(connected(target)) for _ in range(concurrency)]
        await asyncio.gather(*(call(request) for call in connections))  # each one's first, which does not count
        began = time.perf_counter()
        await asyncio.gather(*map(worker, connections))
        return Timing(each, time.perf_counter() - began)


def request_of(target: Target) -> bytes:
    address = urlsplit(f"{target.base_url}/chat/completions")
    headers = {
        "Host": address.netloc,
        "Content-Type": "application/json",
        "Content-Length": str(len(BODY)),
        **target.headers,
    }
    lines = [f"POST {address.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + BODY


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Call]:
    address = urlsplit(target.base_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)

    async def call(request: bytes) -> None:
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        body = await body_of(head, reader)
        if b" 200 " not in head.split(b"\r\n", 1)[0] or b'"choices"' not in body:
            raise WrongAnswer(f"{target.name} answered {head.decode()}{body[:500].decode(errors='replace')}")

    try:
        yield call
    finally:
        writer.close()


async def body_of(head: bytes, reader: asyncio.StreamReader) -> bytes:
    """By its length, or in chunks."""
    _, stated, rest = head.partition(b"content-length:")
    if stated:
        return await reader.readexactly(int(rest.split(b"\r\n", 1)[0]))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return body


# --- for people -----------------------------------------------------------------------------------------------------


def print_report(report: Report) -> None:
    machine, out = report.machine, Console()
    out.print(
        f"A plain chat completion, passed through and metered. {machine.cores} cores ({machine.processor}), Python "
        f"{machine.python}, {machine.taken_at}. All servers share these cores with the client.",
        soft_wrap=True,
    )
    table = Table(box=None)
    table.add_column("server", no_wrap=True)
    for heading in ("at once", "median ms", "p99", "added ms", "added p99", "calls/s", "CPU ms a call"):
        table.add_column(heading, justify="right")
    for row in report.rows:
        figures = (row.median_ms, row.p99_ms, row.added_median_ms, row.added_p99_ms)
        table.add_row(
            row.server,
            str(row.concurrency),
            *(f"{figure:.2f}" for figure in figures),
            f"{row.calls_per_second:.0f}",
            f"{row.cpu_ms_a_call:.3f}",
        )
    out.print(table)
