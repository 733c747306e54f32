"""Live responses: server-sent events, and the trace as JSON lines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TypeVar

import assel
from aiohttp import web

from gateway.core.codec import encode, kind_of, trace_line
from gateway.core.errors import BadRequest, GatewayError
from gateway.core.ports import Record
from gateway.service.feed import Delta, Item

log = logging.getLogger(__name__)

T = TypeVar("T")

KEEP_ALIVE_SECONDS = 15.0
KEEP_ALIVE = assel.send(comment="keep-alive")
SSE_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
LINES_HEADERS = {"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"}


def wants_sse(request: web.Request) -> bool:
    return "text/event-stream" in request.headers.get("Accept", "")


def last_event_id(request: web.Request) -> int:
    """Where to go on: the `Last-Event-ID` header of a client that reconnects, or `?after=`. 0 is the beginning."""
    text = request.headers.get("Last-Event-ID") or request.query.get("after", "0")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadRequest(f"Last-Event-ID is {text!r}: it must be the id of an event, a whole number.", param="after")
    return int(text)


async def send_sse(
    request: web.Request, items: AsyncGenerator[Item, None], headers: dict[str, str]
) -> web.StreamResponse:
    """Sends each record with its seq as the id, deltas without one, and comments while nothing happens."""
    return await send_frames(request, framed(items), headers)


async def send_frames(
    request: web.Request, frames: AsyncGenerator[bytes, None], headers: dict[str, str]
) -> web.StreamResponse:
    """Sends server-sent events that are bytes already, and comments while none come."""
    response = web.StreamResponse(headers={**SSE_HEADERS, **headers})
    async with sent(request, response), aclosing(with_pauses(frames)) as beats:
        async for piece in beats:
            await response.write(KEEP_ALIVE if piece is None else piece)
    return response


async def send_lines(request: web.Request, items: AsyncGenerator[Item, None]) -> web.StreamResponse:
    """Sends the trace, one JSON object a line, as it grows."""
    response = web.StreamResponse(headers=LINES_HEADERS)
    async with sent(request, response), aclosing(items):
        async for item in items:
            if isinstance(item, Record):
                await response.write(trace_line(item.run_id, item.seq, item.body) + b"\n")
    return response


@asynccontextmanager
async def sent(request: web.Request, response: web.StreamResponse) -> AsyncIterator[None]:
    """Begins and ends the response. After its headers no error has a body: the connection is closed in the middle, so
    that the client knows that something is missing and comes back with the last id that it saw."""
    await response.prepare(request)
    try:
        yield
        await response.write_eof()
    except GatewayError as error:
        log.warning("%s %s ends early: %s", request.method, request.path, error)
        if request.transport is not None:
            request.transport.close()


async def framed(items: AsyncGenerator[Item, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(items):
        async for item in items:
            yield frame(item)


def frame(item: Item) -> bytes:
    match item:
        case Record():
            line = trace_line(item.run_id, item.seq, item.body).decode()
            event = assel.Event(data=line, event=kind_of(item.body), id=str(item.seq))
        case Delta():
            data = encode({"runId": item.run_id, "type": "text_delta", "text": item.text}).decode()
            event = assel.Event(data=data, event="text_delta")
    return assel.send(event)


async def with_pauses(items: AsyncGenerator[T, None]) -> AsyncGenerator[T | None, None]:
    """The items, and None each time that nothing came for a while."""
    pending: asyncio.Future[T] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(items))
            done, _ = await asyncio.wait({pending}, timeout=KEEP_ALIVE_SECONDS)
            if not done:
                yield None
                continue
            try:
                item = pending.result()
            except StopAsyncIteration:
                return
            pending = None
            yield item
    finally:
        if pending is not None:
            pending.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await pending
        await items.aclose()
