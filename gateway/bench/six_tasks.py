"""`gateway bench six-tasks`: the six published tasks through a gateway of our own, in front of any model server.

Each pass has fresh workspaces, and, unless an address is given, a fresh model server, whose cache is empty. The figures
of a run are read from its own trace.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
from msgspec import Struct
from rich.console import Console

from gateway.bench.local_model import model_server
from gateway.bench.machine import Machine, this_machine
from gateway.bench.measuring import trace
from gateway.bench.process import serving, write_config
from gateway.bench.requests_made import as_lines, requests_of
from gateway.bench.six_tables import print_report
from gateway.bench.tasks import PUBLISHED_TOTALS, TASKS, Kind, TaskRun, Totals, kind_of, task_run, totals
from gateway.client import Gateway, StartRun
from gateway.core.codec import encode
from gateway.core.errors import GatewayError
from gateway.core.events import Event

TURNS_MAX = 8
REPLY_TOKENS_MAX = 512
READ_SECONDS_MAX = 600
TASK_SECONDS_MAX = 1800.0
ASK_SECONDS_MAX = 10.0


class Label(Struct, frozen=True, kw_only=True):
    """Which weights gave the figures, and on what. What a server does not tell is None."""

    model: str
    kind: Kind
    file: str | None
    quantisation: str | None
    machine: Machine


class Pass(Struct, frozen=True, kw_only=True):
    """The six tasks once, by so many agents at a time. `cache` is what the model server had in it before."""

    at_once: int
    cache: str
    seconds: float
    runs: list[TaskRun]
    totals: Totals


class Report(Struct, frozen=True, kw_only=True):
    label: Label
    passes: list[Pass]
    published: Totals

    @property
    def single(self) -> list[Pass]:
        return [each for each in self.passes if each.at_once == 1]

    @property
    def together(self) -> list[Pass]:
        return [each for each in self.passes if each.at_once > 1]


class NoModel(GatewayError):
    """The model server cannot be asked, or has none."""


class Served(Struct, frozen=True):
    """What is read of an entry of /v1/models. Other servers than ours tell the name only."""

    id: str
    file: str | None = None
    quantisation: str | None = None


class Models(Struct, frozen=True):
    data: list[Served]


class Plan(Struct, frozen=True, kw_only=True):
    """What was asked for on the command line."""

    base_url: str | None
    model: str | None
    repeat: int
    concurrency: int
    record: Path | None = None
    tasks: tuple[int, ...] = tuple(range(1, len(TASKS) + 1))


def six_tasks(plan: Plan, *, as_json: bool, picture: str | None) -> int:
    """Measure, print the table or JSON, and draw the picture if one is asked for."""
    try:
        report = asyncio.run(measure(plan))
    except (GatewayError, TimeoutError, aiohttp.ClientError) as error:
        words = str(error) or "it took too long."
        Console(stderr=True, highlight=False).print(f"The six tasks could not be run: {words}", markup=False)
        return 1
    if as_json:
        sys.stdout.write(encode(report).decode() + "\n")
    else:
        print_report(report)
    if picture is not None:
        from gateway.bench.pictures import draw_six_tasks

        draw_six_tasks(report, Path(picture))
    return 0


# --- measuring ------------------------------------------------------------------------------------------------------


async def measure(plan: Plan) -> Report:
    """Passes one after another, each with the machine to itself."""
    with tempfile.TemporaryDirectory(prefix="six-tasks-") as name:
        folder = Path(name)
        if plan.base_url is None:
            return await measure_afresh(plan, folder)
        return await measure_given(plan, plan.base_url, folder)


async def measure_afresh(plan: Plan, folder: Path) -> Report:
    """Every pass finds an empty cache, also the one with several agents, so that their times can be compared."""
    passes: list[Pass] = []
    label: Label | None = None
    for number, at_once in enumerate(order_of(plan)):
        beside = folder / f"pass-{number}"
        beside.mkdir()
        async with model_server(plan.model, beside / "model-server.log") as base_url:
            label = label or await label_of(base_url, None)
            passes.append(await one_pass(base_url, plan, beside, at_once, cache="empty"))
    assert label is not None
    return Report(label=label, passes=passes, published=PUBLISHED_TOTALS)


async def measure_given(plan: Plan, base_url: str, folder: Path) -> Report:
    """A server that others started keeps its cache. Where times are compared, a pass that does not count fills it."""
    label = await label_of(base_url, plan.model)
    passes: list[Pass] = []
    if plan.concurrency > 1:
        await one_pass(base_url, plan, folder / "warm-up", 1, cache="as it was found")
    cache = "of the same tasks" if plan.concurrency > 1 else "as it was found"
    for number, at_once in enumerate(order_of(plan)):
        passes.append(await one_pass(base_url, plan, folder / f"pass-{number}", at_once, cache=cache))
        cache = "of the same tasks"
    return Report(label=label, passes=passes, published=PUBLISHED_TOTALS)


def order_of(plan: Plan) -> list[int]:
    """How many agents at once in each pass."""
    return ([1] if plan.concurrency == 1 else [1, plan.concurrency]) * plan.repeat


async def one_pass(base_url: str, plan: Plan, folder: Path, at_once: int, *, cache: str) -> Pass:
    """With an empty folder for the files, the record, and what the gateway logs."""
    config = config_of(folder, base_url, plan.model if plan.base_url else None)  # one of our own has only one model
    limit = asyncio.Semaphore(at_once)
    async with serving(config) as process, Gateway(process.url) as gateway:
        began = time.perf_counter()
        timed = await asyncio.gather(*(timed_task(gateway, number, limit) for number in plan.tasks))
        seconds = time.perf_counter() - began
        traced = [Traced(*each, await trace(gateway, each[1])) for each in timed]
    if plan.record:
        plan.record.write_bytes(
            as_lines([line for each in traced for line in requests_of(each.number, each.run_id, each.events)])
        )
    runs = [task_run(each.number, each.events, each.wall_ms) for each in traced]
    return Pass(at_once=at_once, cache=cache, seconds=round(seconds, 3), runs=runs, totals=totals(runs))


class Traced(NamedTuple):
    """A task that was run: how long a client waited for it, and its trace."""

    number: int
    run_id: str
    wall_ms: float
    events: list[Event]


async def timed_task(gateway: Gateway, number: int, limit: asyncio.Semaphore) -> tuple[int, str, float]:
    """The task, the id of its run, and how long a client waited for it."""
    order = StartRun(input=TASKS[number - 1].question, agent=agent_of(number))
    async with limit:
        began = time.perf_counter()
        run = await gateway.start(order, wait_seconds=TASK_SECONDS_MAX)
        return number, run.id, (time.perf_counter() - began) * 1000


async def label_of(base_url: str, asked: str | None) -> Label:
    found = await served_model(base_url, asked)
    return Label(
        model=found.id,
        kind=kind_of(found.id if found.file is None else f"{found.id} {found.file}"),
        file=found.file,
        quantisation=found.quantisation,
        machine=this_machine(),
    )


async def served_model(base_url: str, asked: str | None) -> Served:
    timeout = aiohttp.ClientTimeout(total=ASK_SECONDS_MAX)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{base_url.rstrip('/')}/models") as response,
        ):
            models = msgspec.json.decode(await response.read(), type=Models)
    except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError):
        raise NoModel(f"{base_url}/models does not list models: is a model server there, with its /v1?") from None
    listed = {model.id: model for model in models.data}
    if asked is not None:
        return listed.get(asked, Served(asked))
    if not models.data:
        raise NoModel(f"{base_url} has no model.")
    return models.data[0]


# --- the gateway's configuration ------------------------------------------------------------------------------------


def agent_of(number: int) -> str:
    return f"task-{number}"


def config_of(folder: Path, base_url: str, model: str | None) -> Path:
    """An agent a task, each over files of its own. Greedy is said, since other servers than ours sample by default."""
    provider = {
        "base_url": base_url,
        "read_timeout_seconds": READ_SECONDS_MAX,
        "total_timeout_seconds": READ_SECONDS_MAX,
        "retries_max": 0,
        "extra_body": {"temperature": 0, "max_tokens": REPLY_TOKENS_MAX},
    }
    models = {agent_of(number): model for number in range(1, len(TASKS) + 1)}
    return write_config(folder, models, provider=provider, price={"free": True}, turns_max=TURNS_MAX)
