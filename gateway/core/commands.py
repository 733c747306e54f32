"""What people and clients may do to a run, each as the events that do it. Raises WrongState or NotFound in words.

The same code serves a run that waits, one that was loaded after a crash and one that a limit stopped: the events are
recorded, applied, and if the run is then running, it is driven on.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.calls import outstanding, waiting_for_verdict
from gateway.core.codec import args_hash
from gateway.core.errors import BadRequest, NotFound, WrongState
from gateway.core.pricing import total
from gateway.core.run import (
    MAX_TURNS_MAX,
    Approval,
    Call,
    Cancelled,
    InDoubt,
    Limits,
    Run,
    Status,
    ToolOutputs,
    reason_of,
)
from gateway.core.stopping import Stop, driven_seconds, too_tight

USD_MAX = Decimal(10) ** 9
DECIMALS_MAX = 30  # a few letters name an amount that is a hundred megabytes when it is written out
STOPPED_FOR_NOW = (Status.INTERRUPTED, Status.MAX_TURNS_EXCEEDED, Status.BUDGET_EXCEEDED)


class RaisedLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits to change; what is left out stays, null takes the cap away."""

    max_turns: int | UnsetType | None = UNSET
    max_budget_usd: Decimal | UnsetType | None = UNSET
    budget_mode: Literal["soft", "hard"] | UnsetType = UNSET
    deadline_seconds: float | UnsetType | None = UNSET


class ToolOutput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What came back from a call that somebody else made. `ok: false` says that it failed."""

    call_id: str
    output: str
    ok: bool = True


def check_limits(limits: Limits) -> Limits:
    """Raises BadRequest for limits that would let a run go on for ever, or that make no sense."""
    if limits.max_turns is None and limits.max_budget_usd is None:
        raise BadRequest(
            "max_turns and max_budget_usd are both null: set one, or nothing ends a runaway.", param="limits"
        )
    if limits.max_turns is not None and not 1 <= limits.max_turns <= MAX_TURNS_MAX:
        raise BadRequest(
            f"max_turns is {limits.max_turns}: it must be from 1 to {MAX_TURNS_MAX}, or null.", param="limits.max_turns"
        )
    budget = limits.max_budget_usd
    if budget is not None and not is_amount(budget):
        raise BadRequest(
            f"max_budget_usd is {budget:.3g}: it must be above 0 and below {USD_MAX:f}, with at most {DECIMALS_MAX} "
            "decimals.",
            param="limits.max_budget_usd",
        )
    deadline = limits.deadline_seconds
    if deadline is not None and not 0 < deadline < 10**9:
        raise BadRequest(f"deadline_seconds is {deadline}: it must be above 0.", param="limits.deadline_seconds")
    return limits


def is_amount(usd: Decimal) -> bool:
    return usd.is_finite() and 0 < usd < USD_MAX and int(usd.as_tuple().exponent) >= -DECIMALS_MAX


def resume(run: Run, raised: RaisedLimits, now: datetime) -> list[e.Event]:
    """Go on, under these limits. A cap that is not raised is refused with its figure."""
    require_resumable(run)
    limits = check_limits(with_limits(run.limits, raised))
    if limits.max_turns is not None and run.turns >= limits.max_turns:
        raise WrongState(
            f"run {run.id} has used {run.turns} turns and max_turns is {limits.max_turns}: raise it above {run.turns}.",
            param="limits.max_turns",
        )
    if limits.max_budget_usd is not None and run.spent_usd >= limits.max_budget_usd:
        raise WrongState(
            f"run {run.id} has spent ${run.spent_usd:f} and max_budget_usd is {limits.max_budget_usd:f}: raise it.",
            param="limits.max_budget_usd",
        )
    if too_tight(replace(run, limits=limits)) or (run.cut_at_usd and run.cut_at_usd == limits.max_budget_usd):
        raise WrongState(
            f"run {run.id} has spent ${run.spent_usd:f} and a hard max_budget_usd of {limits.max_budget_usd} leaves no "
            "room for another reply: raise it.",
            param="limits.max_budget_usd",
        )
    seconds = driven_seconds(run, now)
    if limits.deadline_seconds is not None and seconds >= limits.deadline_seconds:
        raise WrongState(
            f"run {run.id} was driven for {seconds:.3f} s and deadline_seconds is {limits.deadline_seconds}: raise it.",
            param="limits.deadline_seconds",
        )
    return [e.RunResumed(cause="resume", limits=None if limits == run.limits else limits, time=now)]


def with_limits(limits: Limits, raised: RaisedLimits) -> Limits:
    return Limits(
        max_turns=limits.max_turns if raised.max_turns is UNSET else raised.max_turns,
        max_budget_usd=limits.max_budget_usd if raised.max_budget_usd is UNSET else raised.max_budget_usd,
        budget_mode=limits.budget_mode if raised.budget_mode is UNSET else raised.budget_mode,
        deadline_seconds=limits.deadline_seconds if raised.deadline_seconds is UNSET else raised.deadline_seconds,
    )


def require_resumable(run: Run) -> None:
    if run.status is Status.RUNNING:
        raise WrongState(f"run {run.id} is running: there is nothing to resume.")
    if run.status in (Status.COMPLETED, Status.FAILED):
        raise WrongState(f"run {run.id} is {run.status} and cannot be resumed: start a new one.")
    match reason_of(run.interruption):
        case "approval":
            waiting = ", ".join(waiting_ids(run))
            raise WrongState(f"run {run.id} waits for a verdict on {waiting}: approve or reject it.")
        case "in_doubt":
            raise WrongState(f"run {run.id} waits for a doubt to be settled: post its output, approve or reject it.")
        case "tool_outputs":
            raise WrongState(f"run {run.id} waits for tool outputs: post them.")
        case _:
            return


def waiting_ids(run: Run) -> list[str]:
    """The calls that wait for a person, of this run and of its subagents'."""
    return [call.id for call in waiting_for_verdict(run)] + [waits.call_id for waits in run.inner]


def verdict(
    run: Run, call_id: str, *, approved: bool, reason: str | None, seen_hash: str | None, now: datetime
) -> list[e.Event]:
    """Approve or reject one call. The same verdict twice is no event, even when the run has gone on since; the opposite
    one is refused."""
    if (earlier := earlier_verdict(run, call_id)) is not None:
        return repeated(call_id, earlier, approved)
    call = find_call(run, call_id)
    if seen_hash is not None and seen_hash != args_hash(call.tool, call.args or {}):
        raise WrongState(f"the arguments of {call.id} are not those that were seen: look again.", param="args_hash")
    doubted = in_doubt(run, call)
    if not doubted and call.verdict is not None:
        return repeated(call.id, call.verdict.approved, approved)
    if not doubted and (run.status not in STOPPED_FOR_NOW or call not in waiting_for_verdict(run)):
        raise WrongState(f"call {call.id} does not wait for a verdict.", param="call_id")
    given = e.VerdictGiven(
        tool_name=call.tool, approved=approved, reason=reason, provider_id=call.provider_id, call=call.id, time=now
    )
    return [given, *goes_on(run, call, now, "verdict")]


def earlier_verdict(run: Run, call_id: str) -> bool | None:
    """What was said about a call of an earlier turn, by our id: whoever did not see the reply may ask again."""
    if any(call.id == call_id for call in run.calls):
        return None
    return True if call_id in run.approved else False if call_id in run.rejected else None


def repeated(call_id: str, said: bool, approved: bool) -> list[e.Event]:
    if said == approved:
        return []
    raise WrongState(f"call {call_id} was {'approved' if said else 'rejected'} already.", param="call_id")


def goes_on(run: Run, call: Call, now: datetime, cause: Literal["verdict", "settlement"]) -> list[e.Event]:
    """The run is driven again when nothing that it waits for is missing. A cap that stopped it stays a stop."""
    match reason_of(run.interruption):
        case "approval":
            missing = [other for other in waiting_for_verdict(run) if other.id != call.id]
        case "in_doubt":
            missing = [] if in_doubt(run, call) else [call]
        case _:
            missing = [call]
    return [] if missing else [e.RunResumed(cause=cause, time=now)]


def cancel(run: Run, reason: str, now: datetime) -> list[e.Event]:
    """Stop a run that waits. Cancelling a cancelled run again is no event; one that has ended cannot be cancelled."""
    if run.status is Status.RUNNING:
        raise WrongState(f"run {run.id} is running: whoever drives it stops it.")
    match reason_of(run.interruption):
        case "cancelled":
            return []
        case _ if run.status is Status.INTERRUPTED:
            return [stop(run, Stop(Status.INTERRUPTED, Cancelled(reason)), now)]
        case _:
            raise WrongState(f"run {run.id} has stopped already: {run.status}.")


def tool_outputs(run: Run, outputs: list[ToolOutput], now: datetime) -> list[e.Event]:
    """Take what came back from calls that the client ran, or from one in doubt."""
    if reason_of(run.interruption) not in ("in_doubt", "tool_outputs"):
        raise WrongState(f"run {run.id} does not wait for tool outputs: it is {run.status}.")
    results = [output_event(run, output, now) for output in outputs]
    if len({result.call for result in results}) < len(results):
        raise BadRequest("a call is named twice in outputs.", param="outputs")
    waiting = {call.id for call in awaited(run)} - {result.call for result in results}
    return [*results, *([] if waiting else [e.RunResumed(cause="settlement", time=now)])]


def awaited(run: Run) -> list[Call]:
    """The calls whose outputs the run waits for."""
    match run.interruption:
        case InDoubt(call_id=call_id):
            ids: tuple[str, ...] = (call_id,)
        case ToolOutputs(call_ids=call_ids):
            ids = call_ids
        case _:
            ids = ()
    return [call for call in outstanding(run) if call.id in ids]


def output_event(run: Run, output: ToolOutput, now: datetime) -> e.ToolResult:
    call = find_call(run, output.call_id)
    if call not in awaited(run):
        raise WrongState(f"call {call.id} does not wait for an output.", param="outputs.call_id")
    return result_of(run, call, output, now)


def result_of(run: Run, call: Call, output: ToolOutput, now: datetime) -> e.ToolResult:
    return e.ToolResult(
        tool_name=call.tool,
        ms=0,
        ok=output.ok,
        provider_id=call.provider_id,
        call=call.id,
        content=output.output,
        source="settled" if isinstance(run.interruption, InDoubt) else "client",
        time=now,
    )


def rejoin(run: Run, now: datetime) -> list[e.Event]:
    """Go on with a run that stopped because a subagent waited for a person, now that the person has spoken."""
    waited = run.status is Status.INTERRUPTED and bool(run.inner)
    return [e.RunResumed(cause="verdict", time=now)] if waited else []


def take_up(run: Run, parent: Run, now: datetime, cause: e.TakenUp) -> list[e.Event]:
    """Go on with a subagent's run that its parent asks for again: in another process, or after both were stopped and
    the parent was resumed. One that was stopped alone has answered with that."""
    if run.status is Status.RUNNING:
        return recover(run, now, cause)
    again = reason_of(run.interruption) == "cancelled" and parent.resumed_by == "resume"
    return [e.RunResumed(cause="resume", time=now)] if again else []


def recover(run: Run, now: datetime, cause: e.TakenUp = "recovery") -> list[e.Event]:
    """Take up a run whose process is no more. One that has stopped is left as it is."""
    return [] if run.status is not Status.RUNNING else [e.RunResumed(cause=cause, time=now)]


def stop(
    run: Run,
    why: Stop,
    now: datetime,
    *,
    unconfirmed_usd: Decimal | None = None,
    inner: tuple[Approval | InDoubt, ...] = (),
) -> e.RunStopped:
    """`run_stopped` with the figures of the run. `unconfirmed_usd` where the stop itself settles what a request in
    flight may have cost."""
    return e.RunStopped(
        status=why.status,
        reason=reason_of(why.interruption),
        turns=run.turns,
        cost_usd=total(run.cost_usd),
        interruption=why.interruption,
        inner=inner,
        error=why.error,
        unconfirmed_usd=total(run.unconfirmed_cost_usd if unconfirmed_usd is None else unconfirmed_usd),
        time=now,
    )


def in_doubt(run: Run, call: Call) -> bool:
    return isinstance(run.interruption, InDoubt) and run.interruption.call_id == call.id


def find_call(run: Run, call_id: str) -> Call:
    """By our id, or by the provider's where only one call of the turn has it."""
    matches = [call for call in run.calls if call_id == call.id] or [
        call for call in run.calls if call_id == call.provider_id
    ]
    if not matches:
        raise NotFound(f"run {run.id} has no call {call_id} in its last turn.", param="call_id")
    if len(matches) > 1:
        ids = ", ".join(call.id for call in matches)
        raise WrongState(f"{call_id} names {len(matches)} calls: say which of {ids}.", param="call_id")
    return matches[0]
