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
from decimal import Decimal
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.calls import UseTools, approval_of, next_steps, waiting_for_verdict
from gateway.core.estimates import reply_cap
from gateway.core.ledger import (
    asked,
    call_of,
    failures,
    remembered,
    tally_answered,
    tally_asked,
    was_cut,
    with_answer,
    with_call,
)
from gateway.core.messages import Assistant, Tool, text_of
from gateway.core.pricing import Usage, total
from gateway.core.run import Approval, Call, Interruption, Outcome, Run, Status, Tally, Verdict
from gateway.core.stopping import Rule, Stop

# --- what happens next ----------------------------------------------------------------------------------------------


class Rest(Struct, frozen=True):
    """Nothing: the run has stopped."""


class AskModel(Struct, frozen=True):
    """Send the transcript to the model. A hard budget caps the reply and says what the call may cost at most."""

    max_tokens: int | None = None
    worst_usd: Decimal | None = None


Action = Rest | Stop | UseTools | AskModel


def decide(run: Run, rules: Sequence[Rule], now: datetime) -> Action:
    """The next action. Every limit is checked here, by the rules, and nowhere else; the order is part of the design:
    a run that is capped leaves its last calls outstanding, and a raised cap runs them first."""
    if run.status is not Status.RUNNING:
        return Rest()
    if answered(run) and run.cut_at_usd is None:
        return Stop(Status.COMPLETED)
    for rule in rules:
        if stop := rule(run, now):
            return stop
    return next_steps(run) or ask(run)


def ask(run: Run) -> AskModel:
    cap = reply_cap(run)
    return AskModel() if cap is None else AskModel(cap.max_tokens, cap.worst_usd)


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
        stop_rules=event.stop_rules,
        metadata=event.metadata,
        params=event.params,
        conversation=event.conversation,
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
            return {"unconfirmed_cost_usd": event.unconfirmed_usd}
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
    calls = asked(run, event)
    return {
        "turns": event.turn,
        "messages": (*run.messages, event.message),
        "usage": run.usage.plus(usage),
        "last_usage": usage,
        "finish": event.finish,
        "cost_usd": event.cost_usd,
        "unconfirmed_cost_usd": event.unconfirmed_usd,
        "recoveries": 0,
        "cut_at_usd": run.limits.max_budget_usd if was_cut(event) else None,
        "calls": calls,
        "tally": tally_asked(run, calls),
    }


def begun(run: Run, event: e.ToolStart) -> dict[str, Any]:
    """From here on a write may have had its effect, even if no result of it is ever recorded."""
    spec = run.tool(event.tool_name)
    reads = spec is not None and spec.read_only
    calls = with_call(run, event.call, started=True, reserved_usd=event.reserved_usd)
    return {"calls": calls, "remembered": run.remembered if reads else {}}


def called(run: Run, event: e.ToolResult) -> dict[str, Any]:
    call = call_of(run, event.call)
    outcome = Outcome(event.ok, event.permanent, event.source)
    executed = event.source in ("tool", "settled")
    return {
        "calls": with_call(run, event.call, outcome=outcome),
        "messages": with_answer(run, call, Tool(event.provider_id, event.tool_name, event.content)),
        "tool_runs": run.tool_runs + executed,
        "tally": tally_answered(run, call, event),
        "remembered": remembered(run, call, event),
        "permanent_failures": failures(run, call) if event.permanent else run.permanent_failures,
        "recoveries": 0,
        **(with_child(run, event) if event.child_cost_usd or event.child_unconfirmed_usd else {}),
    }


def with_child(run: Run, event: e.ToolResult) -> dict[str, Any]:
    """What the run of a subagent cost counts as this run's."""
    return {
        "cost_usd": total(run.cost_usd, event.child_cost_usd),
        "delegated_cost_usd": total(run.delegated_cost_usd, event.child_cost_usd),
        "unconfirmed_cost_usd": total(run.unconfirmed_cost_usd, event.child_unconfirmed_usd),
    }


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
    """The time between the last event and the next process was not driven. A death counts as a recovery; a process that
    closed in good order says nothing of the run."""
    taken_up = event.cause in e.TAKEN_UP
    driven = run.driven + (run.updated_at - run.driven_since) if taken_up else run.driven
    return {
        "status": Status.RUNNING,
        "interruption": None,
        "error": None,
        "limits": event.limits or run.limits,
        "driven": driven,
        "driven_since": event.time,
        "inner": (),
        "tally": run.tally if taken_up else Tally(resumed_at_turn=run.turns),
        "recoveries": run.recoveries + (event.cause == "recovery") if taken_up else 0,
        "resumed_by": run.resumed_by if taken_up else event.cause,
        **({} if event.said is None else went_on(run, event.said)),
    }


def went_on(run: Run, said: e.Said) -> dict[str, Any]:
    """Where the client put the transcript together itself, no reply has counted it yet."""
    added = said.keep == len(run.messages) and not any(isinstance(message, Assistant) for message in said.messages)
    given = {name: getattr(said, name) for name in ("tools", "params", "model", "price", "stream")}
    return {
        "messages": (*run.messages[: said.keep], *said.messages),
        "last_usage": run.last_usage if added else Usage(),
        "output": "",
        **{name: value for name, value in given.items() if value is not None},
    }


def stopped(run: Run, event: e.RunStopped) -> dict[str, Any]:
    was_driven = run.status is Status.RUNNING
    last = run.messages[-1]
    return {
        "status": event.status,
        "interruption": event.interruption,
        "inner": event.inner,
        "error": event.error,
        "output": text_of(last.content) if event.status is Status.COMPLETED and isinstance(last, Assistant) else "",
        "unconfirmed_cost_usd": event.unconfirmed_usd,
        "driven": run.driven + (event.time - run.driven_since) if was_driven else run.driven,
    }
