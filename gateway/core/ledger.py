"""What a run keeps about its calls, event by event: the arithmetic behind `loop.apply`, without a decision in it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.codec import call_key
from gateway.core.messages import Message, Tool
from gateway.core.run import Call, Run, Tally


def call_of(run: Run, call_id: str) -> Call:
    """The call of the last turn with this id. Raises ValueError if there is none: the log would be corrupt."""
    for call in run.calls:
        if call.id == call_id:
            return call
    raise ValueError(f"run {run.id} has no call {call_id} in turn {run.turns}")


def with_call(run: Run, call_id: str, **fields: Any) -> tuple[Call, ...]:
    call = call_of(run, call_id)
    place = run.calls.index(call)
    return (*run.calls[:place], replace(call, **fields), *run.calls[place + 1 :])


def asked(run: Run, event: e.Turn) -> tuple[Call, ...]:
    """The calls of a reply. Their ids are ours: providers issue theirs again."""
    pairs = zip(event.message.tool_calls, event.checks, strict=True)
    calls = [
        Call(
            id=f"{run.id}:{event.turn}:{index}",
            provider_id=tool_call.id,
            tool=tool_call.function.name,
            arguments=tool_call.function.arguments,
            args=check.args,
            problem=check.problem,
        )
        for index, (tool_call, check) in enumerate(pairs)
    ]
    return tuple(calls)


def with_answer(run: Run, call: Call, answer: Tool) -> tuple[Message, ...]:
    """The messages with the answer at its place: answers stand in the order asked, whichever came first."""
    behind = [other for other in run.calls[run.calls.index(call) :] if other.outcome is not None]
    cut = len(run.messages) - len(behind)
    return (*run.messages[:cut], answer, *run.messages[cut:])


def remembered(run: Run, call: Call, event: e.ToolResult) -> dict[str, str]:
    """Successful answers that a repeated call may be given. Whatever does more than read clears them."""
    if event.source in ("cache", "refusal", "invalid") or call.args is None:
        return run.remembered
    spec = run.tool(call.tool)
    reads = spec is not None and spec.read_only
    repeatable = spec is not None and spec.read_only and spec.cacheable
    kept = run.remembered if reads else {}
    keeps = event.ok and (run.policies.dedupe == "all" or (run.policies.dedupe == "read_only" and repeatable))
    return {**kept, call_key(call.tool, call.args): event.content} if keeps else kept


def failures(run: Run, call: Call) -> dict[str, int]:
    """How often each call has failed permanently; once a turn, since the model is told of it between turns."""
    key = call_key(call.tool, call.args or {})
    if any(is_same_failure(other, key) for other in run.calls):
        return run.permanent_failures
    return {**run.permanent_failures, key: run.permanent_failures.get(key, 0) + 1}


def key_of(call: Call) -> str:
    """What makes two calls the same one; arguments that are not valid are compared letter by letter."""
    return f"{call.tool} {call.arguments}" if call.args is None else call_key(call.tool, call.args)


def is_same_failure(call: Call, key: str) -> bool:
    return call.outcome is not None and call.outcome.permanent and call_key(call.tool, call.args or {}) == key


def tally_asked(run: Run, calls: tuple[Call, ...]) -> Tally:
    if run.stop_rules.repeated_calls is None:
        return run.tally
    counts = dict(run.tally.asked)
    for call in calls:
        key = key_of(call)
        counts[key] = counts.get(key, 0) + 1
    return replace(run.tally, asked=counts)


def tally_answered(run: Run, call: Call, event: e.ToolResult) -> Tally:
    rules, tally = run.stop_rules, run.tally
    if event.ok and call.tool in rules.after_tools:
        return replace(tally, succeeded=(*tally.succeeded, call.tool))
    if not event.ok and event.source in ("tool", "invalid") and rules.repeated_failures is not None:
        key = key_of(call)
        return replace(tally, failed={**tally.failed, key: tally.failed.get(key, 0) + 1})
    return tally


def was_cut(event: e.Turn) -> bool:
    """Whether a hard budget cut the answer short. A call that was cut answers for itself: its arguments are no JSON."""
    return event.max_tokens is not None and event.finish == "length" and not event.message.tool_calls
