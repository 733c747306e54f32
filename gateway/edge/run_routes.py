"""The calls of /v1/runs."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from aiohttp import web
from msgspec.structs import replace

from gateway.core.errors import BadRequest
from gateway.core.ports import Clock, EventLog, Index, Key
from gateway.core.run import Run, Status
from gateway.edge.answers import IdempotentAnswers, headers_of, key_of
from gateway.edge.bodies import decode, flag_param, json_response, number_param, only_params
from gateway.edge.entering import Attended, new_run_id, start_or_join, unhurried
from gateway.edge.parents import in_the_callers_trace
from gateway.edge.streaming import last_event_id, send_lines, send_sse, wants_sse
from gateway.edge.wire import Cancel, GiveVerdict, PostOutputs, Resume, RunPage, StartRun, run_body
from gateway.service.agents import Agents
from gateway.service.feed import Feed, watch
from gateway.service.runs import Runs

WAIT_SECONDS_MAX = 3600.0
PAGE_RUNS_MAX = 200
TEXT_CHARS_MAX = 200


class RunRoutes:
    """Handlers of /v1/runs and below."""

    def __init__(
        self,
        *,
        runs: Runs,
        agents: Agents,
        feed: Feed,
        log: EventLog,
        index: Index,
        answers: IdempotentAnswers,
        clock: Clock,
    ) -> None:
        self._runs = runs
        self._agents = agents
        self._feed = feed
        self._log = log
        self._index = index
        self._answers = answers
        self._clock = clock

    # --- starting ---

    async def start(self, request: web.Request) -> web.StreamResponse:
        only_params(request, frozenset({"wait"}))
        body = await request.read()
        order = decode(body, StartRun)
        order = replace(order, metadata=in_the_callers_trace(request, order.metadata))
        key = key_of(request, body)
        wait_seconds = number_param(request, "wait", 0, least=0, most=WAIT_SECONDS_MAX)
        if wants_sse(request):
            return await self._start_streaming(request, order, key)

        async def carry_out(key: Key | None, known_id: str | None) -> web.Response:
            run_id = known_id or self._new_id()
            begun = self._runs.get(run_id) if known_id else self._begin(run_id, order, key, stream=False)
            async with self._attended(run_id, order) as attended:
                run = await begun
                if not wait_seconds:
                    return self._answer(run, 201)
                attended.run_id = run.id
                run = await self._runs.wait(run.id, wait_seconds)
            return self._answer(run, 202 if run.status is Status.RUNNING else 201)

        return await self._answers.answer(key, carry_out)

    def _new_id(self) -> str:
        return new_run_id(self._clock())

    async def _begin(self, run_id: str, order: StartRun, key: Key | None, *, stream: bool) -> Run:
        first = await self._agents.first_event(order, stream=stream, now=self._clock())
        return await start_or_join(self._runs, self._answers, run_id, first, key)

    async def _start_streaming(self, request: web.Request, order: StartRun, key: Key | None) -> web.StreamResponse:
        """The subscription comes first, so that no text is told before it."""
        claim = None if key is None else await self._answers.claimed(key)
        run_id = claim.run_id if claim else self._new_id()
        with self._feed.subscribe(run_id) as subscription:
            async with self._attended(run_id, order):
                run = await (self._runs.get(run_id) if claim else self._begin(run_id, order, key, stream=True))
                if run.id == run_id:
                    items = watch(subscription, self._log, run, 0, follow=False)
                    return await send_sse(request, items, headers_of(run.id))
        return await self._start_streaming(request, order, key)  # a request with the same key was faster

    def _attended(self, run_id: str, order: StartRun) -> Attended:
        return Attended(self._runs, run_id, cancels=order.cancel_on_disconnect)

    # --- looking ---

    async def page(self, request: web.Request) -> web.Response:
        only_params(request, frozenset({"status", "agent", "text", "cursor", "limit"}))
        status = request.query.get("status")
        if status is not None and status not in list(Status):
            raise BadRequest(f"status is {status!r}: it must be one of {', '.join(Status)}.", param="status")
        text = request.query.get("text")
        if text is not None and len(text) > TEXT_CHARS_MAX:
            raise BadRequest(f"text has {len(text)} characters: at most {TEXT_CHARS_MAX} are looked for.", param="text")
        entries, cursor = await self._index.page(
            status=Status(status) if status else None,
            agent=request.query.get("agent"),
            text=text,
            before=request.query.get("cursor"),
            limit=int(number_param(request, "limit", 50, least=1, most=PAGE_RUNS_MAX, whole=True)),
        )
        return json_response(RunPage(runs=entries, next_cursor=cursor))

    async def get(self, request: web.Request) -> web.Response:
        only_params(request, frozenset({"wait"}))
        wait_seconds = number_param(request, "wait", 0, least=0, most=WAIT_SECONDS_MAX)
        run_id = request.match_info["run_id"]
        run = await (self._runs.wait(run_id, wait_seconds) if wait_seconds else self._runs.get(run_id))
        return self._answer(run, 200)

    async def events(self, request: web.Request) -> web.StreamResponse:
        only_params(request, frozenset({"after", "follow"}))
        after, follow = last_event_id(request), flag_param(request, "follow")
        run_id = request.match_info["run_id"]
        with self._feed.subscribe(run_id) as subscription:
            run = await self._runs.get(run_id)
            items = watch(subscription, self._log, run, after, follow=follow)
            if not wants_sse(request):
                return await send_lines(request, items)
            if after >= run.seq and run.status is not Status.RUNNING and not follow:
                return web.Response(status=204)
            return await send_sse(request, items, headers_of(run.id))

    # --- changing ---

    async def approve(self, request: web.Request) -> web.Response:
        return await self._judge(request, approved=True)

    async def reject(self, request: web.Request) -> web.Response:
        return await self._judge(request, approved=False)

    async def _judge(self, request: web.Request, *, approved: bool) -> web.Response:
        verdict = decode(await request.read(), GiveVerdict)
        judged = self._runs.judge(
            request.match_info["run_id"],
            verdict.call_id,
            approved=approved,
            reason=verdict.reason,
            seen_hash=verdict.args_hash,
        )
        return await self._after(request, judged)

    async def resume(self, request: web.Request) -> web.Response:
        order = decode(await request.read(), Resume)
        return await self._after(request, self._runs.resume(request.match_info["run_id"], order.limits))

    async def cancel(self, request: web.Request) -> web.Response:
        order = decode(await request.read(), Cancel)
        return await self._after(request, self._runs.cancel(request.match_info["run_id"], order.reason))

    async def tool_outputs(self, request: web.Request) -> web.Response:
        order = decode(await request.read(), PostOutputs)
        return await self._after(request, self._runs.take_outputs(request.match_info["run_id"], order.outputs))

    async def _after(self, request: web.Request, work: Coroutine[Any, Any, Run]) -> web.Response:
        """The run after a command; with `?wait=`, once it has stopped again."""
        try:
            only_params(request, frozenset({"wait"}))
            wait_seconds = number_param(request, "wait", 0, least=0, most=WAIT_SECONDS_MAX)
        except BadRequest:
            work.close()
            raise
        run = await unhurried(work)
        if wait_seconds and run.status is Status.RUNNING:
            run = await self._runs.wait(run.id, wait_seconds)
        return self._answer(run, 202 if wait_seconds and run.status is Status.RUNNING else 200)

    def _answer(self, run: Run, status: int) -> web.Response:
        return json_response(run_body(run), status, headers_of(run.id))
