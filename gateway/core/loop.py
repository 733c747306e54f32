"""The loop: what happens next (`decide`), and what each event does to the run (`apply`). Both are pure.

A driver alternates the two:

    while run.status is RUNNING:
        for event in perform(decide(run, rules, now)):
            record(event)
            run = apply(run, event)

so a run that is loaded again, from any prefix of its log, takes the same next action.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.calls import UseTools, approval_of, next_steps, waiting_for_verdict
from gateway.core.codec import call_key
from gateway.core.messages import Assistant, Message, Tool, text_of
from gateway.core.pricing import ZERO, Usage
from gateway.core.run import Approval, Call, Interruption, Outcome, Run, Status, Verdict
from gateway.core.stopping import Rule, Stop

# --- what happens next ----------------------------------------------------------------------------------------------


class Rest(Struct, frozen=True):
    """Nothing: the run has stopped."""


class AskModel(Struct, frozen=True):
    """Send the transcript to the model."""


Action = Rest | Stop | UseTools | AskModel


def decide(run: Run, rules: Sequence[Rule], now: datetime) -> Action:
    """The next action. Every limit is checked here, by the rules, and nowhere else; the order is part of the design:
    a run that is capped leaves its last calls outstanding, and a raised cap runs them first."""
    if run.status is not Status.RUNNING:
        return Rest()
    if answered(run):
        return Stop(Status.COMPLETED)
    for rule in rules:
        if stop := rule(run, now):
            return stop
    return next_steps(run) or AskModel()


def answered(run: Run) -> bool:
    """Whether the model's last word was prose without tool calls."""
    last = run.messages[-1]
    return isinstance(last, Assistant) and not last.tool_calls


# --- what each event does -------------------------------------------------------------------------------------------


def replay(run_id: str, events: Iterable[e.Event]) -> Run:
    """The run that these events make. Raises ValueError if they do not begin with `run_started`."""
    run: Run | None = None
    for event in events:
        run = start(run_id, event) if run is None else apply(run, event)
    if run is None:
        raise ValueError(f"run {run_id} has no events")
    return run


def start(run_id: str, event: e.Event) -> Run:
    """The run that a first event makes."""
    if not isinstance(event, e.RunStarted):
        raise ValueError(f"run {run_id} does not begin with run_started")
    return Run(
        id=run_id,
        agent=event.agent,
        model=event.model,
        provider=event.provider,
        tools=event.tools,
        limits=event.limits,
        policies=event.policies,
        price=event.price,
        messages=event.messages,
        stream=event.stream,
        parent=event.parent,
        metadata=event.metadata,
        created_at=event.time,
        updated_at=event.time,
        driven_since=event.time,
        seq=1,
    )


def apply(run: Run, event: e.Event) -> Run:
    """The run after the event. Looks nothing up and prices nothing: all of it comes in the event."""
    return replace(run, seq=run.seq + 1, updated_at=event.time, **changes(run, event))


def changes(run: Run, event: e.Event) -> dict[str, Any]:
    match event:
        case e.TurnStart():
            return {"unconfirmed_cost_usd": event.unconfirmed_usd, "in_flight_usd": event.estimate_usd}
        case e.Turn():
            return turned(run, event)
        case e.ToolStart():
            return begun(run, event)
        case e.ToolResult():
            return called(run, event)
        case e.ApprovalRequired():
            return {"calls": with_call(run, event.call, announced=True)}
        case e.VerdictGiven():
            return judged(run, event)
        case e.RunResumed():
            return resumed(run, event)
        case e.RunStopped():
            return stopped(run, event)
        case e.ToolProgress():
            return {}
        case e.RunStarted():
            raise ValueError(f"run {run.id} has started already")
        case _:
            assert_never(event)


def turned(run: Run, event: e.Turn) -> dict[str, Any]:
    usage = Usage(
        prompt_tokens=event.prompt_tokens,
        completion_tokens=event.completion_tokens,
        total_tokens=event.total_tokens,
        cached_tokens=event.cached_tokens,
        reasoning_tokens=event.reasoning_tokens,
    )
    asked = zip(event.message.tool_calls, event.checks, strict=True)
    return {
        "turns": event.turn,
        "messages": (*run.messages, event.message),
        "usage": run.usage.plus(usage),
        "last_usage": usage,
        "cost_usd": event.cost_usd,
        "unconfirmed_cost_usd": event.unconfirmed_usd,
        "in_flight_usd": ZERO,
        "recoveries": 0,
        "calls": tuple(
            Call(
                id=f"{run.id}:{event.turn}:{index}",
                provider_id=tool_call.id,
                tool=tool_call.function.name,
                arguments=tool_call.function.arguments,
                args=check.args,
                problem=check.problem,
            )
            for index, (tool_call, check) in enumerate(asked)
        ),
    }


def begun(run: Run, event: e.ToolStart) -> dict[str, Any]:
    """From here on a write may have had its effect, even if no result of it is ever recorded."""
    spec = run.tool(event.tool_name)
    reads = spec is not None and spec.read_only
    return {"calls": with_call(run, event.call, started=True), "remembered": run.remembered if reads else {}}


def called(run: Run, event: e.ToolResult) -> dict[str, Any]:
    call = call_of(run, event.call)
    outcome = Outcome(event.ok, event.permanent, event.source)
    executed = event.source in ("tool", "settled")
    return {
        "calls": with_call(run, event.call, outcome=outcome),
        "messages": with_answer(run, call, Tool(event.provider_id, event.tool_name, event.content)),
        "tool_runs": run.tool_runs + executed,
        "remembered": remembered(run, call, event),
        "permanent_failures": failures(run, call) if event.permanent else run.permanent_failures,
        "recoveries": 0,
    }


def with_answer(run: Run, call: Call, answer: Tool) -> tuple[Message, ...]:
    """The messages with the answer at its place: answers stand in the order asked, whichever came first."""
    before = sum(other.outcome is not None for other in run.calls[: run.calls.index(call)])
    behind = sum(other.outcome is not None for other in run.calls) - before
    cut = len(run.messages) - behind
    return (*run.messages[:cut], answer, *run.messages[cut:])


def remembered(run: Run, call: Call, event: e.ToolResult) -> dict[str, str]:
    """Successful answers that a repeated call may be given. Whatever does more than read clears them."""
    if event.source in ("cache", "refusal", "invalid") or call.args is None:
        return run.remembered
    spec = run.tool(call.tool)
    reads = spec is not None and spec.read_only
    repeatable = spec is not None and spec.read_only and spec.cacheable
    kept = run.remembered if reads else {}
    keeps = run.policies.dedupe == "all" or (run.policies.dedupe == "read_only" and repeatable)
    return {**kept, call_key(call.tool, call.args): event.content} if event.ok and keeps else kept


def failures(run: Run, call: Call) -> dict[str, int]:
    key = call_key(call.tool, call.args or {})
    return {**run.permanent_failures, key: run.permanent_failures.get(key, 0) + 1}


def judged(run: Run, event: e.VerdictGiven) -> dict[str, Any]:
    """A verdict also settles a doubt: the call begins anew, or is skipped in words."""
    verdict = Verdict(event.approved, event.reason)
    approved = tuple(call for call in run.approved if call != event.call)
    rejected = tuple(call for call in run.rejected if call != event.call)
    calls = with_call(run, event.call, verdict=verdict, started=False)
    return {
        "calls": calls,
        "interruption": still_missing(run, calls),
        "approved": (*approved, event.call) if event.approved else approved,
        "rejected": rejected if event.approved else (*rejected, event.call),
        "recoveries": 0,
    }


def still_missing(run: Run, calls: tuple[Call, ...]) -> Interruption | None:
    """A run that waits for approvals names the first that is missing."""
    waiting = waiting_for_verdict(replace(run, calls=calls))
    if not waiting or not isinstance(run.interruption, Approval):
        return run.interruption
    return approval_of(waiting[0], waiting[0].args or {})


def resumed(run: Run, event: e.RunResumed) -> dict[str, Any]:
    """After a crash the time between the last event and the recovery was not driven."""
    recovery = event.cause == "recovery"
    driven = run.driven + (run.updated_at - run.driven_since) if recovery else run.driven
    return {
        "status": Status.RUNNING,
        "interruption": None,
        "error": None,
        "limits": event.limits or run.limits,
        "driven": driven,
        "driven_since": event.time,
        "in_flight_usd": ZERO,
        "recoveries": run.recoveries + 1 if recovery else 0,
    }


def stopped(run: Run, event: e.RunStopped) -> dict[str, Any]:
    was_driven = run.status is Status.RUNNING
    last = run.messages[-1]
    return {
        "status": event.status,
        "interruption": event.interruption,
        "error": event.error,
        "output": text_of(last.content) if event.status is Status.COMPLETED and isinstance(last, Assistant) else "",
        "unconfirmed_cost_usd": event.unconfirmed_usd,
        "in_flight_usd": ZERO,
        "driven": run.driven + (event.time - run.driven_since) if was_driven else run.driven,
    }


def call_of(run: Run, call_id: str) -> Call:
    """The call of the last turn with this id. Raises ValueError if there is none: the log would be corrupt."""
    for call in run.calls:
        if call.id == call_id:
            return call
    raise ValueError(f"run {run.id} has no call {call_id} in turn {run.turns}")


def with_call(run: Run, call_id: str, **fields: Any) -> tuple[Call, ...]:
    call = call_of(run, call_id)
    return tuple(replace(other, **fields) if other is call else other for other in run.calls)
