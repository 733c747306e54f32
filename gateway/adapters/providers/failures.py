"""Why an attempt gave no reply: what that means for the next attempt, for the bill, and in words.

    HTTP 408, 409, 429, 5xx           retried     not lost: the provider says that it did nothing
    no connection                     retried     not lost: nothing was sent
    dropped, timed out, broken, cut   retried     lost: the request had been sent, and may be billed
    any other HTTP status             refused     asking again cannot help

The response header `x-should-retry` overrules the first and the last line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from gateway.adapters.providers.exchange import HttpError, NotConnected
from gateway.adapters.providers.wire import Problem, problem_of, tidy
from gateway.core.errors import ProviderError, ProviderRefused, ProviderUnavailable

TRANSIENT = frozenset({408, 409, 429})
OUT_OF_FUNDS = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
"""Codes of a 429 that passes when somebody pays, not when somebody waits."""

REFUSING = frozenset(
    {
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "invalid_api_key",
        "model_not_found",
        "context_length_exceeded",
    }
)
"""Types and codes of an error inside of a reply, after whose 200 there is no other status."""


class Failed(Exception):
    """One attempt without a reply. `what` goes between "the provider" and "to 4 attempts"; `detail` says more.

    Never leaves this adapter: `concluded` makes an error of the gateway's tree of it.
    """

    def __init__(
        self,
        what: str,
        detail: str = "",
        *,
        retry: bool = True,
        refused: bool = False,
        lost: bool = False,
        status: int | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(f"the provider {what}{f': {detail}' if detail else ''}")
        self.what = what
        self.detail = detail
        self.retry = retry
        self.refused = refused
        self.lost = lost
        self.status = status
        self.retry_after_seconds = retry_after_seconds


# --- one failure ----------------------------------------------------------------------------------------------------


def answered(status: int, headers: Mapping[str, str], body: bytes) -> Failed:
    """The provider answered with an HTTP error."""
    problem = problem_of(body)
    transient = status in TRANSIENT or status >= 500
    retry = {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower(), transient)
    return Failed(
        f"answered {status}",
        problem.message or _where_to(headers),
        retry=retry and problem.code not in OUT_OF_FUNDS,
        refused=not (retry or transient),
        status=status,
        retry_after_seconds=retry_after_of(headers),
    )


def _where_to(headers: Mapping[str, str]) -> str:
    location = headers.get("Location")
    return f"a redirect to {location}, which is not followed" if location else ""


def reported(problem: Problem) -> Failed:
    """The provider began a reply with status 200, and there is an error in it."""
    code = str(problem.code or "")
    status = int(code) if code.isdecimal() and len(code) == 3 else None
    transient = status is None or status in TRANSIENT or not 400 <= status < 500
    refused = not transient or not REFUSING.isdisjoint({problem.type, code})
    words = tidy(problem.message or problem.type or code)
    return Failed("reported an error", words, retry=not refused, refused=refused, lost=not refused, status=status)


def unanswered(error: HttpError) -> Failed:
    """The network failed, or the time ran out."""
    return Failed("gave no answer", tidy(str(error)), lost=not isinstance(error, NotConnected))


def broken(detail: str) -> Failed:
    """What arrived is no reply, or not a whole one."""
    return Failed("gave a broken answer", detail, lost=True)


def too_large(bytes_max: int) -> Failed:
    words = f"more than the {bytes_max} bytes that are read"
    return Failed("gave too large an answer", words, retry=False, refused=True, lost=True)


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """How long the provider asks to wait: in seconds, or until a date."""
    value = headers.get("Retry-After", "").strip()
    with suppress(ValueError):
        seconds = float(value)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    with suppress(ValueError, OverflowError):
        moment = parsedate_to_datetime(value)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0.0, (moment - datetime.now(UTC)).total_seconds())
    return None


# --- all of them ----------------------------------------------------------------------------------------------------


def worth_retrying(failure: Failed, retry_after_max_seconds: float) -> bool:
    return failure.retry and not asks_too_much(failure, retry_after_max_seconds)


def asks_too_much(failure: Failed, retry_after_max_seconds: float) -> bool:
    return failure.retry_after_seconds is not None and failure.retry_after_seconds > retry_after_max_seconds


def concluded(failures: Sequence[Failed], retry_after_max_seconds: float) -> ProviderError:
    """The error that ends a request after these attempts. All about it is said of the last one."""
    last = failures[-1]
    kind = ProviderRefused if last.refused else ProviderUnavailable
    words = f"the provider {last.what}{_to_attempts(failures)}{_demand(last, retry_after_max_seconds)}"
    return kind(
        f"{words}: {last.detail}" if last.detail else words,
        status=last.status,
        lost=last.lost,
        retry_after_seconds=last.retry_after_seconds,
        attempts=len(failures),
    )


def _to_attempts(failures: Sequence[Failed]) -> str:
    if len(failures) == 1:
        return ""
    alike = all(failure.what == failures[-1].what for failure in failures)
    return f" to {len(failures)} attempts" if alike else f" to the last of {len(failures)} attempts"


def _demand(failure: Failed, retry_after_max_seconds: float) -> str:
    if not (failure.retry and asks_too_much(failure, retry_after_max_seconds)):
        return ""
    asked = f"{failure.retry_after_seconds:.10g}"
    return f" and asks to wait {asked} s, longer than the {retry_after_max_seconds:g} s that are waited"
