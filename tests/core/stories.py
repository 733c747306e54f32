"""A driver for the tests: what gateway/service does with sockets, threads and a store, here in one thread, without a
clock, and one event at a time. A `World` is a run with its log; a `Player` is everybody else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from gateway.core import commands
from gateway.core import events as e
from gateway.core.calls import Answer, Execute, UseTools, waiting_for_verdict
from gateway.core.codec import decode_event, encode, trace_line
from gateway.core.commands import RaisedLimits, ToolOutput
from gateway.core.estimates import expected_usage
from gateway.core.loop import Action, AskModel, Rest, apply, decide, replay, start
from gateway.core.messages import Assistant, Function, Message, System, Tool, ToolCall, User
from gateway.core.pricing import ZERO, Price, Usage, cost, total
from gateway.core.run import Approval, Call, Limits, Policies, ProviderDown, Run, Status, ToolSpec
from gateway.core.stopping import RULES, Stop

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
PRICE = Price(input=Decimal(2), output=Decimal(12))
MESSAGES: tuple[Message, ...] = (System("Answer."), User("Which file mentions a timeout?"))
LIMITS = Limits()
POLICIES = Policies()


def tool(name: str, *required: str, **flags: Any) -> ToolSpec:
    properties = {key: {"type": "string"} for key in required}
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSpec(name=name, description=f"The tool {name}.", parameters=schema, **flags)


TOOLS = (
    tool("list", read_only=True, cacheable=True),
    tool("read", "path", read_only=True, cacheable=True),
    tool("poll", read_only=True),
    tool("write", "path"),
    tool("put", "path", idempotent=True),
    tool("delete", "path", needs_approval=True),
    tool("peek", "path", read_only=True, needs_approval=True),
    tool("ask_user", "question", client_side=True),
    tool("sign", "paper", client_side=True, needs_approval=True),
)


class Asked(Struct, frozen=True):
    """A tool call as the model asks for it."""

    tool: str
    arguments: str = "{}"
    id: str = "c1"


def asks(name: str, id: str = "c1", **args: Any) -> Asked:
    return Asked(name, json.dumps(args, separators=(",", ":")), id)


class Said(Struct, frozen=True):
    """A reply of the model."""

    calls: tuple[Asked, ...] = ()
    text: str | None = None
    usage: Usage = Usage(prompt_tokens=100, completion_tokens=10, total_tokens=110)

    @property
    def message(self) -> Assistant:
        calls = tuple(ToolCall(asked.id, "function", Function(asked.tool, asked.arguments)) for asked in self.calls)
        return Assistant(self.text, calls)


def says(text: str, prompt: int = 100, completion: int = 10) -> Said:
    return Said((), text, tokens(prompt, completion))


def calls(*asked: Asked, prompt: int = 100, completion: int = 10) -> Said:
    return Said(asked, None, tokens(prompt, completion))


def tokens(prompt: int, completion: int) -> Usage:
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


class Came(Struct, frozen=True):
    """What came back from a tool."""

    content: str = "done"
    ok: bool = True
    permanent: bool = False


DENIED = Came("Error: permission denied.", ok=False, permanent=True)
FAILED = Came("Error: no such file.", ok=False)

Fate = Literal["whole", "lost", "down", "refused"]
"""What becomes of one request to the provider: a reply, a lost reply and another attempt, or no reply at all."""


class Player:
    """The provider and the tools. This one takes what it says from lists; tools that have no list say `done`."""

    def __init__(self, said: Iterable[Said] = (), came: dict[str, Sequence[Came]] | None = None) -> None:
        self.said = iter(said)
        self.came = {name: iter(results) for name, results in (came or {}).items()}

    def fate(self) -> Fate:
        return "whole"

    def reply(self, run: Run) -> Said:
        return next(self.said)

    def use(self, call: Call, spec: ToolSpec) -> Came:
        return next(self.came.get(call.tool, iter(())), Came())

    def finishing_order(self, steps: tuple[Execute, ...]) -> Sequence[Execute]:
        return steps


def check(run: Run, asked: Asked) -> e.Check:
    """Unknown tool → bad JSON → schema, as the service does it, for the few schemas here."""
    spec = run.tool(asked.tool)
    if spec is None:
        return e.Check(None, f"Error: there is no tool {asked.tool}.")
    try:
        args = json.loads(asked.arguments)
    except ValueError:
        return e.Check(None, "Error: the arguments are not JSON.")
    missing = [key for key in spec.parameters["required"] if not isinstance(args, dict) or key not in args]
    return e.Check(None, f"Error: {missing[0]} is missing.") if missing else e.Check(args)


class World:
    """A run, its log, and the time."""

    def __init__(
        self,
        run_id: str = "n1",
        *,
        limits: Limits = LIMITS,
        policies: Policies = POLICIES,
        tools: tuple[ToolSpec, ...] = TOOLS,
        price: Price = PRICE,
        messages: tuple[Message, ...] = MESSAGES,
    ) -> None:
        self.now = NOON
        first = e.RunStarted(
            agent="test",
            model="scripted",
            messages=messages,
            tools=tools,
            limits=limits,
            policies=policies,
            price=price,
            version=e.VERSION,
            time=NOON,
        )
        self.run = start(run_id, first)
        self.events: list[e.Event] = [first]

    # --- the record

    def record(self, *events: e.Event) -> None:
        for event in events:
            self.events.append(event)
            self.run = apply(self.run, event)
            self.now += timedelta(milliseconds=250)

    def reload(self) -> None:
        """The process dies: all that is left are the bytes."""
        self.run = reloaded(self.run.id, self.events)

    def trace(self) -> list[bytes]:
        return [trace_line(self.run.id, seq, encode(event)) for seq, event in enumerate(self.events, start=1)]

    # --- the driver

    def decide(self) -> Action:
        return decide(self.run, RULES, self.now)

    def drive(self, player: Player, actions: int = 1000) -> Run:
        for _ in range(actions):
            if self.run.status is not Status.RUNNING:
                break
            self.step(player)
        return self.run

    def step(self, player: Player) -> None:
        for event in self.perform(self.decide(), player):
            self.record(event)

    def perform(self, action: Action, player: Player) -> Iterator[e.Event]:
        """The events of an action; the consumer records each before it asks for the next."""
        match action:
            case Rest():
                return
            case AskModel():
                yield from self.ask(player)
            case UseTools(steps=steps):
                yield from self.use(steps, player)
            case Stop() as stop:
                yield from self.stop(stop)

    def ask(self, player: Player) -> Iterator[e.Event]:
        """Up to three attempts. An attempt whose reply was lost may be billed, and stays in the unconfirmed cost."""
        estimate = cost(self.run.price, expected_usage(self.run))
        unconfirmed = self.run.unconfirmed_cost_usd
        for attempt in range(1, 4):
            unconfirmed += estimate
            yield e.TurnStart(
                turn=self.run.turns + 1,
                attempt=attempt,
                estimate_usd=estimate,
                unconfirmed_usd=unconfirmed,
                time=self.now,
            )
            match player.fate():
                case "lost":
                    continue
                case "whole":
                    yield self.turn(player.reply(self.run), unconfirmed - estimate)
                case "refused":
                    yield self.turned_away(Stop(Status.FAILED, error="401"), unconfirmed - estimate)
                case "down":
                    yield self.turned_away(Stop(Status.INTERRUPTED, ProviderDown("503")), unconfirmed - estimate)
            return
        yield self.turned_away(Stop(Status.INTERRUPTED, ProviderDown("three replies were lost")), unconfirmed)

    def turned_away(self, why: Stop, unconfirmed: Decimal) -> e.RunStopped:
        return commands.stop(self.run, why, self.now, unconfirmed_usd=unconfirmed)

    def turn(self, said: Said, unconfirmed: Decimal = ZERO) -> e.Turn:
        paid = cost(self.run.price, said.usage)
        return e.Turn(
            turn=self.run.turns + 1,
            prompt_tokens=said.usage.prompt_tokens,
            completion_tokens=said.usage.completion_tokens,
            total_tokens=said.usage.total_tokens,
            cached_tokens=said.usage.cached_tokens,
            reasoning_tokens=said.usage.reasoning_tokens,
            cost_usd=total(self.run.cost_usd, paid),
            turn_cost_usd=paid,
            unconfirmed_usd=total(unconfirmed),
            finish="tool_calls" if said.calls else "stop",
            message=said.message,
            checks=tuple(check(self.run, asked) for asked in said.calls),
            ms=12.5,
            time=self.now,
        )

    def use(self, steps: Sequence[Execute | Answer], player: Player) -> Iterator[e.Event]:
        for step in steps:
            if isinstance(step, Answer):
                yield replace(self.result(step.call, Came(step.content, step.ok)), source=step.source)
        running = tuple(step for step in steps if isinstance(step, Execute))
        for step in running:
            yield self.intent(step.call)
        for step in player.finishing_order(running):
            yield self.result(step.call, player.use(step.call, step.spec))

    def intent(self, call: Call) -> e.ToolStart:
        return e.ToolStart(
            tool_name=call.tool, args=call.arguments, provider_id=call.provider_id, call=call.id, time=self.now
        )

    def result(self, call: Call, came: Came) -> e.ToolResult:
        return e.ToolResult(
            tool_name=call.tool,
            ms=1,
            ok=came.ok,
            provider_id=call.provider_id,
            call=call.id,
            content=came.content,
            permanent=came.permanent,
            time=self.now,
        )

    def stop(self, why: Stop) -> Iterator[e.Event]:
        if isinstance(why.interruption, Approval):
            for call in waiting_for_verdict(self.run):
                if not call.announced:
                    yield e.ApprovalRequired(
                        tool_name=call.tool,
                        args=call.arguments,
                        provider_id=call.provider_id,
                        call=call.id,
                        time=self.now,
                    )
        yield commands.stop(self.run, why, self.now)

    # --- people

    def approve(self, call_id: str, seen_hash: str | None = None) -> list[e.Event]:
        return self.judge(call_id, True, None, seen_hash)

    def reject(self, call_id: str, reason: str | None = None, seen_hash: str | None = None) -> list[e.Event]:
        return self.judge(call_id, False, reason, seen_hash)

    def judge(self, call_id: str, approved: bool, reason: str | None, seen_hash: str | None) -> list[e.Event]:
        return self.took(
            commands.verdict(self.run, call_id, approved=approved, reason=reason, seen_hash=seen_hash, now=self.now)
        )

    def resume(self, **raised: Any) -> list[e.Event]:
        return self.took(commands.resume(self.run, RaisedLimits(**raised), self.now))

    def cancel(self, reason: str = "user pressed Stop") -> list[e.Event]:
        return self.took(commands.cancel(self.run, reason, self.now))

    def post(self, **outputs: str) -> list[e.Event]:
        return self.post_all([ToolOutput(call_id=call_id, output=text) for call_id, text in outputs.items()])

    def post_all(self, outputs: list[ToolOutput]) -> list[e.Event]:
        return self.took(commands.tool_outputs(self.run, outputs, self.now))

    def recover(self) -> list[e.Event]:
        self.reload()
        return self.took(commands.recover(self.run, self.now))

    def took(self, events: list[e.Event]) -> list[e.Event]:
        self.record(*events)
        return events


def reloaded(run_id: str, events: Sequence[e.Event]) -> Run:
    return replay(run_id, [decode_event(encode(event)) for event in events])


def answers(run: Run) -> list[str]:
    """What the model reads of the calls, in the order of the transcript."""
    return [str(message.content) for message in run.messages if isinstance(message, Tool)]


def ids(run: Run) -> list[str]:
    return [call.id for call in run.calls]


def names(events: Iterable[e.Event]) -> list[str]:
    return [str(event.__struct_config__.tag) for event in events]


def world_that_asked(*asked: Asked, **how: Any) -> World:
    """A run whose model has just asked for these calls."""
    world = World(**how)
    world.step(Player([calls(*asked)]))
    return world


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

    world = World('every/thing "1"', price=replace(PRICE, cached_input=Decimal("0.5"), reasoning=Decimal(24)))
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
    world.step(player)
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
    """Write the golden logs of this schema version. A log that is there is never written again: it is the past."""
    from pathlib import Path

    for name, make in STORIES.items():
        log = Path(__file__).with_name("golden") / f"v{e.VERSION}_{name}.jsonl"
        if log.exists():
            continue
        world = make()
        log.write_bytes(b"".join(line + b"\n" for line in world.trace()))
        expected = json.dumps(figures_of(world.run), indent=1, ensure_ascii=False)
        log.with_suffix(".json").write_text(expected + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
