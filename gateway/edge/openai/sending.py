"""Sends a stream that begins late and ends honestly: with [DONE] only behind a whole answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from aiohttp import web

from gateway.core.errors import GatewayError, TooLarge
from gateway.core.run import Run, Status
from gateway.edge.openai.errors import failed
from gateway.edge.openai.telling import KEEP_ALIVE, Differs, Telling
from gateway.edge.streaming import SSE_HEADERS
from gateway.service.feed import Item

KEEP_ALIVE_SECONDS = 10.0
BEHIND_BYTES_MAX = 16 * 1024 * 1024

Tells = Callable[[Item], bytes]


class Late:
    """A response that is prepared by its first bytes, so that what fails before them has a status of its own."""

    def __init__(self, request: web.Request, run: Run) -> None:
        self._request = request
        self._run = run
        self.response: web.StreamResponse | None = None

    async def write(self, data: bytes) -> None:
        if not data:
            return
        if self.response is None:
            self.response = web.StreamResponse(headers={**SSE_HEADERS, "X-Run-Id": self._run.id})
            await self.response.prepare(self._request)
        await self.response.write(data)

    async def end(self) -> web.StreamResponse:
        assert self.response is not None, "something is always said"
        await self.response.write_eof()
        return self.response


async def send_told(
    request: web.Request,
    run: Run,
    items: AsyncGenerator[Item, None],
    telling: Telling,
    ended: Callable[[], Awaitable[Run]],
) -> web.StreamResponse:
    """Tells the run as it goes on, and how it ended. `run` is as it was when the telling began."""
    late = Late(request, run)
    try:
        await told(late, items, telling.take)
        run = await ended()
        if run.status is Status.FAILED and late.response is None:
            return failed(request, run)
        await late.write(telling.voice.failed(run) if run.status is Status.FAILED else telling.end(run))
    except GatewayError as error:
        if late.response is None:
            raise
        code = "reply_differs" if isinstance(error, Differs) else "stream_broken"
        await late.write(telling.voice.broken(str(error), code))
    return await late.end()


async def told(late: Late, items: AsyncGenerator[Item, None], tells: Tells) -> None:
    """Reads ahead of a client that is slow: what the feed drops for a slow watcher would be missing in the text."""
    behind = Behind()
    reading = asyncio.create_task(behind.read(items, tells))
    try:
        while (data := await behind.next(KEEP_ALIVE_SECONDS)) is not None:
            await late.write(data)
    finally:
        reading.cancel()
        await asyncio.wait({reading})
    await reading


class Behind:
    """What is to be sent and is not yet; bounded."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._news = asyncio.Event()
        self._over = False

    async def read(self, items: AsyncGenerator[Item, None], tells: Tells) -> None:
        try:
            async with aclosing(items):
                async for item in items:
                    self._add(tells(item))
        finally:
            self._over = True
            self._news.set()

    def _add(self, data: bytes) -> None:
        if len(self._data) + len(data) > BEHIND_BYTES_MAX:
            raise TooLarge(f"the client reads too slowly: more than {BEHIND_BYTES_MAX} bytes wait for it.")
        if data:
            self._data += data
            self._news.set()

    async def next(self, seconds: float) -> bytes | None:
        """What has come, a comment where nothing has for a while, None at the end."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return KEEP_ALIVE
        self._news.clear()
        if self._over:
            self._news.set()
        data, self._data = bytes(self._data), bytearray()
        return data or (None if self._over else b"")
