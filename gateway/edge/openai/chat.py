"""POST /v1/chat/completions: to a run, or past all runs to the provider; and the list of models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.core.errors import NotFound
from gateway.edge.bodies import decode, json_response
from gateway.edge.openai.asking import CARRIES_CALL_ID
from gateway.edge.openai.joining import CONVERSATION, RUN_ID, require_unlimited
from gateway.edge.openai.loops import Loops
from gateway.edge.openai.proxy import Proxy
from gateway.edge.openai.wire import Model, ModelList, Peek
from gateway.service.agents import Agents

AGENT_OWNER = "agent"


class ChatRoutes:
    """`models` lists the provider's, and `provider` is its name."""

    def __init__(
        self,
        *,
        loops: Loops,
        proxy: Proxy,
        agents: Agents,
        models: Callable[[], Awaitable[list[str]]],
        provider: str,
    ) -> None:
        self._loops = loops
        self._proxy = proxy
        self._agents = agents
        self._models = models
        self._provider = provider

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        peek = decode(body, Peek)
        if self._is_about_a_run(request, body, peek):
            answer = await self._loops.chat(request, body)
            if answer is not None:
                return answer
        require_unlimited(request)
        return await self._proxy.chat(request, body, peek)

    def _is_about_a_run(self, request: web.Request, body: bytes, peek: Peek) -> bool:
        """Whether the request must be decoded as a whole. The rest is only looked at, and passed on."""
        named = CONVERSATION in request.headers or RUN_ID in request.headers or peek.gateway is not None
        return named or peek.model in self._agents or CARRIES_CALL_ID.search(body) is not None

    async def models(self, request: web.Request) -> web.Response:
        return json_response(ModelList(data=await self._all()))

    async def model(self, request: web.Request) -> web.Response:
        name = request.match_info["model"]
        if name in self._agents:
            return json_response(Model(id=name, owned_by=AGENT_OWNER))
        found = next((model for model in await self._all() if model.id == name), None)
        if found is None:
            raise NotFound(f"there is no agent {name}, and the provider lists no model of that name.", param="model")
        return json_response(found)

    async def _all(self) -> list[Model]:
        """The agents, then the provider's models; one that is hidden behind an agent of its name is not said twice."""
        agents = [Model(id=name, owned_by=AGENT_OWNER) for name in self._agents.names]
        theirs = [name for name in await self._models() if name not in self._agents]
        return agents + [Model(id=name, owned_by=self._provider) for name in theirs]
