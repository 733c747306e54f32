"""A provider that says its reply a piece at a time, when it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer

PIECES = ("The quick ", "brown fox")


class Speaker:
    """Streams `PIECES`: the first once `begin` is set, the second once `go_on` is."""

    def __init__(self) -> None:
        self.begin = asyncio.Event()
        self.go_on = asyncio.Event()

    async def reply(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await self.begin.wait()
        await self._say(response, {"delta": {"role": "assistant", "content": PIECES[0]}, "finish_reason": None})
        await self.go_on.wait()
        await self._say(response, {"delta": {"content": PIECES[1]}, "finish_reason": None})
        await self._say(response, {"delta": {}, "finish_reason": "stop"})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _say(self, response: web.StreamResponse, choice: dict[str, object]) -> None:
        chunk = {"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, **choice}]}
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.reply)
        async with TestServer(app) as server:
            yield str(server.make_url("/v1"))
