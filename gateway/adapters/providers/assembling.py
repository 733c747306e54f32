"""From the pieces of a reply to one message. No I/O: bytes go in, text comes out, and at the end a whole message.

Providers differ most in how they stream tool calls, so a piece is matched to its call by whatever it carries: an index,
else an id, else that it has a name (a new call) or has none (more of the last one). An index that comes again with
another id and a name is a new call too: some servers say 0 for every call.
"""

from __future__ import annotations

from typing import Any

import assel
import msgspec
from msgspec import Struct

from gateway import sse
from gateway.adapters.providers import failures, wire
from gateway.adapters.providers.usage import reported
from gateway.adapters.providers.wire import Body, CallDelta, Choice, Delta
from gateway.core.messages import Assistant, Content, Function, ToolCall
from gateway.core.pricing import Usage

DONE = "[DONE]"


class _Call(Struct):
    """A tool call as far as it has arrived."""

    index: int | None
    id: str
    name: str = ""
    arguments: list[str] = []

    def take(self, delta: CallDelta) -> None:
        self.id = self.id or delta.id or ""
        if (function := delta.function) is None:
            return
        if function.name and function.name != self.name:  # some repeat the whole name in every piece, some cut it
            self.name += function.name
        if isinstance(function.arguments, str):
            self.arguments.append(function.arguments)
        elif function.arguments is not None:
            self.arguments.append(msgspec.json.encode(function.arguments).decode())


class Assembling:
    """A message in the making."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.timings: Any = None
        self.has_choice = False
        self.has_content = False
        self._parts: list[dict[str, Any]] = []
        self._texts: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []

    # --- pieces in --------------------------------------------------------------------------------------------------

    def take(self, body: Body) -> str:
        """Add one chunk, or a whole plain reply. Returns the text that is new. Raises Failed for an error in it."""
        if body.error:
            raise failures.reported(wire.as_problem(body.error))
        self.usage = reported(body.usage) or self.usage
        self.timings = body.timings or self.timings
        return "".join([self._choice(choice) for choice in body.choices or () if not choice.index])

    def _choice(self, choice: Choice) -> str:
        self.has_choice = True
        self.finish_reason = choice.finish_reason or self.finish_reason
        if choice.delta is not None:
            return self._delta(choice.delta)
        if choice.message is not None:
            return self._delta(_as_delta(choice.message))
        return ""

    def _delta(self, delta: Delta) -> str:
        text = self._content(delta.content)
        reasoning = delta.reasoning_content or delta.reasoning
        if isinstance(reasoning, str):
            self._reasoning.append(reasoning)
        if delta.refusal:
            self._refusal.append(delta.refusal)
        for call in delta.tool_calls or ():
            self._call(call)
        self.has_content = self.has_content or bool(delta.content or reasoning or delta.refusal or delta.tool_calls)
        return text

    def _content(self, content: Content | None) -> str:
        if isinstance(content, list):
            return "".join([self._part(part) for part in content])
        return self._text(content) if content else ""

    def _part(self, part: dict[str, Any]) -> str:
        if part.get("type") == "text":
            return self._text(str(part.get("text") or ""))
        self._end_text()
        self._parts.append(part)
        return ""

    def _text(self, text: str) -> str:
        self._texts.append(text)
        return text

    def _end_text(self) -> None:
        if text := "".join(self._texts):
            self._parts.append({"type": "text", "text": text})
        self._texts.clear()

    def _call(self, delta: CallDelta) -> None:
        call = self._call_of(delta)
        if call is None:
            call = _Call(delta.index, delta.id or "")
            self._calls.append(call)
        call.take(delta)

    def _call_of(self, delta: CallDelta) -> _Call | None:
        """The call that a piece belongs to; None if it opens a new one."""
        if not self._calls:
            return None
        named = bool(delta.function and delta.function.name)
        if delta.index is not None:
            call = next((call for call in reversed(self._calls) if call.index == delta.index), None)
            reused = call is not None and named and bool(delta.id and call.id and delta.id != call.id)
            return None if reused else call
        if delta.id:
            return next((call for call in reversed(self._calls) if call.id == delta.id), None)
        return None if named else self._calls[-1]

    # --- the message out --------------------------------------------------------------------------------------------

    @property
    def finish(self) -> str:
        """Calls are calls whatever the provider calls their end, unless it says that it cut them short."""
        reason = self.finish_reason or "stop"
        if reason in ("tool_calls", "length", "content_filter"):
            return reason
        return "tool_calls" if self._said else reason

    @property
    def provider_ms(self) -> dict[str, float] | None:
        """What llama.cpp and its like say of their own times."""
        if not isinstance(self.timings, dict):
            return None
        numbers = {name: value for name, value in self.timings.items() if type(value) in (int, float)}
        return numbers or None

    @property
    def _said(self) -> list[_Call]:
        """Without the empty entries that some servers begin or end with."""
        return [call for call in self._calls if call.name or any(call.arguments)]

    def message(self) -> Assistant:
        calls = _finished(self._said)
        refusal = "".join(self._refusal) or None
        empty = None if calls or refusal else ""
        return Assistant(
            content=self._whole_content() or empty,
            tool_calls=calls,
            refusal=refusal,
            reasoning_content="".join(self._reasoning) or None,
        )

    def _whole_content(self) -> Content:
        """A string where all of it is text: what clients and token counts expect."""
        if not self._parts:
            return "".join(self._texts)
        self._end_text()
        return self._parts


class SseReply:
    """A streamed reply: bytes in, text out."""

    def __init__(self) -> None:
        self.assembling = Assembling()
        self.done = False
        self._parser = sse.parser()

    @property
    def whole(self) -> bool:
        """Whether nothing of the message is missing, whatever happens to the connection now."""
        return self.assembling.has_choice and (self.done or self.assembling.finish_reason is not None)

    def feed(self, data: bytes) -> list[str]:
        """The pieces of text that these bytes complete. Raises Failed for what is no chunk, or an error."""
        events = (event for event in self._parser.receive_bytes(data) if event.data)
        return [text for event in events if (text := self._take(event))]

    def end(self) -> list[str]:
        """The stream is over; its last event may lack the blank line. Raises Failed if the reply is not whole."""
        texts = self.feed(b"\n\n")
        if not self.whole:
            raise failures.broken("the stream ended before the reply did" if not self.done else "it has no choices")
        return texts

    def _take(self, event: assel.Event) -> str:
        if self.done or event.data.strip() == DONE:
            self.done = True
            return ""
        if event.event == "error":
            raise failures.reported(wire.problem_of(event.data.encode()))
        return self.assembling.take(decoded(event.data))


def plain_reply(data: bytes) -> tuple[Assembling, str]:
    """A reply in one piece, and its text. Raises Failed for what is none, or an error."""
    assembling = Assembling()
    text = assembling.take(decoded(data))
    if not assembling.has_choice:
        raise failures.broken("it has no choices")
    return assembling, text


def decoded(data: bytes | str) -> Body:
    try:
        return wire.decode_body(data)
    except wire.Undecodable as error:
        raise failures.broken(wire.tidy(str(error))) from error


def _as_delta(message: Delta) -> Delta:
    """In a plain reply every entry is a call, whatever its id."""
    for position, call in enumerate(message.tool_calls or ()):
        call.index = position
    return message


def _finished(calls: list[_Call]) -> tuple[ToolCall, ...]:
    """The calls in order, each with an id of its own, which is how the provider will know their outputs apart."""
    ids: set[str] = set()
    finished: list[ToolCall] = []
    for position, call in enumerate(sorted(calls, key=lambda call: call.index or 0)):
        name = _unused(call.id or f"call_{position}", ids)
        ids.add(name)
        finished.append(ToolCall(name, "function", Function(call.name, "".join(call.arguments) or "{}")))
    return tuple(finished)


def _unused(wanted: str, taken: set[str]) -> str:
    count = 1
    candidate = wanted
    while candidate in taken:
        count += 1
        candidate = f"{wanted}_{count}"
    return candidate
