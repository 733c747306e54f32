"""What the console is made of and what it needs besides the calls of /v1/runs: its files, the agents, and which runs
have just changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import assel
from aiohttp import web

from gateway.core.codec import encode
from gateway.edge.bodies import json_response, only_params
from gateway.edge.console_files import INDEX, console_files, send_file
from gateway.edge.streaming import send_frames
from gateway.edge.wire import AgentBody, AgentList
from gateway.service.agents import Agent, Agents
from gateway.service.changes import PAUSE_SECONDS, Changes, Watcher


class ConsoleRoutes:
    """Handlers of `/`, `/console/…`, `/v1/agents` and `/v1/runs/changes`."""

    def __init__(self, *, agents: Agents, changes: Changes) -> None:
        self._agents = agents
        self._changes = changes
        self._files = console_files()

    async def index(self, request: web.Request) -> web.Response:
        return send_file(request, self._files[INDEX])

    async def file(self, request: web.Request) -> web.Response:
        return self._send(request, request.match_info["file"])

    async def module(self, request: web.Request) -> web.Response:
        return self._send(request, f"modules/{request.match_info['file']}")

    def _send(self, request: web.Request, name: str) -> web.Response:
        file = self._files.get(name)
        if file is None:
            raise web.HTTPNotFound
        return send_file(request, file)

    async def agents(self, request: web.Request) -> web.Response:
        only_params(request, frozenset())
        return json_response(AgentList(agents=[agent_body(agent) for agent in self._agents.all]))

    async def changes(self, request: web.Request) -> web.StreamResponse:
        only_params(request, frozenset())
        with self._changes.watch() as watcher:
            return await send_frames(request, frames(watcher), {})


async def frames(watcher: Watcher) -> AsyncGenerator[bytes, None]:
    while True:
        changed = await watcher.take()
        yield assel.send(assel.Event(data=encode(changed).decode(), event="runs"))
        await asyncio.sleep(PAUSE_SECONDS)


def agent_body(agent: Agent) -> AgentBody:
    return AgentBody(
        name=agent.name,
        about=agent.about,
        model=agent.model,
        tools=[tool.name for tool in agent.tools],
        limits=agent.limits,
        policies=agent.policies,
        stop_rules=agent.stop_rules,
    )
