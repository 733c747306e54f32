"""A load of mixed scripts, which ends runs in every way there is: something to look at on dashboards.

python -m gateway.bench.mixed --url http://127.0.0.1:8787 --per-second 2
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Any

import typer
from msgspec import Struct

from gateway.bench.scenarios import QUESTION
from gateway.client import ChangedStopRules, Gateway, GatewayProblem, RaisedLimits, RunBody, StartRun
from gateway.core.errors import GatewayError
from gateway.core.run import Status
from gateway.service.agents import FunctionDefinition, ToolDefinition
from scripted.scripts import SCRIPTS, Call, Script, Step

log = logging.getLogger(__name__)

WAIT_SECONDS_MAX = 30.0
UNDER_WAY_MAX = 32
SOON_SECONDS = 0.3
PUBLISH_SECONDS = 1.0

LOAD_SCRIPTS = {
    **SCRIPTS,
    "publish": Script(
        "Publishes, which takes a while.", (Step(turn=0, calls=(Call("c1", "publish"),)), Step(text="Done."))
    ),
    "weather": Script(
        "Asks the client.", (Step(turn=0, calls=(Call("c1", "weather", {"city": "Oslo"}),)), Step(text="Rain."))
    ),
}
WEATHER = ToolDefinition(
    type="function", function=FunctionDefinition(name="weather", description="The weather in a city.")
)

Then = Callable[[Gateway, RunBody], Awaitable[Any]]


async def publish() -> str:
    """Publish what was found."""
    await asyncio.sleep(PUBLISH_SECONDS)
    return "published"


# --- what happens to a run after it was started -----------------------------------------------------------------------


async def nothing(gateway: Gateway, run: RunBody) -> None:
    return


async def approved(gateway: Gateway, run: RunBody) -> None:
    for call in run.pending_approvals:
        await gateway.approve(run.id, call.call_id, args_hash=call.args_hash, wait_seconds=WAIT_SECONDS_MAX)


async def rejected(gateway: Gateway, run: RunBody) -> None:
    for call in run.pending_approvals:
        await gateway.reject(run.id, call.call_id, "keep the log.", wait_seconds=WAIT_SECONDS_MAX)


async def stopped_soon(gateway: Gateway, run: RunBody) -> None:
    await asyncio.sleep(SOON_SECONDS)
    await gateway.cancel(run.id, "stopped by the load")


async def put_in_doubt(gateway: Gateway, run: RunBody) -> None:
    """Stopped in the middle of a write, and resumed."""
    await stopped_soon(gateway, run)
    await gateway.resume(run.id, wait_seconds=WAIT_SECONDS_MAX)


async def resumed(gateway: Gateway, run: RunBody) -> None:
    if run.status is Status.MAX_TURNS_EXCEEDED:
        raised = RaisedLimits(max_turns=run.turns + 2)
        await gateway.resume(run.id, raised, wait_seconds=WAIT_SECONDS_MAX)


class Order(Struct, frozen=True):
    """One kind of run: what is asked, whether its stop is waited for, what is done then, and how often it comes."""

    start: StartRun
    weight: int = 1
    then: Then = nothing
    waits: bool = True


def order(model: str, weight: int = 1, then: Then = nothing, *, waits: bool = True, **fields: Any) -> Order:
    return Order(
        StartRun(input=QUESTION, agent=fields.pop("agent", "files"), model=model, **fields), weight, then, waits
    )


CENT = Decimal("0.01")
ORDERS: Sequence[Order] = (
    order("plan", 6),
    order("plan@latency=200", 3),
    order("recover", 3),
    order("once", 2),
    order("repeat", 2),
    order("delegate", 3, agent="lead"),
    order("runaway", 2, limits=RaisedLimits(max_turns=12)),
    order("runaway", 1, resumed, limits=RaisedLimits(max_turns=4)),
    order("runaway", 2, limits=RaisedLimits(max_budget_usd=CENT / 2)),
    order("runaway", 1, limits=RaisedLimits(max_budget_usd=CENT / 2, budget_mode="hard")),
    order("runaway", 1, stop_rules=ChangedStopRules(repeated_calls=3)),
    order("destructive"),
    order("destructive", 2, approved),
    order("destructive", 1, rejected),
    order("slow", 1, stopped_soon, waits=False),
    order("publish", 1, put_in_doubt, waits=False),
    order("plan@latency=800", 1, limits=RaisedLimits(deadline_seconds=0.5)),
    order("weather", 1, tools=[WEATHER]),
    order("once@fault=429:1", 2),
    order("once@fault=503", 1),
    order("once@fault=401", 1),
)


# --- the load ---------------------------------------------------------------------------------------------------------


async def carry_out(gateway: Gateway, wanted: Order) -> None:
    """A refusal is a line in the log: the load goes on."""
    try:
        run = await gateway.start(wanted.start, wait_seconds=WAIT_SECONDS_MAX if wanted.waits else 0)
        await wanted.then(gateway, run)
    except GatewayProblem as problem:
        log.warning("%s: %s", wanted.start.model, problem)


async def each_once(gateway: Gateway) -> None:
    """Every kind of run, side by side."""
    await asyncio.gather(*(carry_out(gateway, wanted) for wanted in ORDERS))


async def mixed(gateway: Gateway, per_second: float, seed: int = 1) -> None:
    """Runs at this rate, for ever, in an order that the seed alone decides. Where the gateway falls behind, fewer."""
    chance = random.Random(seed)
    under_way = asyncio.Semaphore(UNDER_WAY_MAX)

    async def one(wanted: Order) -> None:
        try:
            await carry_out(gateway, wanted)
        finally:
            under_way.release()

    async with asyncio.TaskGroup() as tasks:
        for _ in itertools.count():
            await under_way.acquire()
            tasks.create_task(one(chance.choices(ORDERS, [wanted.weight for wanted in ORDERS])[0]))
            await asyncio.sleep(1 / per_second)


def main(
    url: str = typer.Option("http://127.0.0.1:8787", help="The gateway; its agents are those of `make observe`."),
    per_second: float = typer.Option(2.0, help="Runs a second."),
) -> None:
    """Put a load of mixed scripts on a gateway, until Ctrl-C."""

    async def load() -> None:
        async with Gateway(url) as gateway:
            await mixed(gateway, per_second)

    try:
        asyncio.run(load())
    except* GatewayError as errors:
        sys.exit(str(errors.exceptions[0]))
    except* KeyboardInterrupt:
        pass


if __name__ == "__main__":
    typer.run(main)
