"""A real server on a free port, and a client for it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import assel
import msgspec
import pytest
from msgspec import Struct

from scripted.app import create_app, serving

ASKED = {"messages": [{"role": "user", "content": "Which file mentions a timeout?"}]}


class Got(Struct, frozen=True):
    """What a client received of a reply."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def events(self) -> list[str]:
        """The data of each server-sent event."""
        return [event.data for event in assel.parse_bytes(self.body)]

    @property
    def chunks(self) -> list[Any]:
        return [msgspec.json.decode(data) for data in self.events if data != "[DONE]"]


Ask = Callable[..., Awaitable[Got]]


async def asked_at(address: str, model: str, headers: dict[str, str] | None = None, **fields: Any) -> Got:
    """One chat request, on a connection of its own."""
    body = {"model": model, **ASKED, **fields}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{address}/v1/chat/completions", json=body, headers=headers) as response,
    ):
        return Got(response.status, dict(response.headers), await response.read())


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with serving(create_app()) as address:
        yield address


@pytest.fixture
def ask(address: str) -> Ask:
    async def ask(model: str, headers: dict[str, str] | None = None, **fields: Any) -> Got:
        return await asyncio.wait_for(asked_at(address, model, headers, **fields), 5)

    return ask


@pytest.fixture
def post(address: str) -> Ask:
    async def post(body: bytes, headers: dict[str, str] | None = None) -> Got:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{address}/v1/chat/completions", data=body, headers=headers) as response,
        ):
            return Got(response.status, dict(response.headers), await response.read())

    return post


@pytest.fixture
def get(address: str) -> Ask:
    async def get(path: str) -> Got:
        async with aiohttp.ClientSession() as session, session.get(address + path) as response:
            return Got(response.status, dict(response.headers), await response.read())

    return get
