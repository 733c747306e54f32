"""Requests for a model of the provider's: passed on as they are, and what they used is counted. No run is made.

a reply                        as it came, byte for byte
an error of the provider's     as it came, with its status
no reply, or not a whole one   502; in a stream, an error as its last event, and the connection is cut: no [DONE]
a client that hangs up         the provider is hung up on
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from decimal import Decimal
from typing import Protocol

import msgspec
from aiohttp import web

from gateway.core.errors import ProviderError
from gateway.core.pricing import Price, Usage, cost
from gateway.edge.openai.errors import error_event
from gateway.edge.openai.wire import Peek
from gateway.edge.problems import problem

PASSED_HEADERS = frozenset(
    {"traceparent", "tracestate", "baggage", "x-scripted", "x-request-id", "x-client-request-id"}
)
PASSED_PREFIXES = ("openai-", "x-stainless-")
CODE = "provider_unavailable"


class Forwarded(Protocol):
    """An answer of the provider's: read it in one piece, or event by event, and close it."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def streams(self) -> bool: ...

    def usage(self, request_bytes: int) -> Usage: ...

    async def read(self) -> bytes: ...

    def events(self, *, hide_usage: bool) -> AsyncGenerator[bytes, None]: ...

    def close(self) -> None: ...


class Upstream(Protocol):
    async def send(self, path: str, body: bytes, headers: Mapping[str, str]) -> Forwarded:
        """Raises ProviderError if there is no answer."""
        ...


class Meter(Protocol):
    def passed(self, model: str, outcome: str, usage: Usage, cost_usd: Decimal, seconds: float) -> None:
        """One request was passed on: `ok`, `refused`, `unavailable`, `lost`, or `abandoned` by the client."""
        ...


class Proxy:
    def __init__(self, upstream: Upstream, price_of: Callable[[str], Price], meter: Meter) -> None:
        self._upstream = upstream
        self._price_of = price_of
        self._meter = meter

    async def chat(self, request: web.Request, body: bytes, peek: Peek) -> web.StreamResponse:
        """Raises CannotRun for a model without a price: what it costs could not be said."""
        price = self._price_of(peek.model)
        hide_usage = bool(peek.stream) and not asks_for_usage(peek)
        passing = Passing(self._meter, peek.model, price, len(body))
        sent = with_usage(body, peek) if hide_usage else body
        try:
            reply = await self._upstream.send("chat/completions", sent, passed_on(request.headers))
        except ProviderError as error:
            passing.ended("lost" if error.lost else "unavailable")
            return unavailable(request, error)
        except asyncio.CancelledError:
            passing.ended("abandoned")
            raise
        try:
            if reply.streams:
                return await stream(request, reply, passing, hide_usage=hide_usage)
            return await whole(request, reply, passing)
        finally:
            reply.close()


class Passing:
    """What is counted of one request."""

    def __init__(self, meter: Meter, model: str, price: Price, request_bytes: int) -> None:
        self._meter = meter
        self._model = model
        self._price = price
        self._request_bytes = request_bytes
        self._began = time.perf_counter()

    def ended(self, outcome: str, reply: Forwarded | None = None) -> None:
        """What broke off may be billed, and what is known of it is counted."""
        usage = Usage() if reply is None else reply.usage(self._request_bytes)
        seconds = time.perf_counter() - self._began
        self._meter.passed(self._model, outcome, usage, cost(self._price, usage), seconds)


async def whole(request: web.Request, reply: Forwarded, passing: Passing) -> web.Response:
    try:
        data = await reply.read()
    except ProviderError as error:
        passing.ended("lost")
        return unavailable(request, error)
    except asyncio.CancelledError:
        passing.ended("abandoned")
        raise
    if 200 <= reply.status < 300:
        passing.ended("ok", reply)
    else:
        passing.ended("refused" if reply.status < 500 and reply.status != 429 else "unavailable")
    return web.Response(body=data, status=reply.status, headers=reply.headers)


async def stream(request: web.Request, reply: Forwarded, passing: Passing, *, hide_usage: bool) -> web.StreamResponse:
    """A client that hangs up ends this too: by cancelling it, or where something is written. That is not the provider's
    doing, which is what alerts are about."""
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    outcome = "abandoned"
    try:
        async with aclosing(reply.events(hide_usage=hide_usage)) as events:
            await response.prepare(request)
            async for data in events:
                await response.write(data)
        outcome = "ok"
        await response.write_eof()
    except ProviderError as error:
        outcome = "lost"
        await response.write(error_event(f"{error}.", CODE))
        cut(request)
    finally:
        passing.ended(outcome, reply)
    return response


def cut(request: web.Request) -> None:
    """Without an end that a client could take for one."""
    if request.transport is not None:
        request.transport.close()


def unavailable(request: web.Request, error: ProviderError) -> web.Response:
    """Whether to ask again, and perhaps to pay twice, is for the client to say: its library is not told not to."""
    response = problem(request, 502, f"{error}.", code=CODE)
    response.headers.popall("x-should-retry", None)
    return response


def asks_for_usage(peek: Peek) -> bool:
    return bool((peek.stream_options or {}).get("include_usage"))


def with_usage(body: bytes, peek: Peek) -> bytes:
    """The request with its usage asked for, which is how a stream is metered. All else in it stays as it is."""
    if peek.stream_options is None and b'"stream_options"' not in body:
        return b'{"stream_options":{"include_usage":true},' + body.lstrip()[1:]
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    options = {**(peek.stream_options or {}), "include_usage": True}
    return msgspec.json.encode({**fields, "stream_options": options})


def passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    """What the client says to the provider. Its key is this gateway's, and stays here."""
    return {
        name: value
        for name, value in headers.items()
        if (lower := name.lower()) in PASSED_HEADERS or lower.startswith(PASSED_PREFIXES)
    }
