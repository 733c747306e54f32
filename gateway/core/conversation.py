"""How a client goes on with a run through an API that knows no runs: with the outputs of calls that it made, and in a
conversation with its whole transcript. Each as events, under the same rules as any other command.

A conversation is one run for all that its client says under one name, so that its caps and its cost are those of the
whole. What the client sends is what the model reads: where it has changed its transcript, the run takes that over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.calls import outstanding
from gateway.core.commands import RaisedLimits, ToolOutput, awaited, check_limits, result_of, tool_outputs, with_limits
from gateway.core.errors import BadRequest, WrongState
from gateway.core.loop import apply
from gateway.core.messages import Assistant, Message, Tool, text_of
from gateway.core.pricing import Price
from gateway.core.run import Limits, Run, Status, ToolSpec, reason_of

BUSY_RETRY_AFTER_SECONDS = 1.0
NO_OUTPUT = "The client went on without an output."


class Word(Struct, frozen=True, kw_only=True):
    """One request of a conversation: the whole transcript as the client has it, and what the request asks for. In it a
    call goes by our id, or by the provider's where the client has that from elsewhere."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    params: dict[str, Any]
    model: str
    price: Price
    stream: bool
    limits: RaisedLimits = RaisedLimits()


# --- a run of ours that waits for outputs ---------------------------------------------------------------------------


def take_back(run: Run, outputs: Mapping[str, str], more: Sequence[Message], now: datetime) -> list[e.Event]:
    """The outputs of the client's calls, by our ids. Those that the run has already are no news: whoever did not see
    the reply sends them again. `more` are messages behind them."""
    news = [ToolOutput(call_id=call.id, output=outputs[call.id]) for call in awaited(run) if call.id in outputs]
    if not news:
        return []
    events = tool_outputs(run, news, now)
    if not more:
        return events
    if not isinstance(events[-1], e.RunResumed):
        missing = ", ".join(call.id for call in awaited(run) if call.id not in outputs)
        raise BadRequest(f"the calls {missing} have no output, and a message comes behind them.", param="messages")
    answered = after(run, events[:-1])
    said = e.Said(keep=len(answered.messages), messages=with_provider_ids(more, run))
    return [*events[:-1], e.RunResumed(cause="message", said=said, time=now)]


def after(run: Run, events: Sequence[e.Event]) -> Run:
    for event in events:
        run = apply(run, event)
    return run


# --- a conversation -------------------------------------------------------------------------------------------------


def converse(run: Run, word: Word, now: datetime) -> list[e.Event]:
    """What the client said, as events; none where the run has replied to it already, or stays stopped by a cap that
    was not raised. Raises WrongState while another request of the conversation is being answered."""
    limits = check_limits(with_limits(run.limits, word.limits))
    if run.status is Status.RUNNING:
        return joins_or_waits(run, word)
    if stays_stopped(run, limits):
        return []
    if replied_to(run, word.messages):
        return again(run, limits, len(word.messages), now)
    results = outputs_in(run, word.messages, now)
    answered = after(run, results)
    raised = None if limits == run.limits else limits
    return [*results, e.RunResumed(cause="message", limits=raised, said=said(answered, word), time=now)]


def joins_or_waits(run: Run, word: Word) -> list[e.Event]:
    if aligned(run.messages, word.messages) == len(word.messages):
        return []
    raise WrongState(
        f"run {run.id} is answering another request of this conversation: send the next one when it has.",
        code="conversation_busy",
        retry_after_seconds=BUSY_RETRY_AFTER_SECONDS,
    )


def stays_stopped(run: Run, limits: Limits) -> bool:
    """A person's stop, and a cap: only they, or a higher one, let the run go on."""
    match run.status:
        case Status.MAX_TURNS_EXCEEDED:
            return limits.max_turns is not None and limits.max_turns <= run.turns
        case Status.BUDGET_EXCEEDED:
            return limits.max_budget_usd is not None and limits.max_budget_usd <= (run.limits.max_budget_usd or 0)
        case _:
            return reason_of(run.interruption) == "cancelled" or (
                reason_of(run.interruption) == "deadline" and limits.deadline_seconds == run.limits.deadline_seconds
            )


def replied_to(run: Run, messages: Sequence[Message]) -> bool:
    """Whether the run has these messages, and at most its own reply behind them."""
    behind = run.messages[len(messages) :]
    own_reply = not behind or (len(behind) == 1 and isinstance(behind[0], Assistant))
    return own_reply and aligned(run.messages, messages) == len(messages)


def again(run: Run, limits: Limits, known: int, now: datetime) -> list[e.Event]:
    """The same request once more. What has its reply is not paid twice; what has none is asked again."""
    raised = None if limits == run.limits else limits
    if run.status is Status.FAILED:
        return [e.RunResumed(cause="message", limits=raised, said=e.Said(keep=known), time=now)]
    waits = run.status is Status.COMPLETED or reason_of(run.interruption) == "tool_outputs"
    return [] if waits else [e.RunResumed(cause="resume", limits=raised, time=now)]


def outputs_in(run: Run, messages: Sequence[Message], now: datetime) -> list[e.Event]:
    """Every outstanding call is answered: by what the client says came back, or in words that nothing did."""
    given = {message.tool_call_id: text_of(message.content) for message in messages if isinstance(message, Tool)}
    results: list[e.Event] = []
    for call in outstanding(run):
        text = given.get(call.id, given.get(call.provider_id))
        output = ToolOutput(call_id=call.id, output=NO_OUTPUT if text is None else text, ok=text is not None)
        results.append(result_of(run, call, output, now))
    return results


def said(run: Run, word: Word) -> e.Said:
    """What is new in the transcript, and in what the request asks for."""
    keep = aligned(run.messages, word.messages)
    return e.Said(
        keep=keep,
        messages=with_provider_ids(word.messages[keep:], run),
        tools=None if word.tools == run.tools else word.tools,
        params=None if word.params == run.params else word.params,
        model=None if word.model == run.model else word.model,
        price=None if word.price == run.price else word.price,
        stream=None if word.stream == run.stream else word.stream,
    )


def aligned(ours: Sequence[Message], theirs: Sequence[Message]) -> int:
    """How many messages the two transcripts begin with alike."""
    pairs = zip(ours, theirs, strict=False)
    differs = (count for count, (mine, other) in enumerate(pairs) if not same(mine, other))
    return next(differs, min(len(ours), len(theirs)))


def same(ours: Message, theirs: Message) -> bool:
    """Clients leave out of a reply what they do not know, write its ids as we gave them, and name no tool."""
    match ours, theirs:
        case Assistant(), Assistant():
            return text_of(ours.content) == text_of(theirs.content) and functions(ours) == functions(theirs)
        case Tool(), Tool():
            return ours.content == theirs.content
        case _:
            return ours == theirs


def functions(message: Assistant) -> list[tuple[str, str]]:
    return [(call.function.name, call.function.arguments) for call in message.tool_calls]


def with_provider_ids(messages: Sequence[Message], run: Run | None = None) -> tuple[Message, ...]:
    """The last turn's calls by the provider's own ids. Ids of ours that are older stay, in letters that any provider
    takes: there they only have to agree with each other."""
    ids = {call.id: call.provider_id for call in run.calls} if run else {}
    return tuple(with_ids(message, ids) for message in messages)


def with_ids(message: Message, ids: Mapping[str, str]) -> Message:
    match message:
        case Tool():
            return replace(message, tool_call_id=for_provider(message.tool_call_id, ids))
        case Assistant(tool_calls=[_, *_] as calls):
            renamed = (replace(call, id=for_provider(call.id, ids)) for call in calls)
            return replace(message, tool_calls=tuple(renamed))
        case _:
            return message


def for_provider(call_id: str, ids: Mapping[str, str]) -> str:
    return ids.get(call_id, call_id.replace(":", "_"))
