"""An upstream that says what a test tells it to: a real server on a free port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from aiohttp import web
from msgspec import Struct

from gateway.adapters.providers.openai import OpenAIModel, server_of
from gateway.adapters.providers.settings import ProviderSettings
from gateway.core.errors import ProviderError
from gateway.core.messages import Message, System, User
from gateway.core.ports import Reply, Sending
from gateway.core.pricing import Price
from gateway.core.run import Limits, Policies, Run, ToolSpec

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)


def a_run(*messages: Message, tools: tuple[ToolSpec, ...] = (), model: str = "m", id: str = "r1") -> Run:
    return Run(
        id=id,
        agent="tester",
        model=model,
        tools=tools,
        limits=Limits(),
        policies=Policies(),
        price=Price(free=True),
        messages=messages or (System("Be brief."), User("Hello?")),
        created_at=NOON,
        updated_at=NOON,
        driven_since=NOON,
    )


class Upstream:
    """Gives the answers in their order, the last of them for ever, and remembers what was asked."""

    def __init__(self) -> None:
        self.base_url = ""
        self.answers: list[Answer] = []
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.connections: set[Any] = set()
        self.waiting = asyncio.Event()
        self.disconnected = asyncio.Event()

    def will(self, *answers: Answer) -> None:
        self.answers = list(answers)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.connections.add(request.transport)
        self.bodies.append(await request.read())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)

    async def wait_for_ever(self) -> None:
        """Until the client goes away."""
        self.waiting.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.disconnected.set()
            raise

    # --- answers ----------------------------------------------------------------------------------------------------

    def json(self, value: Any, status: int = 200, **headers: str) -> Answer:
        return self.raw(msgspec.json.encode(value), status=status, **headers)

    def raw(self, body: bytes, status: int = 200, content_type: str = "application/json", **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}

        async def answer(_: web.Request) -> web.Response:
            return web.Response(body=body, status=status, headers=named, content_type=content_type)

        return answer

    def says(self, text: str = "Hi.", **more: Any) -> Answer:
        return self.json({"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": USAGE} | more)

    def error(self, status: int, message: str = "no", code: str | None = None, **headers: str) -> Answer:
        return self.json({"error": {"message": message, "code": code}}, status, **headers)

    def stream(
        self, *pieces: bytes, drop: bool = False, hang: bool = False, content_type: str = "text/event-stream"
    ) -> Answer:
        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": content_type})
            await response.prepare(request)
            for piece in pieces:
                await response.write(piece)
                await asyncio.sleep(0)
            if hang:
                await self.wait_for_ever()
            if drop:
                hang_up(request)
            return response

        return answer

    def events(self, *chunks: Any, done: bool = True, **how: bool) -> Answer:
        return self.stream(*map(sse, chunks), *([b"data: [DONE]\n\n"] if done else []), **how)

    def drop(self) -> Answer:
        async def answer(request: web.Request) -> web.StreamResponse:
            hang_up(request)
            return web.Response()

        return answer

    def hang(self) -> Answer:
        async def answer(_: web.Request) -> web.StreamResponse:
            await self.wait_for_ever()
            return web.Response()

        return answer


USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}


def hang_up(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()


def sse(chunk: Any) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    server = Upstream()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/v1/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield server
    await runner.cleanup()


class Asked(Struct):
    """What one `ask` told, and what ended it."""

    sendings: list[Sending]
    texts: list[str]
    reply: Reply | None = None
    error: ProviderError | None = None

    async def announce(self, sending: Sending) -> None:
        self.sendings.append(sending)


@asynccontextmanager
async def opened_model(base_url: str, **settings: Any) -> AsyncIterator[OpenAIModel]:
    quick = {"backoff_seconds": 0.001, "backoff_max_seconds": 0.002} | settings
    chosen = ProviderSettings(name="test", base_url=base_url, **quick)
    async with server_of(chosen) as server:
        yield OpenAIModel(server, chosen)


async def asked(model: OpenAIModel, run: Run, *, stream: bool = False) -> Asked:
    got = Asked([], [])
    try:
        got.reply = await model.ask(run, got.announce, got.texts.append if stream else None)
    except ProviderError as error:
        got.error = error
    return got


@pytest.fixture
def open_model() -> Any:
    """A model for an address and settings, as a context manager."""
    return opened_model


@pytest.fixture
def make_run() -> Callable[..., Run]:
    return a_run


@pytest.fixture
def ask_model() -> Any:
    """Ask a model that is open already."""
    return asked


@pytest.fixture
def ask(upstream: Upstream) -> Any:
    """Ask the upstream something, with these settings."""

    async def ask_upstream(run: Run | None = None, *, stream: bool = False, **settings: Any) -> Asked:
        async with opened_model(upstream.base_url, **settings) as model:
            return await asked(model, run or a_run(), stream=stream)

    return ask_upstream
