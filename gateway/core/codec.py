"""Events and runs to bytes and back: msgspec's own encoders, and the one place that makes a line of the
trace."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gateway.core.events import Event

T = TypeVar("T")
R = TypeVar("R")

_encoder = msgspec.json.Encoder(decimal_format="number")
_canonical = msgspec.json.Encoder(decimal_format="number", order="sorted")
_event_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)

encode = _encoder.encode
"""Any of our types as compact JSON; money as numbers."""


def decode_event(body: bytes | str) -> Event:
    """One stored event. Raises msgspec.ValidationError for what is no event of ours."""
    return _event_decoder.decode(body)


def trace_line(run_id: str, seq: int, body: bytes) -> bytes:
    """A stored event as the trace shows it: `runId` first, `seq` last, no newline.

    The body is spliced and not decoded: it was written by `encode`, begins with `{"type":…` and is never empty.
    """
    return b'{"runId":%b,%b,"seq":%d}' % (encode(run_id), body[1:-1], seq)


def remembers_last(function: Callable[[T], R]) -> Callable[[T], R]:
    """The same function; asked of the same object again, it is not carried out again. For what never changes and is
    common to most runs, as an agent's tools are."""
    last: tuple[T, R] | None = None

    def remembering(value: T) -> R:
        nonlocal last
        if last is None or last[0] is not value:
            last = value, function(value)
        return last[1]

    return remembering


class Kind(Struct):
    type: str


_kind_decoder = msgspec.json.Decoder(Kind)


def kind_of(body: bytes) -> str:
    """The type of a stored event, without decoding the rest."""
    return _kind_decoder.decode(body).type


def call_key(tool: str, args: dict[str, Any]) -> str:
    """Equal for calls of one tool with equal arguments, whatever the order of their keys."""
    return f"{tool} {_canonical.encode(args).decode()}"


def args_hash(tool: str, args: dict[str, Any]) -> str:
    """The name of what a person saw when they gave a verdict: 16 hex digits of SHA-256."""
    return hashlib.sha256(call_key(tool, args).encode()).hexdigest()[:16]
