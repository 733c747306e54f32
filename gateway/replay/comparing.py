"""What is compared of two runs, and the first thing that differs: pure."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Struct

from gateway.core.codec import encode
from gateway.core.events import Event

VARIES = ("time", "ms", "firstTokenMs", "providerMs", "estimated", "parent", "version")
"""Times; whether tokens were counted by us or by the provider, since a replay is always told; and what a run is in."""

SHOWN_CHARS_MAX = 200

Fields = dict[str, Any]

_decoder = msgspec.json.Decoder(Fields, float_hook=Decimal)


class Difference(Struct, frozen=True, kw_only=True):
    """The first event that is not as recorded: its number from 0, its kind, and the field; null is no such event or no
    such field."""

    event: int
    type: str
    field: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return f"Event {self.event} ({self.type}), {self.field}: {shown(self.recorded)} → {shown(self.replayed)}"


def normal(event: Event) -> Fields:
    """The event as plain JSON, without what differs from one time to the next. Deadlines are the clock's: that there is
    one is compared, how long it is is not."""
    fields = _decoder.decode(encode(event))
    fields = {name: value for name, value in fields.items() if name not in VARIES}
    if limits := fields.get("limits"):
        fields["limits"] = {**limits, "deadline_seconds": limits.get("deadline_seconds") is not None}
    return fields


def first_difference(number: int, recorded: Fields | None, replayed: Fields | None) -> Difference | None:
    """Where two events differ; None where they do not. The kind is looked at first."""
    kind = str((recorded or replayed or {}).get("type"))
    one, other = (None if event is None else event.get("type") for event in (recorded, replayed))
    if one != other:
        return Difference(event=number, type=kind, field="type", recorded=one, replayed=other)
    for field, old, new in differing(recorded, replayed, ""):
        return Difference(event=number, type=kind, field=field, recorded=old, replayed=new)
    return None


def differing(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """The innermost values that differ, with the path to each: `message.tool_calls[0].function.arguments`."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            yield from differing(old.get(name), new.get(name), f"{path}.{name}" if path else str(name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differing(one, other, f"{path}[{index}]")
    elif old != new or isinstance(old, bool) is not isinstance(new, bool):
        yield path, old, new


def figures_difference(events: int, recorded: Struct, replayed: Struct | None) -> Difference | None:
    """Where the figures of two runs differ, whose events are the same."""
    old, new = (_decoder.decode(encode(figures)) for figures in (recorded, replayed or {}))
    for field, one, other in differing(old, new, ""):
        return Difference(event=events, type="figures", field=field, recorded=one, replayed=other)
    return None


def shown(value: Any) -> str:
    text = encode(value).decode()
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"
