"""Requests that a run is made of: an agent's name as the model, a conversation, outputs for calls of a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from aiohttp import web
from msgspec.structs import replace

from gateway.core.conversation import Word, converse, take_back, with_provider_ids
from gateway.core.errors import BadRequest, GatewayError, NotFound, Unavailable, WrongState
from gateway.core.events import Event
from gateway.core.explain import why
from gateway.core.messages import Message, System
from gateway.core.ports import Clock, EventLog
from gateway.core.run import Limits, Run, Status
from gateway.edge.answers import IdempotentAnswers, key_of
from gateway.edge.bodies import json_response
from gateway.edge.entering import Attended, new_run_id, start_or_join, unhurried
from gateway.edge.openai.answering import completion, headers, shown
from gateway.edge.openai.asking import Asked, Outputs, asked, client_tools, outputs_of
from gateway.edge.openai.chat_voice import ChatVoice
from gateway.edge.openai.errors import failed
from gateway.edge.openai.joining import (
    RUN_ID,
    Recent,
    Way,
    cancels_on_disconnect,
    conversation_id,
    conversation_name,
    fingerprint,
    is_retry,
    limits_of,
)
from gateway.edge.openai.sending import send_told
from gateway.edge.openai.telling import Telling
from gateway.edge.parents import in_the_callers_trace
from gateway.service.agents import Agents, StartRun, check_params, check_transcript
from gateway.service.feed import Feed, watch
from gateway.service.runs import Runs

PROGRESS = "X-Gateway-Progress"
RETRIED_WITHIN = timedelta(seconds=10)
"""Client libraries ask again after half a second to eight; a person who has mended something takes longer."""


class Loops:
    """Finds the run that a request is about, enters it, and says how it ended."""

    def __init__(
        self,
        *,
        runs: Runs,
        agents: Agents,
        feed: Feed,
        log: EventLog,
        answers: IdempotentAnswers,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._runs = runs
        self._agents = agents
        self._feed = feed
        self._log = log
        self._answers = answers
        self._clock = clock
        self._limits = limits
        self._recent = Recent()

    async def chat(self, request: web.Request, body: bytes) -> web.StreamResponse | None:
        """The answer; None for a request that no run is about, which is the provider's."""
        order = asked(body)
        way = await self.way(request, body, order)
        if way is None:
            return None
        if not order.stream:
            _, run = await self.stopped(request, way)
            return self._whole(request, run, order.request.model)
        options = order.request.options
        progress = bool(options.include_progress) or request.headers.get(PROGRESS, "").lower() in ("1", "true")

        def telling(run: Run) -> Telling:
            head = shown(run, order.request.model)
            return Telling(ChatVoice(head, progress=progress, include_usage=bool(options.include_usage)))

        return await self.told(request, way, telling)

    def _whole(self, request: web.Request, run: Run, model: str) -> web.Response:
        if run.status is Status.FAILED:
            return failed(request, run)
        return json_response(completion(run, model), headers=headers(run))

    # --- entering and leaving ---------------------------------------------------------------------------------------

    async def stopped(self, request: web.Request, way: Way) -> tuple[Run, Run]:
        """The run as it was entered, and as it was when it had stopped."""
        async with self._attended(request, way.run_id) as attended:
            run = await way.enter()
            attended.run_id = run.id
            return run, require_stopped(await self._runs.wait(run.id, None))

    async def told(self, request: web.Request, way: Way, telling: Callable[[Run], Telling]) -> web.StreamResponse:
        """The run, entered and told as it goes on."""
        with self._feed.subscribe(way.run_id) as subscription:
            async with self._attended(request, way.run_id):
                run = await way.enter()
                if run.id == way.run_id:
                    items = watch(subscription, self._log, run, run.seq, follow=False)
                    return await send_told(request, run, items, telling(run), lambda: self._ended(run.id))
        # a request with the same key was faster
        return await self.told(request, Way(run.id, lambda: self._runs.get(run.id)), telling)

    async def _ended(self, run_id: str) -> Run:
        return require_stopped(await self._runs.get(run_id))

    def _attended(self, request: web.Request, run_id: str) -> Attended:
        return Attended(self._runs, run_id, cancels=cancels_on_disconnect(request))

    # --- which run --------------------------------------------------------------------------------------------------

    async def way(self, request: web.Request, body: bytes, order: Asked) -> Way | None:
        """Outputs lead to their run; then whatever names a run; then a conversation, or a new run of an agent."""
        outputs = outputs_of(order.messages)
        if outputs is not None and (run := await self.known(outputs.run_id)):
            return self._back(run, outputs, request, order)
        if run_id := await self._named(request, body, order):
            return Way(run_id, lambda: self._runs.get(run_id))
        if name := conversation_name(request):
            return self._conversation(conversation_id(request, name), name, request, order)
        if order.request.model not in self._agents:
            return None
        require_self_contained(order, outputs)
        return self._agent(request, body, order)

    async def responses_way(
        self, request: web.Request, body: bytes, order: Asked, previous: tuple[str, int] | None
    ) -> Way:
        """A request of the Responses API is always about a run: with a model of the provider's, about a conversation
        that is known by its responses, and has no other name. `previous` is a response's run, and its turns before."""
        if previous is not None:
            return await self._following(await self._runs.get(previous[0]), previous[1], request, body, order)
        way = await self.way(request, body, order)
        run_id = new_run_id(self._clock())
        return way or self._remembered(self._conversation(run_id, run_id, request, order), request, body)

    async def _following(self, run: Run, turns: int, request: web.Request, body: bytes, order: Asked) -> Way:
        if run_id := await self._named(request, body, order):
            return Way(run_id, lambda: self._runs.get(run_id))
        if run.conversation is not None and run.turns > turns + 1:
            raise WrongState(f"run {run.id} has gone on since that response.", param="previous_response_id")
        outputs = outputs_of(order.messages)
        whole = replace(order, messages=following(run, order.messages))
        if run.conversation is not None:
            way = self._conversation(run.id, run.conversation, request, whole)
            return self._remembered(way, request, body)
        if outputs is not None and outputs.run_id == run.id:
            return self._back(run, outputs, request, order)
        if run.status is not Status.COMPLETED:
            raise WrongState(f"run {run.id} has not answered: {why(run)}", param="previous_response_id")
        return self._agent(request, body, whole)

    def _remembered(self, way: Way, request: web.Request, body: bytes) -> Way:
        asked = fingerprint(request, body)

        async def enter() -> Run:
            self._recent.started(asked, way.run_id)  # already now: a client may give up, and ask again, while it begins
            try:
                run = await way.enter()
            except GatewayError:
                self._recent.forget(asked)
                raise
            self._recent.started(asked, run.id)
            return run

        return Way(way.run_id, enter)

    async def known(self, run_id: str) -> Run | None:
        try:
            return await self._runs.get(run_id)
        except NotFound:
            return None

    async def _named(self, request: web.Request, body: bytes, order: Asked) -> str | None:
        """The run that the request names, or began before: by its id, by its key, as the retry that it says it is."""
        options = order.request.gateway
        if run_id := request.headers.get(RUN_ID) or (options and options.run_id):
            if not run_id.isascii():
                raise NotFound(f"there is no run {run_id}.", param=RUN_ID)
            return run_id
        key = key_of(request, body)
        if key is not None and (claim := await self._answers.claimed(key)):
            return claim.run_id
        recent = self._recent.run_of(fingerprint(request, body))
        if recent and (is_retry(request) or await self._has_just_failed(recent)) and await self._began(recent):
            return recent
        return None

    async def _began(self, run_id: str) -> bool:
        """Whether there is such a run, once it is known."""
        with suppress(NotFound):
            await self._runs.settled(run_id)
            return True
        return False

    async def _has_just_failed(self, run_id: str) -> bool:
        """Then the same request is taken for a retry, also of a client that does not say so: what has failed fails
        again, and would be paid again up to there."""
        run = await self.known(run_id)
        return run is not None and run.status is Status.FAILED and self._clock() - run.updated_at < RETRIED_WITHIN

    def _back(self, run: Run, outputs: Outputs, request: web.Request, order: Asked) -> Way:
        if run.conversation is not None:
            return self._conversation(run.id, run.conversation, request, order)
        return self._going_on(run.id, lambda run, now: take_back(run, outputs.texts, outputs.more, now))

    def _going_on(self, run_id: str, words: Callable[[Run, datetime], list[Event]]) -> Way:
        return Way(run_id, lambda: unhurried(self._runs.go_on(run_id, words)))

    # --- agents -----------------------------------------------------------------------------------------------------

    def _agent(self, request: web.Request, body: bytes, order: Asked) -> Way:
        run_id = new_run_id(self._clock())

        async def enter() -> Run:
            first = await self._agents.first_event(self._order(request, order), stream=order.stream, now=self._clock())
            return await start_or_join(self._runs, self._answers, run_id, first, key_of(request, body))

        return self._remembered(Way(run_id, enter), request, body)

    def _order(self, request: web.Request, order: Asked) -> StartRun:
        """The agent's own tools, and those of the request that it does not have: the client runs these."""
        own = [tool.name for tool in self._agents.tools_of(order.request.model)]
        theirs = [tool for tool in order.tools if tool.function.name not in own]
        return StartRun(
            agent=order.request.model,
            input=list(with_provider_ids(order.messages)),
            tools=[*own, *theirs],
            limits=limits_of(request),
            metadata=in_the_callers_trace(request, order.metadata),
            params=order.params,
        )

    # --- conversations ----------------------------------------------------------------------------------------------

    def _conversation(self, run_id: str, name: str, request: web.Request, order: Asked) -> Way:
        word = self._word(request, order)
        metadata = in_the_callers_trace(request, order.metadata)

        def goes_on(run: Run, now: datetime) -> list[Event]:
            return converse(run, word, now)

        async def enter() -> Run:
            with suppress(NotFound):
                return await unhurried(self._runs.go_on(run_id, goes_on))
            plain = with_plain_ids(word)
            first = self._agents.conversation_event(name, plain, self._limits, metadata, self._clock())
            with suppress(WrongState):
                return await self._runs.start(run_id, first)
            return await unhurried(self._runs.go_on(run_id, goes_on))  # another request of the conversation was faster

        return Way(run_id, enter)

    def _word(self, request: web.Request, order: Asked) -> Word:
        check_transcript(list(order.messages), "messages")
        return Word(
            messages=order.messages,
            tools=client_tools(order.tools),
            params=check_params(order.params),
            model=order.request.model,
            price=self._agents.price_of(order.request.model),
            stream=order.stream,
            limits=limits_of(request),
        )


def require_stopped(run: Run) -> Run:
    """Raises Unavailable if it was only cut off by a shutdown."""
    if run.status is Status.RUNNING:
        raise Unavailable(
            f"the gateway is shutting down; run {run.id} goes on with the next one: ask again with {RUN_ID}: {run.id}.",
            retry_after_seconds=1.0,
        )
    return run


def following(run: Run, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """What the run has, and what is new, by the ids that its transcript has. New instructions take the place of those
    before."""
    messages = with_provider_ids(messages, run)
    new_system = messages and isinstance(messages[0], System)
    known = run.messages[1:] if new_system and isinstance(run.messages[0], System) else run.messages
    return (*messages[:1], *known, *messages[1:]) if new_system else (*known, *messages)


def with_plain_ids(word: Word) -> Word:
    return replace(word, messages=with_provider_ids(word.messages))


def require_self_contained(order: Asked, outputs: Outputs | None) -> None:
    """Outputs of a run that is not known here may still be part of a conversation that a new run can begin with."""
    if outputs is None:
        return
    try:
        check_transcript(list(order.messages), "messages")
    except BadRequest as error:
        raise NotFound(
            f"there is no run {outputs.run_id} whose calls these outputs are of, and no new run can begin with this "
            f"transcript: {error}",
            param="messages",
        ) from None
