"""A real server on a free port with a model without weights, and clients for it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import assel
import msgspec
import pytest
from msgspec import Struct

from model_server.app import Card, create_app, serving
from model_server.chat import Host
from model_server.metrics import Metrics
from model_server.prompt import Template
from model_server.scheduler import Limits
from model_server.service import Load, Service
from tests.model_server.fakes import FakeEngine

LIMITS = Limits(cells=4000, sequences=2, kept=6, queue=2, batch_tokens=64)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    },
    {"type": "function", "function": {"name": "list_files", "parameters": {"type": "object", "properties": {}}}},
]


class Got(Struct, frozen=True):
    """What a client received of a reply."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def message(self) -> Any:
        return self.json["choices"][0]["message"]

    @property
    def events(self) -> list[str]:
        return [event.data for event in assel.parse_bytes(self.body)]

    @property
    def chunks(self) -> list[Any]:
        return [msgspec.json.decode(data) for data in self.events if data != "[DONE]"]


class Client:
    """One server, asked over HTTP."""

    def __init__(self, address: str, service: Service) -> None:
        self.address = address
        self.service = service

    async def chat(self, content: str | list[Any] = "hello", **fields: Any) -> Got:
        messages = [{"role": "user", "content": content}] if isinstance(content, str) else content
        return await self.post("/v1/chat/completions", {"messages": messages, **fields})

    async def post(self, path: str, body: Any) -> Got:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        async with aiohttp.ClientSession() as session, session.post(self.address + path, data=data) as response:
            return Got(response.status, dict(response.headers), await response.read())

    async def get(self, path: str) -> Got:
        async with aiohttp.ClientSession() as session, session.get(self.address + path) as response:
            return Got(response.status, dict(response.headers), await response.read())

    async def metric(self, name: str) -> float:
        """The value of one series, `model_server_` left out."""
        text = (await self.get("/metrics")).body.decode()
        (line,) = [line for line in text.splitlines() if line.startswith(f"model_server_{name} ")]
        return float(line.split()[-1])

    async def until(self, name: str, value: float, seconds: float = 10) -> None:
        """Waits until a series has a value."""
        async with asyncio.timeout(seconds):
            while await self.metric(name) != value:  # noqa: ASYNC110 - over HTTP there is nothing to wait on
                await asyncio.sleep(0.01)

    async def holds(self, requests: int, seconds: float = 10) -> None:
        """Waits until so many requests wait or are at work. Metrics tell only after a batch."""
        async with asyncio.timeout(seconds):
            while len(self.service._inboxes) != requests:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)


Serve = Callable[..., Awaitable[Client]]


@asynccontextmanager
async def served(load: Load, limits: Limits = LIMITS, template: Template = "qwen2.5") -> AsyncIterator[Client]:
    metrics = Metrics(12_288, limits.cells)
    service = Service(load, limits, metrics.observe)
    card = Card(Host("fake", template, limits.cells), "fake.gguf", 1, "Q4_K_M", 0)
    async with serving(create_app(service, card, metrics)) as address:
        yield Client(address, service)


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Servers of this test, all closed at its end."""
    async with AsyncExitStack() as stack:

        async def serve(
            engine: FakeEngine | None = None, limits: Limits = LIMITS, template: Template = "qwen2.5"
        ) -> Client:
            fake = engine or FakeEngine()
            client = await stack.enter_async_context(served(lambda _: fake, limits, template))
            await client.service.settled.wait()
            return client

        yield serve
