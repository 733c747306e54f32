"""From a run to a response, and to the events of one that streams. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import assel
from msgspec import Struct

from gateway.core.codec import encode
from gateway.core.messages import text_of
from gateway.core.run import Run, Status
from gateway.edge.openai.answering import clients_calls, extension, finish, has_reply, message
from gateway.edge.openai.asking import wire_id
from gateway.edge.openai.errors import CODE, words
from gateway.edge.openai.responses.wire import (
    CallItem,
    Error,
    Event,
    Incomplete,
    InputDetails,
    MessageItem,
    OutputDetails,
    OutputText,
    Refusal,
    Response,
    UsageOut,
)
from gateway.edge.openai.wire import Progress

Item = MessageItem | CallItem


def response_id(run_id: str, turns: int) -> str:
    """By the run, and its turns when the request came: known before anything is said."""
    return f"resp_{run_id.removeprefix('run_')}_{turns}"


def response(run: Run, model: str, turns: int) -> Response:
    return Response(
        id=response_id(run.id, turns),
        created_at=int(run.created_at.timestamp()),
        status=status(run),
        error=Error(CODE, words(run)) if run.status is Status.FAILED else None,
        incomplete_details=incomplete(run),
        metadata=run.metadata,
        model=model,
        output=[] if run.status is Status.FAILED else items(run, turns),
        usage=usage(run),
        gateway=extension(run),
    )


def status(run: Run) -> Literal["completed", "incomplete", "failed"]:
    if run.status is Status.FAILED:
        return "failed"
    return "incomplete" if incomplete(run) else "completed"


def incomplete(run: Run) -> Incomplete | None:
    if run.status is Status.FAILED:
        return None
    match finish(run):
        case "length":
            return Incomplete("max_output_tokens")
        case "content_filter":
            return Incomplete("content_filter")
        case _:
            return None


def items(run: Run, turns: int) -> list[Item]:
    """The text, if there is any, and then the calls that the client runs."""
    said = message(run)
    parts: list[OutputText | Refusal] = []
    if text := text_of(said.content):
        parts.append(OutputText(text=text))
    if said.refusal:
        parts.append(Refusal(refusal=said.refusal))
    calls = call_items(run)
    wanted = parts or not calls
    return [*([message_item(message_id(run.id, turns), parts)] if wanted else []), *calls]


def message_item(item_id: str, parts: list[OutputText | Refusal]) -> MessageItem:
    return MessageItem(id=item_id, status="completed", content=parts)


def message_id(run_id: str, turns: int) -> str:
    """As the response that it is in: clients name a message by it instead of sending it back (references.py)."""
    return f"msg_{run_id.removeprefix('run_')}_{turns}"


def call_items(run: Run) -> list[CallItem]:
    return [
        CallItem(
            id=f"fc_{wire_id(call.id)}",
            status="completed",
            call_id=wire_id(call.id),
            name=call.tool,
            arguments=call.arguments,
        )
        for call in clients_calls(run)
    ]


def usage(run: Run) -> UsageOut:
    used = run.usage if run.conversation is None else run.last_usage
    return UsageOut(
        input_tokens=used.prompt_tokens,
        input_tokens_details=InputDetails(used.cached_tokens),
        output_tokens=used.completion_tokens,
        output_tokens_details=OutputDetails(used.reasoning_tokens),
        total_tokens=used.total_tokens,
    )


class Head(Struct, frozen=True):
    """What is known of a response before it ends."""

    run_id: str
    model: str
    created: int
    turns: int

    @property
    def message_id(self) -> str:
        return message_id(self.run_id, self.turns)

    def response(self) -> Response:
        return Response(
            id=response_id(self.run_id, self.turns), created_at=self.created, status="in_progress", model=self.model
        )


class ResponsesVoice:
    """Satisfies `telling.Voice`. All text of a stream is one message; `response.completed` ends it, or what says that
    it is not complete."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._sequence = 0
        self._pieces: list[str] = []

    def opening(self) -> bytes:
        begun = self._head.response()
        return self._event("response.created", response=begun) + self._event("response.in_progress", response=begun)

    def text(self, text: str) -> bytes:
        opening = b"" if self._pieces else self._open_message()
        self._pieces.append(text)
        return opening + self._event("response.output_text.delta", **self._at(), delta=text, logprobs=[])

    def progress(self, progress: Progress) -> bytes:
        return b""

    def ending(self, run: Run) -> bytes:
        sent = b"".join((*self._close_message(), *self._calls(run)))
        whole = response(run, self._head.model, self._head.turns)
        return sent + self._event(f"response.{whole.status}", response=whole)

    def failed(self, run: Run) -> bytes:
        whole = response(run, self._head.model, self._head.turns)
        return self._begun() + self._event("response.failed", response=whole)

    def broken(self, message: str, code: str) -> bytes:
        return self._begun() + self._event("error", code=code, message=message, param=None)

    def _begun(self) -> bytes:
        """Clients put a response together from its events, and take none before it has been created."""
        return b"" if self._sequence else self.opening()

    # --- events -----------------------------------------------------------------------------------------------------

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = Event(type=kind, sequence_number=self._sequence, **fields)
        self._sequence += 1
        return assel.send(assel.Event(data=encode(event).decode(), event=kind))

    def _at(self) -> dict[str, Any]:
        return {"item_id": self._head.message_id, "output_index": 0, "content_index": 0}

    def _open_message(self) -> bytes:
        item = MessageItem(id=self._head.message_id, status="in_progress", content=[])
        return self._event("response.output_item.added", output_index=0, item=item) + self._event(
            "response.content_part.added", **self._at(), part=OutputText(text="")
        )

    def _close_message(self) -> Iterator[bytes]:
        if not self._pieces:
            return
        text = "".join(self._pieces)
        part = OutputText(text=text)
        item = message_item(self._head.message_id, [part])
        yield self._event("response.output_text.done", **self._at(), text=text, logprobs=[])
        yield self._event("response.content_part.done", **self._at(), part=part)
        yield self._event("response.output_item.done", output_index=0, item=item)

    def _calls(self, run: Run) -> Iterator[bytes]:
        calls = call_items(run) if has_reply(run) else []
        for index, item in enumerate(calls, start=1 if self._pieces else 0):
            at = {"item_id": item.id, "output_index": index}
            begun = CallItem(id=item.id, status="in_progress", call_id=item.call_id, name=item.name, arguments="")
            yield self._event("response.output_item.added", output_index=index, item=begun)
            yield self._event("response.function_call_arguments.delta", **at, delta=item.arguments)
            yield self._event("response.function_call_arguments.done", **at, name=item.name, arguments=item.arguments)
            yield self._event("response.output_item.done", output_index=index, item=item)
