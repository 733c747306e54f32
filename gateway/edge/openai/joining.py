"""Which run a request is about: one under way that it joins, one that it goes on with, or a new one."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from decimal import Decimal, InvalidOperation

from aiohttp import web
from msgspec import UNSET, Struct

from gateway.core.commands import RaisedLimits
from gateway.core.errors import BadRequest
from gateway.core.run import Run

REMEMBERED_SECONDS = 600.0
REMEMBERED_MAX = 10_000
NAME_LENGTH_MAX = 255
DIGITS_MAX = 10  # of a number of turns: it takes but a few letters to name one that fills the memory

CONVERSATION = "X-Gateway-Conversation"
RUN_ID = "X-Run-Id"
MAX_TURNS = "X-Gateway-Max-Turns"
MAX_BUDGET = "X-Gateway-Max-Budget-Usd"
CANCEL = "X-Gateway-Cancel-On-Disconnect"
RETRY_COUNT = "x-stainless-retry-count"


class Way(Struct, frozen=True):
    """The run, known before anything happens to it, and how to enter it: the run is then under way, or has stopped."""

    run_id: str
    enter: Callable[[], Awaitable[Run]]


class Recent:
    """The runs that requests have started lately, by what was asked: a client library that asks again on its own sends
    the same, and says so."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._runs: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def started(self, fingerprint: str, run_id: str) -> None:
        self._runs.pop(fingerprint, None)
        self._runs[fingerprint] = (self._clock(), run_id)
        self._forget()

    def forget(self, fingerprint: str) -> None:
        self._runs.pop(fingerprint, None)

    def run_of(self, fingerprint: str) -> str | None:
        self._forget()
        known = self._runs.get(fingerprint)
        return known and known[1]

    def _forget(self) -> None:
        oldest = self._clock() - REMEMBERED_SECONDS
        while self._runs and (len(self._runs) > REMEMBERED_MAX or next(iter(self._runs.values()))[0] < oldest):
            self._runs.popitem(last=False)


def fingerprint(request: web.Request, body: bytes) -> str:
    who = request.headers.get("Authorization", "")
    return hashlib.sha256(f"{who}\n{request.path}\n".encode(errors="surrogateescape") + body).hexdigest()


def is_retry(request: web.Request) -> bool:
    return request.headers.get(RETRY_COUNT, "0").strip() not in ("", "0")


def conversation_name(request: web.Request) -> str | None:
    name = request.headers.get(CONVERSATION)
    if name is not None and not (0 < len(name) <= NAME_LENGTH_MAX and name.isprintable()):
        raise BadRequest(f"{CONVERSATION} must have 1 to {NAME_LENGTH_MAX} printable characters.", param=CONVERSATION)
    return name


def conversation_id(request: web.Request, name: str) -> str:
    """The run of a conversation: the same for the same name and key, so that it is found again after a restart."""
    who = request.headers.get("Authorization", "")
    digest = hashlib.sha256(f"conversation\n{who}\n{name}".encode(errors="surrogateescape")).hexdigest()
    return f"run_{digest[:20]}"


def limits_of(request: web.Request) -> RaisedLimits:
    """The limits that the request's headers set; the service says whether they make sense."""
    return RaisedLimits(
        max_turns=UNSET if (turns := number(request, MAX_TURNS)) is None else whole(turns),
        max_budget_usd=UNSET if (budget := number(request, MAX_BUDGET)) is None else budget,
    )


def require_unlimited(request: web.Request) -> None:
    """What is passed through is no run, and a limit would hold nothing back. Raises BadRequest."""
    for name in (MAX_TURNS, MAX_BUDGET):
        if name in request.headers:
            words = (
                f"{name} needs a run: name an agent as the model, or send {CONVERSATION} with a name of your choice."
            )
            raise BadRequest(words, param=name)


def number(request: web.Request, name: str) -> Decimal | None:
    text = request.headers.get(name)
    if text is None:
        return None
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        raise BadRequest(f"{name} is {text!r}: it must be a number.", param=name) from None


def whole(value: Decimal) -> int:
    if not value.is_finite() or value.adjusted() >= DIGITS_MAX or value != value.to_integral_value():
        raise BadRequest(
            f"{MAX_TURNS} is {value}: it must be a whole number of at most {DIGITS_MAX} digits.", param=MAX_TURNS
        )
    return int(value)


def cancels_on_disconnect(request: web.Request) -> bool:
    return request.headers.get(CANCEL, "").lower() in ("1", "true")
