"""Latency and faults: how they are asked for. What they do to a reply is in replies.py.

The same text asks for them in a model's name (`plan@latency=50,fault=500:2`), in the header `X-Scripted` and on the
command line. Pairs are joined by `,` or `@`. The model's name goes before the header, and the header before the command
line. A fault replaces another one with all its settings.

    latency=MS      before anything is sent
    fault=NAME[:N]  one of Kind; `:N` is short for `attempt=N`
    turn=K          the fault in turn K only (0 is the first)
    attempt=N       the fault in the first N attempts only, by the number that the client sends with the request (in
                    X-Attempt or X-Stainless-Retry-Count, 0 is the first): nothing is counted here
    retry_after=S   seconds, in the header Retry-After (1 for a 429 that does not say)
    stall_ms=MS     how long `stall` is silent
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

STALL_MS = 30_000.0
WAIT_MS_MAX = 600_000
ATTEMPT_HEADERS = ("X-Attempt", "X-Stainless-Retry-Count")  # the second is what OpenAI's client libraries send

Milliseconds = Annotated[float, Meta(ge=0, le=WAIT_MS_MAX)]


class Kind(StrEnum):
    """What goes wrong."""

    NONE = "none"  # nothing, where a default would be a fault
    BAD_REQUEST = "400"
    UNAUTHORISED = "401"
    FORBIDDEN = "403"
    RATE_LIMITED = "429"
    SERVER_ERROR = "500"
    UNAVAILABLE = "503"
    DROP_BEFORE = "drop_before"  # the connection closes before any byte of the reply
    DROP_MIDDLE = "drop_middle"  # … in the middle of the body or the stream
    TRUNCATE = "truncate"  # a stream ends cleanly without finish_reason and [DONE]; a plain body is a clean half
    BAD_JSON = "bad_json"  # the body, or one line of the stream, is not JSON
    NO_USAGE = "no_usage"
    NO_FINISH = "no_finish"  # no finish_reason
    FINISH_STOP = "finish_stop"  # tool calls that finish with "stop"
    NO_INDEX = "no_index"  # streamed tool calls have no index
    REISSUE_ID = "reissue_id"  # every tool call of the conversation has the id c1
    STALL = "stall"  # headers, then silence, then the reply


class Fault(Struct, frozen=True, kw_only=True):
    kind: Kind
    turn: int | None = None
    attempts: int | None = None
    retry_after_seconds: float | None = None
    stall_ms: float = STALL_MS

    def applies(self, turn: int, attempt: int) -> bool:
        return self.turn in (None, turn) and (self.attempts is None or attempt < self.attempts)


NO_FAULT = Fault(kind=Kind.NONE)


class Behaviour(Struct, frozen=True):
    """What one source asks for; None is what it leaves to the next one."""

    latency_ms: float | None = None
    fault: Fault | None = None

    def over(self, other: "Behaviour") -> "Behaviour":
        latency_ms = other.latency_ms if self.latency_ms is None else self.latency_ms
        return Behaviour(latency_ms, other.fault if self.fault is None else self.fault)

    def fault_now(self, turn: int, attempt: int) -> Fault:
        return self.fault if self.fault is not None and self.fault.applies(turn, attempt) else NO_FAULT


class BadBehaviour(ValueError):
    """A latency or fault that cannot be understood; the message says what can."""


class _Asked(Struct, frozen=True):
    """The pairs of one text, checked. Field names are what users write."""

    latency: Milliseconds | None = None
    fault: Kind | None = None
    turn: Annotated[int, Meta(ge=0)] | None = None
    attempt: Annotated[int, Meta(ge=1)] | None = None
    retry_after: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    stall_ms: Milliseconds = STALL_MS


_PARSED_MAX = 1024  # each request asks for something, and hardly ever for something new

_KNOWN = _Asked.__struct_fields__
_OF_A_FAULT = {"turn", "attempt", "retry_after", "stall_ms"}


@lru_cache(maxsize=_PARSED_MAX)
def parse(text: str) -> Behaviour:
    """`latency=250,fault=429:2` as a Struct. Raises BadBehaviour."""
    pairs = _pairs(text)
    if "fault" not in pairs and (orphans := _OF_A_FAULT & pairs.keys()):
        raise BadBehaviour(f"{min(orphans)} says something about a fault, but no fault is named with it.")
    return _behaviour(_checked(pairs))


def split_model(model: str) -> tuple[str, Behaviour]:
    """`plan@latency=250` is the script `plan` and what is asked of it. Raises BadBehaviour."""
    script, _, asked = model.partition("@")
    return script, parse(asked)


def attempt_of(headers: Mapping[str, str]) -> int:
    """Which attempt at the request this is, from 0, as the client counts. Raises BadBehaviour."""
    for name in ATTEMPT_HEADERS:
        if (value := headers.get(name)) is not None:
            if not (value.isascii() and value.isdecimal() and len(value) < 10):
                raise BadBehaviour(f"The header {name} must be a whole number of attempts made before, not {value!r}.")
            return int(value)
    return 0


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in filter(None, re.split(r"[,@\s]+", text)):
        name, _, value = item.partition("=")
        if name not in _KNOWN:
            raise BadBehaviour(f"Unknown setting {name!r}. Known are: {', '.join(_KNOWN)}.")
        if name in pairs:
            raise BadBehaviour(f"{name} is given twice.")
        pairs[name] = value
    return _with_attempt(pairs)


def _with_attempt(pairs: dict[str, str]) -> dict[str, str]:
    name, short, attempts = pairs.get("fault", "").partition(":")
    if not short:
        return pairs
    if "attempt" in pairs:
        raise BadBehaviour("attempt is given twice: in itself and after the name of the fault.")
    return {**pairs, "fault": name, "attempt": attempts}


def _checked(pairs: dict[str, str]) -> _Asked:
    fault = pairs.get("fault", Kind.NONE)
    if fault not in set(Kind):
        raise BadBehaviour(f"Unknown fault {fault!r}. Known are: {', '.join(Kind)}.")
    try:
        return msgspec.convert(pairs, _Asked, strict=False)
    except msgspec.ValidationError as error:
        raise BadBehaviour(f"{error}.") from None


def _behaviour(asked: _Asked) -> Behaviour:
    if asked.fault is None:
        return Behaviour(asked.latency)
    fault = Fault(
        kind=asked.fault,
        turn=asked.turn,
        attempts=asked.attempt,
        retry_after_seconds=asked.retry_after,
        stall_ms=asked.stall_ms,
    )
    return Behaviour(asked.latency, fault)
