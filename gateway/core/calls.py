"""What may be done next about the calls of a turn: run, answer in words, or wait for a person. Reads a run, changes
nothing."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from msgspec import Struct

from gateway.core.codec import args_hash, call_key
from gateway.core.pricing import ZERO
from gateway.core.run import Approval, Call, InDoubt, Run, Source, Status, ToolOutputs, ToolSpec
from gateway.core.stopping import Stop

PARALLEL_CALLS_MAX = 16
DEFAULT_REFUSAL = "no reason was given."
DENIED_BY_POLICY = "this run may not use tools that need an approval."


class Execute(Struct, frozen=True):
    """Run the tool. A subagent may spend what is reserved for it."""

    call: Call
    spec: ToolSpec
    reserved_usd: Decimal = ZERO


class Answer(Struct, frozen=True):
    """Answer the call in words without running anything."""

    call: Call
    content: str
    source: Source
    ok: bool = False


Step = Execute | Answer


class UseTools(Struct, frozen=True):
    """These steps may go on at the same time; their answers keep the order in which they were asked."""

    steps: tuple[Step, ...]


def outstanding(run: Run) -> list[Call]:
    """The calls of the last turn that have no answer yet, in the order asked."""
    return [call for call in run.calls if call.outcome is None]


def waiting_for_verdict(run: Run) -> list[Call]:
    """The outstanding calls that need a person and have no verdict."""
    return [call for call in outstanding(run) if needs_verdict(run, call)]


def next_steps(run: Run) -> UseTools | Stop | None:
    """The next calls that may go together: neighbours that only read. A write goes alone, a verdict holds up what is
    behind it, and calls that the client runs hold up nothing until all else is done."""
    if not (calls := outstanding(run)):
        return None
    if run.conversation is not None:
        return for_client(calls)
    batch: list[Step] = []
    keys: set[str] = set()
    theirs: list[str] = []
    reserved = ZERO
    for call in calls:
        step = next_step(run, call, reserved)
        if isinstance(step, Execute) and step.spec.client_side:
            theirs.append(call.id)
            continue
        repeats = bool(keys) and call.args is not None and call_key(call.tool, call.args) in keys
        full = len(batch) == PARALLEL_CALLS_MAX or penniless(run, step)
        if batch and (isinstance(step, Stop) or writes(step) or repeats or full):
            break
        if isinstance(step, Stop):
            return step
        batch.append(step)
        if writes(step):
            break
        reserved += step.reserved_usd - call.reserved_usd if isinstance(step, Execute) else ZERO
        if call.args is not None and run.policies.dedupe != "off":
            keys.add(call_key(call.tool, call.args))
    return UseTools(tuple(batch)) if batch else Stop(Status.INTERRUPTED, ToolOutputs(tuple(theirs)))


def for_client(calls: Sequence[Call]) -> Stop:
    """In a conversation the client has a loop of its own, and all calls are its: valid or not, known to us or not."""
    return Stop(Status.INTERRUPTED, ToolOutputs(tuple(call.id for call in calls)))


def next_step(run: Run, call: Call, reserved: Decimal = ZERO) -> Step | Stop:
    """Invalid → in doubt → verdict → cache → run. `reserved` is what the batch has set aside so far."""
    spec = run.tool(call.tool)
    if call.problem is not None or spec is None or call.args is None:
        return Answer(call, call.problem or "", "invalid")
    if call.started and not (spec.read_only or spec.idempotent):
        return Stop(Status.INTERRUPTED, InDoubt(call.id, call.tool, call.args))
    if call.verdict is not None and not call.verdict.approved:
        return refusal(run, call, call.verdict.reason)
    if needs_verdict(run, call):
        return Stop(Status.INTERRUPTED, approval_of(call, call.args))
    if spec.needs_approval and run.policies.approval == "deny":
        return refusal(run, call, DENIED_BY_POLICY)
    if run.remembered and (known := run.remembered.get(call_key(call.tool, call.args))) is not None:
        return Answer(call, known, "cache", ok=True)
    return Execute(call, spec, reservation(run, call, spec, reserved))


def reservation(run: Run, call: Call, spec: ToolSpec, reserved: Decimal) -> Decimal:
    """What a subagent may spend: its own budget, or what the run has left if that is less. One that is taken up again
    keeps what it had."""
    if spec.subagent is None or call.reserved_usd:
        return call.reserved_usd
    own = spec.budget_usd
    limit = run.limits.max_budget_usd
    if limit is None:
        return own or ZERO
    left = max(ZERO, limit - run.spent_usd - reserved)
    return left if own is None else min(own, left)


def needs_verdict(run: Run, call: Call) -> bool:
    spec = run.tool(call.tool)
    asks = spec is not None and spec.needs_approval and run.policies.approval == "ask"
    return asks and call.problem is None and call.verdict is None and not call.started


def approval_of(call: Call, args: dict[str, Any]) -> Approval:
    return Approval(call.id, call.tool, args, args_hash(call.tool, args))


def refusal(run: Run, call: Call, reason: str | None) -> Answer:
    words = f"The user declined this call: {reason or DEFAULT_REFUSAL}"
    return Answer(call, "" if run.policies.refusal == "silent" else words, "refusal")


def penniless(run: Run, step: Step | Stop) -> bool:
    """Whether those before it in the batch have set aside all that a subagent could spend: it gets what they leave."""
    if not isinstance(step, Execute) or step.spec.subagent is None:
        return False
    return run.limits.max_budget_usd is not None and not step.reserved_usd


def writes(step: Step) -> bool:
    return isinstance(step, Execute) and not step.spec.read_only
