"""The handler of POST /v1/responses."""

from __future__ import annotations

from aiohttp import web

from gateway.core.run import Run, Status
from gateway.edge.bodies import decode, json_response
from gateway.edge.openai.answering import headers
from gateway.edge.openai.errors import failed
from gateway.edge.openai.loops import Loops
from gateway.edge.openai.responses.answering import Head, ResponsesVoice, response
from gateway.edge.openai.responses.asking import asked, previous_of
from gateway.edge.openai.responses.references import with_items
from gateway.edge.openai.responses.wire import ResponsesRequest
from gateway.edge.openai.telling import Telling


class ResponsesRoutes:
    def __init__(self, loops: Loops) -> None:
        self._loops = loops

    async def create(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        wanted = await with_items(decode(body, ResponsesRequest), self._loops.known)
        order = asked(wanted)
        way = await self._loops.responses_way(request, body, order, previous_of(wanted))
        if wanted.stream:
            return await self._loops.told(request, way, lambda run: telling(run, wanted.model))
        entered, run = await self._loops.stopped(request, way)
        if run.status is Status.FAILED:
            return failed(request, run)
        return json_response(response(run, wanted.model, entered.turns), headers=headers(run))


def telling(run: Run, model: str) -> Telling:
    return Telling(ResponsesVoice(Head(run.id, model, int(run.created_at.timestamp()), run.turns)))
