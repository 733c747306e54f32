"""From the events of a run to its recording: pure. What came in from outside is told apart from what the loop made of
it, by looking at each event and at the run as it was before it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from msgspec import Struct
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.codec import decode_event, encode
from gateway.core.commands import ToolOutput
from gateway.core.loop import apply, start
from gateway.core.messages import Assistant, ToolCall
from gateway.core.run import Approval, Cancelled, Deadline, InDoubt, ProviderDown, Run, Status, StopRule
from gateway.replay import recording as r
from gateway.replay.comparing import normal
from gateway.replay.recording import RUN, Expected, Recording, figures_of
from scripted.scripts import Call, Script, Step
from scripted.wire import Counts

FAULT = "a fault of the gateway: "
OVER = "The record ends here."


class Moment(Struct, frozen=True):
    """An event, the ones beside it, and the run as it was before it."""

    at: int
    event: e.Event
    last: e.Event
    next: e.Event | None
    before: Run


def recording_of(run_id: str, events: Sequence[e.Event]) -> Recording:
    """The document of a run. Raises ValueError for events that are not those of a run."""
    events = renamed(run_id, events)
    runs = list(states(events))
    started = events[0]
    assert isinstance(started, e.RunStarted)
    later = zip([*events[2:], None], pairwise(events), runs, strict=False)
    moments = [Moment(at, event, last, next, run) for at, (next, (last, event), run) in enumerate(later, 1)]
    return Recording(
        version=r.VERSION,
        run_id=run_id,
        started=replace(started, parent=None),
        script=script_of(started, moments),
        asks=tuple(ask for moment in moments for ask in asks(moment, events)),
        tools=tuple(said for moment in moments for said in tool_inputs(moment)),
        actions=(*merged([action for moment in moments for action in actions(moment, started)]), *end(runs[-1])),
        expected=Expected(events=[normal(event) for event in events], figures=figures_of(runs[-1])),
    )


def renamed(run_id: str, events: Sequence[e.Event]) -> list[e.Event]:
    """The events of the same run under the name that every replay uses: strings that are its id, or begin with it as
    the ids of its calls and of its subagents' runs do."""
    own = re.compile(rb'(?<=")' + re.escape(encode(run_id)[1:-1]) + rb'(?=[":-])')
    return [decode_event(own.sub(RUN.encode(), encode(event))) for event in events]


def states(events: Sequence[e.Event]) -> Iterator[Run]:
    """The run after each event."""
    if not events:
        raise ValueError("a run without events cannot be exported")
    run = start(RUN, events[0])
    yield run
    for event in events[1:]:
        run = apply(run, event)
        yield run


def end(run: Run) -> list[r.Action]:
    """A run that was left running ends with the process that drove it."""
    return [r.Death(at=run.seq)] if run.status is Status.RUNNING else []


# --- the script -----------------------------------------------------------------------------------------------------


def script_of(started: e.RunStarted, moments: Sequence[Moment]) -> Script:
    """One step a turn, with the tokens and the finish that were reported; and a last word for whoever asks for more."""
    steps = [step_of(turn, spoken_in(moment.before)) for moment in moments if isinstance(turn := moment.event, e.Turn)]
    return Script(f"A recorded run of {started.agent} on {started.model}.", (*steps, Step(text=OVER)))


def spoken_in(run: Run) -> int:
    """By how many replies of the model its transcript has, a script knows the turn."""
    return sum(isinstance(message, Assistant) for message in run.messages)


def step_of(turn: e.Turn, number: int) -> Step:
    said = turn.message
    return Step(
        turn=number,
        calls=tuple(call_of(call) for call in said.tool_calls),
        text=said.content if said.content is None or isinstance(said.content, str) else tuple(said.content),
        reasoning=said.reasoning_content,
        refusal=said.refusal,
        finish=turn.finish,
        usage=Counts(
            prompt_tokens=turn.prompt_tokens,
            completion_tokens=turn.completion_tokens,
            cached_tokens=turn.cached_tokens,
            reasoning_tokens=turn.reasoning_tokens,
            total_tokens=turn.total_tokens,
        ),
        ignores_max_tokens=turn.max_tokens is not None and turn.completion_tokens > turn.max_tokens,
    )


def call_of(call: ToolCall) -> Call:
    return Call(call.id, call.function.name, arguments=call.function.arguments)


# --- the model ------------------------------------------------------------------------------------------------------


def asks(moment: Moment, events: Sequence[e.Event]) -> list[r.Ask]:
    """The request that begins here, unless it was plainly answered."""
    if not isinstance(moment.event, e.TurnStart) or moment.event.attempt > 1:
        return []
    attempts, last = [1], moment.event
    for event in events[moment.at + 1 :]:
        if not isinstance(event, e.TurnStart) or event.attempt == 1:
            break
        attempts, last = [*attempts, event.attempt], event
    behind = moment.at + len(attempts)
    asked = ended(last, events[behind] if behind < len(events) else None)
    asked = replace(asked, at=moment.at, attempts=tuple(attempts))
    return [] if asked == r.Ask(at=moment.at) else [asked]


def ended(sent: e.TurnStart, event: e.Event | None) -> r.Ask:
    """How a request ended, by what was recorded after its last attempt."""
    match event:
        case e.Turn():
            return r.Ask(at=0)
        case e.RunStopped(interruption=Cancelled() | Deadline()):
            return r.Ask(at=0, ending="silence")
        case e.RunStopped(interruption=ProviderDown(words)):
            return r.Ask(at=0, ending="unavailable", words=words, maybe_billed=billed(sent, event))
        case e.RunStopped(status=Status.FAILED, error=str(words)) if not words.startswith(FAULT):
            return r.Ask(at=0, ending="refused", words=words, maybe_billed=billed(sent, event))
        case e.RunStopped(status=Status.FAILED) | e.RunResumed() | None:
            return r.Ask(at=0, ending="silence")
        case _:
            return r.Ask(at=0, ending="lost")


def billed(sent: e.TurnStart, stop: e.RunStopped) -> bool:
    return stop.unconfirmed_usd == sent.unconfirmed_usd


# --- tools ----------------------------------------------------------------------------------------------------------


def tool_inputs(moment: Moment) -> Iterator[r.ToolInput]:
    match moment.event:
        case e.ToolProgress(call=call, label=label):
            yield r.Progress(at=moment.at, call=call, label=label)
        case e.ToolResult(source="tool") as result:
            yield answer_of(moment.at, result)
        case e.RunStopped(inner=inner):
            for order, (call, waits) in enumerate(groupby(inner, lambda waits: asker(moment.before, waits))):
                yield r.Suspension(at=moment.at, call=call, inner=tuple(waits), order=order)
        case _:
            return


def answer_of(at: int, result: e.ToolResult) -> r.Answer:
    failed = result.error if result.error is not None else result.content.removeprefix("Error: ")
    return r.Answer(
        at=at,
        call=result.call,
        text=result.content if result.ok else failed,
        ok=result.ok,
        permanent=result.permanent,
        cost_usd=result.child_cost_usd,
        unconfirmed_cost_usd=result.child_unconfirmed_usd,
    )


def asker(run: Run, waits: Approval | InDoubt) -> str:
    """The call whose subagent's run waits: the path to it begins with the id that was made of the call's."""
    return next((call.id for call in run.calls if call.id.replace(":", "-") == waits.path[0]), "")


# --- people, the clock, and processes -------------------------------------------------------------------------------


def actions(moment: Moment, started: e.RunStarted) -> Iterator[r.Action]:
    at = moment.at
    match moment.event:
        case e.VerdictGiven(call=call, approved=approved, reason=reason):
            yield r.Verdict(at=at, call=call, approved=approved, reason=reason)
        case e.ToolResult(source="settled" | "client", call=call, content=content, ok=ok):
            yield r.Outputs(at=at, outputs=(ToolOutput(call_id=call, output=content, ok=ok),))
        case e.RunResumed(cause="message", limits=limits, said=e.Said() as said):
            yield r.Words(at=at, said=said, limits=limits)
        case e.RunResumed(cause="resume", limits=limits):
            yield r.Resume(at=at, limits=limits)
        case e.RunResumed(cause="verdict") if not isinstance(moment.last, e.VerdictGiven):
            yield r.Rejoin(at=at)
        case e.RunResumed(cause="recovery" | "handover" as cause):
            yield r.Death(at=at, in_order=cause == "handover")
            yield taken_up(moment)
        case e.RunStopped() as stop:
            yield from stopped(moment, stop, started)
        case _:
            return


def taken_up(moment: Moment) -> r.Action:
    """What made the recovery. A run that is cancelled before it is taken up is not driven in between."""
    match moment.next:
        case e.RunStopped(interruption=Cancelled(reason)):
            return r.Cancel(at=moment.at, reason=reason)
        case _:
            return r.Recovery(at=moment.at)


def stopped(moment: Moment, stop: e.RunStopped, started: e.RunStarted) -> Iterator[r.Action]:
    if not from_outside(stop, started):
        return
    recovered = isinstance(moment.last, e.RunResumed) and moment.last.cause in e.TAKEN_UP
    if moment.before.status is Status.RUNNING:
        if not (recovered and isinstance(stop.interruption, Cancelled)):
            yield r.Halt(
                at=moment.at,
                status=stop.status,
                interruption=stop.interruption,
                error=stop.error,
                during=during(moment, stop),
            )
    elif isinstance(stop.interruption, Cancelled):
        yield r.Cancel(at=moment.at, reason=stop.interruption.reason)


def from_outside(stop: e.RunStopped, started: e.RunStarted) -> bool:
    """Whether something stopped the run that its events do not show: a person, the clock, an operator's rule, a bug."""
    match stop.interruption:
        case Cancelled() | Deadline():
            return True
        case StopRule(rule, _):
            return rule in started.stop_rules.predicates
        case _:
            return stop.status is Status.FAILED and (stop.error or "").startswith(FAULT)


def during(moment: Moment, stop: e.RunStopped) -> r.During:
    if isinstance(stop.interruption, StopRule) or isinstance(moment.last, e.RunStarted | e.RunResumed):
        return "decision"
    return "wait" if isinstance(moment.last, e.TurnStart | e.ToolProgress) else "step"


def merged(found: Sequence[r.Action]) -> Iterator[r.Action]:
    """Outputs that came together are posted together, and those that came with a message with that."""
    waiting: r.Outputs | None = None
    for action in found:
        if isinstance(action, r.Outputs | r.Words) and waiting and action.at == waiting.at + len(waiting.outputs):
            waiting, action = None, replace(action, at=waiting.at, outputs=(*waiting.outputs, *action.outputs))
        if waiting:
            yield waiting
        waiting = action if isinstance(action, r.Outputs) else None
        if waiting is None:
            yield action
    if waiting:
        yield waiting
