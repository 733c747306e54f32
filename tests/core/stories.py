"""Runs to test with: one in each state, and a few long stories, which golden logs are made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.calls import Execute
from gateway.core.commands import ToolOutput
from gateway.core.messages import Assistant, Developer, User
from gateway.core.pricing import Usage
from gateway.core.run import Limits, Parent, Policies, Run
from tests.core.world import (
    DENIED,
    FAILED,
    PRICE,
    Asked,
    Came,
    Fate,
    Player,
    Said,
    World,
    answers,
    asks,
    calls,
    says,
    world_that_asked,
)

# --- a run in each state --------------------------------------------------------------------------------------------


def running() -> World:
    return World()


def completed() -> World:
    world = World()
    world.drive(Player([says("hello")]))
    return world


def failed() -> World:
    """Failed with a call that nobody has judged: the first of two fails for good."""
    world = world_that_asked(
        asks("read", path="/etc/shadow"), asks("delete", path="a"), policies=Policies(on_permanent_error="stop")
    )
    world.drive(Player(came={"read": [DENIED]}))
    return world


def max_turns() -> World:
    world = World(limits=Limits(max_turns=2))
    world.drive(Player([calls(asks("list")), calls(asks("delete", path="a"))]))
    return world


def max_budget() -> World:
    world = World(limits=Limits(max_turns=None, max_budget_usd=Decimal("0.0006")))
    world.drive(Player([calls(asks("list")), calls(asks("delete", path="a"))]))
    return world


def approval() -> World:
    world = world_that_asked(asks("delete", path="a"))
    world.drive(Player())
    return world


def cancelled() -> World:
    world = approval()
    world.cancel()
    return world


def client_outputs() -> World:
    world = world_that_asked(asks("ask_user", "q1", question="1?"), asks("ask_user", "q2", question="2?"))
    world.drive(Player())
    return world


def in_doubt() -> World:
    world = world_that_asked(asks("write", path="a"))
    world.record(world.intent(world.run.calls[0]))
    world.recover()
    world.drive(Player())
    return world


def deadline() -> World:
    world = world_that_asked(asks("list"), limits=Limits(deadline_seconds=10.0))
    world.now += timedelta(seconds=12)
    world.drive(Player())
    return world


def provider_down() -> World:
    class Down(Player):
        def fate(self) -> Fate:
            return "down"

    world = World()
    world.drive(Down())
    return world


STATES = {
    make.__name__: make
    for make in (
        running,
        completed,
        failed,
        max_turns,
        max_budget,
        approval,
        cancelled,
        client_outputs,
        in_doubt,
        deadline,
        provider_down,
    )
}


# --- long stories ---------------------------------------------------------------------------------------------------


def plan() -> World:
    """The published run of three turns, to the token."""
    world = World("n1", policies=Policies(dedupe="off"))
    said = [
        calls(asks("list"), prompt=204, completion=23),
        calls(asks("read", "c2", path="errors.log"), prompt=269, completion=29),
        says("errors.log mentions a timeout.", prompt=342, completion=18),
    ]
    world.drive(Player(said, {"list": [Came('["access.log","errors.log"]')], "read": [Came("ERROR timeout\n")]}))
    return world


def destructive() -> World:
    """A deletion that a person rejects in words."""
    world = World("n1")
    player = Player(
        [
            calls(asks("list"), prompt=204, completion=23),
            calls(asks("delete", "c2", path="access.log"), prompt=269, completion=29),
            says("I did not delete anything.", prompt=320, completion=9),
        ]
    )
    world.drive(player)
    world.reject("n1:2:0", "keep the log.")
    world.drive(player)
    return world


def capped() -> World:
    """A cap, a verdict that outlives it, a raised cap, a budget, a raised budget."""
    world = World("capped", limits=Limits(max_turns=2, max_budget_usd=Decimal("0.0009")))
    player = Player(
        [
            calls(asks("list"), asks("read", "c2", path="a")),
            calls(asks("delete", path="a"), asks("delete", path="b")),
            calls(asks("put", path="a")),
            says("done"),
        ]
    )
    world.drive(player)
    world.approve("capped:2:0")
    world.resume(max_turns=9)
    world.drive(player)
    world.reject("capped:2:1")
    world.drive(player)
    world.resume(max_budget_usd=None)
    world.drive(player)
    return world


def crashed() -> World:
    """Crashes: a reply lost in flight, an idempotent write, and a write in doubt that happened after all."""
    world = World("crashed")
    player = Player(
        [
            calls(asks("put", path="a"), asks("write", "c2", path="b")),
            calls(asks("write", path="c"), asks("poll", "c2")),
            says("done"),
        ]
    )
    flight = world.perform(world.decide(), player)
    world.record(next(flight))
    world.recover()
    world.step(player)
    world.record(world.intent(world.run.calls[0]))
    world.recover()
    world.step(player)
    world.record(world.intent(world.run.calls[1]))
    world.recover()
    world.drive(player)
    world.post_all([ToolOutput(call_id="crashed:1:1", output="it was written")])
    world.step(player)
    world.record(world.intent(world.run.calls[0]))
    world.recover()
    world.drive(player)
    world.approve("crashed:2:0")
    world.drive(player)
    return world


def everything() -> World:
    """Every event and every field: parallel reads in reverse order, invalid calls, reissued ids, progress, the client's
    calls, a lost reply, a cancel, a cached answer, a refused request."""

    class Odd(Player):
        fates = iter(("whole", "lost", "whole", "whole", "refused"))

        def fate(self) -> Fate:
            return next(self.fates)

        def finishing_order(self, steps: tuple[Execute, ...]) -> Sequence[Execute]:
            return steps[::-1]

    world = World(
        'every/thing "1"',
        price=replace(PRICE, cached_input=Decimal("0.5"), reasoning=Decimal(24), as_of=date(2026, 1, 1)),
        messages=(Developer("Be brief."), User([{"type": "text", "text": "hi"}], "ada"), Assistant("hello"), User("?")),
        stream=True,
        parent=Parent("p1", "p1:1:0"),
        metadata={"ticket": "7"},
    )
    player = Odd(
        [
            Said(
                (
                    asks("read", path="a"),
                    asks("read", path="a"),
                    asks("poll"),
                    asks("nothing"),
                    Asked("read", "{", "c9"),
                    asks("read", path="b"),
                ),
                "I shall look.",
                Usage(
                    prompt_tokens=900, completion_tokens=90, total_tokens=990, cached_tokens=800, reasoning_tokens=60
                ),
            ),
            calls(asks("sign", paper="will"), asks("ask_user", "c2", question="naïve “or” not? 🙂")),
            calls(asks("read", path="b")),
        ],
        {"read": [FAILED, Came('text of a\n\u2028"quoted"')]},
    )
    for event in world.perform(world.decide(), player):
        odd = {"estimated": True, "first_token_ms": 3.5, "provider_ms": {"queue": 0.25}}
        world.record(replace(event, **odd) if isinstance(event, e.Turn) else event)
    world.record(e.ToolProgress(tool_name="poll", label="200 of 1200", call=world.run.calls[2].id, time=world.now))
    world.drive(player)
    world.approve(world.run.calls[0].id)
    world.drive(player)
    world.cancel("lunch")
    world.resume(deadline_seconds=3600.0)
    world.drive(player)
    world.post_all(
        [
            ToolOutput(call_id=world.run.calls[1].id, output="yes"),
            ToolOutput(call_id=world.run.calls[0].id, output="no pen", ok=False),
        ]
    )
    world.drive(player)
    return world


STORIES = {make.__name__: make for make in (plan, destructive, capped, crashed, everything)}


GOLDEN = Path(__file__).with_name("golden")


def figures_of(run: Run) -> dict[str, Any]:
    """The fields of a run that a golden log must give for ever."""
    return {
        "id": run.id,
        "status": run.status,
        "reason": run.reason,
        "output": run.output,
        "error": run.error,
        "turns": run.turns,
        "tool_runs": run.tool_runs,
        "messages": len(run.messages),
        "answers": answers(run),
        "prompt_tokens": run.usage.prompt_tokens,
        "completion_tokens": run.usage.completion_tokens,
        "cost_usd": str(run.cost_usd),
        "unconfirmed_cost_usd": str(run.unconfirmed_cost_usd),
        "approved": list(run.approved),
        "rejected": list(run.rejected),
        "max_turns": run.limits.max_turns,
        "seq": run.seq,
    }


def main() -> None:
    """Write the golden logs of this schema version: `python -m tests.core.stories`. One that is there is the past, and
    is never written again."""
    for name, make in STORIES.items():
        log = GOLDEN / f"v{e.VERSION}_{name}.jsonl"
        if log.exists():
            continue
        world = make()
        log.write_bytes(b"".join(line + b"\n" for line in world.trace()))
        expected = json.dumps(figures_of(world.run), indent=1, ensure_ascii=False)
        log.with_suffix(".json").write_text(expected + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
