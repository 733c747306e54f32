"""Everything a crash test needs around the gateway: a provider that knows what it was asked, hosts, an HTTP session."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import TypeVar

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Struct

from scripted.app import create_app, serving
from tests.acceptance.client import Client
from tests.acceptance.processes import Crash, Host, Process, Site, hosting
from tests.acceptance.scenarios import FILE_TOOLS, OWN_SCRIPTS

HOSTS = 3
"""How many gateways live at the same time."""

T = TypeVar("T")


class Lived(Struct):
    """A gateway while it lives, and a client of it."""

    process: Process
    client: Client


class World:
    def __init__(self, http: aiohttp.ClientSession, hosts: list[Host], provider: str, asked: Counter[str]) -> None:
        self._http = http
        self._free: asyncio.Queue[Host] = asyncio.Queue()
        for host in hosts:
            self._free.put_nowait(host)
        self.provider = provider
        self.asked = asked

    def site(self, folder: Path, *tools: str) -> Site:
        return Site(folder, self.provider, tools or FILE_TOOLS).make()

    @asynccontextmanager
    async def gateway(
        self, site: Site, crash: Crash | None = None, *, scan_step_seconds: float = 0.01
    ) -> AsyncIterator[Lived]:
        host = await self._free.get()
        try:
            async with host.gateway(site, crash, scan_step_seconds=scan_step_seconds) as process:
                yield Lived(process, Client(self._http, process.url))
        finally:
            self._free.put_nowait(host)


@asynccontextmanager
async def a_world(folder: Path) -> AsyncIterator[World]:
    asked: Counter[str] = Counter()

    @web.middleware
    async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "POST":
            body = json.loads(await request.read())
            turn = 1 + sum(message["role"] == "assistant" for message in body["messages"])
            asked[f"{body['model']} {turn}"] += 1
        return await handler(request)

    provider = create_app(scripts=OWN_SCRIPTS)
    provider.middlewares.append(note)
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(serving(provider))
        hosts = [await stack.enter_async_context(hosting(folder / f"gateways-{n}.log")) for n in range(HOSTS)]
        connector = aiohttp.TCPConnector(force_close=True)
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        yield World(http, hosts, address, asked)


async def at_every(points: list[T], attempt: Callable[[T], Awaitable[list[str]]]) -> None:
    """Attempts all of them, as many at a time as there are hosts, and reports every fault of every point."""
    room = asyncio.Semaphore(HOSTS)

    async def one(point: T) -> list[str]:
        async with room:
            try:
                return [f"{point}: {fault}" for fault in await attempt(point)]
            except Exception as error:  # noqa: BLE001  the other points are still of interest
                return [f"{point}: {type(error).__name__}: {error}"]

    faults = list(chain.from_iterable(await asyncio.gather(*map(one, points))))
    assert not faults, "\n".join([f"{len(faults)} faults:", *faults])
