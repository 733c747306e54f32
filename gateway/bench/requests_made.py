"""The chat requests of runs, as JSON lines that any server can be asked again with. Pure.

`model-server bench --recorded` replays them. Each asks for no more tokens than were written then, so that all servers
have the same to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from gateway.adapters.providers.requests import ToolDefinition, definitions
from gateway.core import events as e
from gateway.core.codec import encode
from gateway.core.loop import apply, start
from gateway.core.messages import Message

TURNS_MAX = 2  # of each task, as many as were published


class Request(Struct, frozen=True, kw_only=True):
    """Without a model's name: each server has its own."""

    messages: tuple[Message, ...]
    tools: list[ToolDefinition]
    temperature: float = 0
    max_tokens: int


class Made(Struct, frozen=True, kw_only=True):
    """One line. The requests of a conversation are made one after another."""

    conversation: int
    turn: int
    request: Request


def requests_of(number: int, run_id: str, events: Sequence[e.Event]) -> Iterator[Made]:
    first = events[0]
    assert isinstance(first, e.RunStarted)
    run = start(run_id, first)
    for event in events[1:]:
        if isinstance(event, e.Turn) and event.turn <= TURNS_MAX:
            request = Request(
                messages=run.messages, tools=definitions(run.tools), max_tokens=max(1, event.completion_tokens)
            )
            yield Made(conversation=number, turn=event.turn, request=request)
        run = apply(run, event)


def as_lines(made: Sequence[Any]) -> bytes:
    return b"".join(encode(each) + b"\n" for each in made)
