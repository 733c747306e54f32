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
        **pinned: Any,
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
            **pinned,
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

    def recover(self, cause: e.TakenUp = "recovery") -> list[e.Event]:
        self.reload()
        return self.took(commands.recover(self.run, self.now, cause))

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


# --- what the tests look at


def batch(world: World) -> list[str]:
    """The tools of the next batch; in brackets where they are answered without being run."""
    action = world.decide()
    assert isinstance(action, UseTools), action
    return [step.call.tool if isinstance(step, Execute) else f"({step.source})" for step in action.steps]


def batches(world: World) -> list[list[str]]:
    """Every batch until the model is asked again, or the run stops."""
    seen = []
    while isinstance(world.decide(), UseTools):
        seen.append(batch(world))
        world.step(Player())
    return seen


def the_answer(world: World) -> Answer:
    action = world.decide()
    assert isinstance(action, UseTools), action
    (step,) = action.steps
    assert isinstance(step, Answer), step
    return step
