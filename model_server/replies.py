"""From what a model wrote to the shapes of OpenAI: text, calls, usage, timings. No I/O."""

import secrets
from collections.abc import Callable, Iterator
from typing import Protocol

from msgspec import UNSET, Struct

from model_server import wire
from model_server.jobs import Ended
from model_server.prompt import Said, said
from model_server.tool_calls import CallReader, Parsed, StreamingReader

MakeCallId = Callable[[], str]


def call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class Reading(Protocol):
    """How the text of a reply is read while it comes."""

    def feed(self, text: str) -> str: ...
    def end(self, *, cut_off: bool = False) -> Parsed: ...


class Plain:
    """No tool may be called, so all text is content."""

    def feed(self, text: str) -> str:
        return text

    def end(self, *, cut_off: bool = False) -> Parsed:
        return Parsed(None)


def reading(reader: CallReader | None) -> Reading:
    return StreamingReader(reader) if reader else Plain()


class Origin(Struct, frozen=True):
    """What every part of one reply repeats."""

    id: str
    created: int
    model: str
    fingerprint: str


class Answer(Struct, frozen=True):
    """A whole reply."""

    content: str | None
    calls: tuple[wire.ToolCall, ...]
    finish: wire.Finish
    usage: wire.Usage
    timings: wire.Timings

    @property
    def said(self) -> Said:
        return said(self.content, self.calls)


def answer(shown: str, rest: Parsed, ended: Ended, prompt_tokens: int, make_id: MakeCallId = call_id) -> Answer:
    """`shown` was told already, `rest` is what is left to tell."""
    calls = tuple(
        wire.ToolCall(id=make_id(), function=wire.CalledFunction(call.name, call.arguments)) for call in rest.calls
    )
    content = shown + (rest.content or "")
    return Answer(
        content=content if content or not calls else None,
        calls=calls,
        finish=_finish(ended, bool(calls)),
        usage=_usage(ended, prompt_tokens),
        timings=_timings(ended, prompt_tokens),
    )


def completion(origin: Origin, whole: Answer) -> wire.Completion:
    message = wire.AssistantMessage("assistant", whole.content, whole.calls or UNSET)
    return wire.Completion(
        id=origin.id,
        created=origin.created,
        model=origin.model,
        choices=(wire.Choice(message=message, finish_reason=whole.finish),),
        usage=whole.usage,
        timings=whole.timings,
        system_fingerprint=origin.fingerprint,
    )


class Chunks:
    """The parts of a streamed reply. When usage is asked for, every part has the field and the last one the figures."""

    def __init__(self, origin: Origin, include_usage: bool) -> None:
        self._origin = origin
        self._include_usage = include_usage

    def opening(self) -> wire.Chunk:
        return self._chunk(wire.ChunkChoice(delta=wire.Delta(role="assistant", content="")))

    def text(self, text: str) -> wire.Chunk:
        return self._chunk(wire.ChunkChoice(delta=wire.Delta(content=text)))

    def ending(self, rest: str | None, whole: Answer) -> Iterator[wire.Chunk]:
        """What was not told yet, the calls, the reason of the end, and the figures."""
        if rest:
            yield self.text(rest)
        for index, call in enumerate(whole.calls):
            for delta in _call_deltas(index, call):
                yield self._chunk(wire.ChunkChoice(delta=wire.Delta(tool_calls=(delta,))))
        last = wire.ChunkChoice(delta=wire.Delta(), finish_reason=whole.finish)
        yield self._chunk(last, whole.timings)
        if self._include_usage:
            yield self._with(choices=(), usage=whole.usage)

    def _chunk(self, choice: wire.ChunkChoice, timings: wire.Timings | None = None) -> wire.Chunk:
        return self._with((choice,), None if self._include_usage else UNSET, timings or UNSET)

    def _with(self, choices: "tuple[wire.ChunkChoice, ...]", usage: object, timings: object = UNSET) -> wire.Chunk:
        origin = self._origin
        return wire.Chunk(
            id=origin.id,
            created=origin.created,
            model=origin.model,
            system_fingerprint=origin.fingerprint,
            choices=choices,
            usage=usage,  # pyright: ignore[reportArgumentType]
            timings=timings,  # pyright: ignore[reportArgumentType]
        )


def _call_deltas(index: int, call: wire.ToolCall) -> Iterator[wire.ToolCallDelta]:
    opening = wire.FunctionDelta(name=call.function.name, arguments="")
    yield wire.ToolCallDelta(index=index, id=call.id, type="function", function=opening)
    yield wire.ToolCallDelta(index=index, function=wire.FunctionDelta(arguments=call.function.arguments))


def _finish(ended: Ended, has_calls: bool) -> wire.Finish:
    if ended.cut_off:
        return "length"
    return "tool_calls" if has_calls else "stop"


def _usage(ended: Ended, prompt_tokens: int) -> wire.Usage:
    generated = len(ended.tokens)
    details = wire.PromptTokensDetails(ended.cached)
    return wire.Usage(prompt_tokens, generated, prompt_tokens + generated, details)


def _timings(ended: Ended, prompt_tokens: int) -> wire.Timings:
    spent, prefilled = ended.spent, prompt_tokens - ended.cached
    prompt_seconds, predicted_seconds = spent.first_at - spent.begun_at, spent.ended_at - spent.first_at
    return wire.Timings(
        queue_ms=_ms(spent.begun_at - spent.asked_at),
        ttft_ms=_ms(spent.first_at - spent.asked_at),
        prompt_ms=_ms(prompt_seconds),
        predicted_ms=_ms(predicted_seconds),
        prefill_tokens=prefilled,
        prefill_tokens_per_second=_rate(prefilled, prompt_seconds),
        decode_tokens_per_second=_rate(len(ended.tokens) - 1, predicted_seconds),
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _rate(count: int, seconds: float) -> float | None:
    return round(count / seconds, 2) if count > 0 and seconds > 0 else None
