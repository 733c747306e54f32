"""Metrics, liveness and readiness."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from msgspec import Struct

from gateway.edge.bodies import json_response

Probe = Callable[[], Awaitable[str | None]]
"""Looks at one dependency: None if it answers, else what is wrong, in words."""


Expose = Callable[[], Awaitable[tuple[bytes, str]]]
"""The page for a scrape and its content type."""


class Health(Struct, frozen=True):
    status: str
    version: str


class Readiness(Struct, frozen=True):
    """`checks` says of each dependency `ok`, or what is wrong."""

    status: str
    checks: dict[str, str]


class SystemRoutes:
    def __init__(self, *, version: str, expose: Expose, probes: Mapping[str, Probe]) -> None:
        self._version = version
        self._expose = expose
        self._probes = probes

    async def metrics(self, request: web.Request) -> web.Response:
        body, content_type = await self._expose()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def healthz(self, request: web.Request) -> web.Response:
        return json_response(Health("ok", self._version))

    async def readyz(self, request: web.Request) -> web.Response:
        answers = await asyncio.gather(*(probe() for probe in self._probes.values()))
        checks = {name: answer or "ok" for name, answer in zip(self._probes, answers, strict=True)}
        ready = all(answer == "ok" for answer in checks.values())
        return json_response(Readiness("ready" if ready else "not ready", checks), 200 if ready else 503)
