"""Traces, after OpenTelemetry's conventions for generative AI: an observer of the same events that are recorded.

    invoke_agent files            one for each stretch in which the run is driven, from start or resume to the stop
    ├── chat plan                 one a turn: from the first attempt to the reply
    └── execute_tool read_file    one an execution; a subagent's invoke_agent hangs below it

What the conventions have no name for stands under `gateway.`: the way out, the cost, the run. Texts of prompts, replies
and tools are not sent. All it does in the loop is to put spans into a bounded queue; a thread sends them.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from msgspec import Struct, field
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from gateway.adapters.trace.settings import OtelSettings
from gateway.core import events as e
from gateway.core.ports import Clock, Recorded
from gateway.core.run import Run
from gateway.core.run import Status as RunStatus
from gateway.core.tracing import TRACEPARENT, traceparent_of

CLOSE_SECONDS_MAX = 3.0
BATCH_SPANS_MAX = 512
BATCH_SECONDS = 1.0

Attributes = Mapping[str, AttributeValue]


class RunIds(RandomIdGenerator):
    """Without a parent from outside, a run's trace is named after the run, so that it is one trace however often, and
    by however many processes, the run is taken up."""

    def __init__(self) -> None:
        self.run_id = ""

    def generate_trace_id(self) -> int:
        return int.from_bytes(hashlib.sha256(self.run_id.encode()).digest()[:16])


class Driven(Struct):
    """The open spans of a run that is being driven."""

    agent: Span
    chat: Span | None = None
    tools: dict[str, Span] = field(default_factory=dict[str, Span])


class Traces:
    """An Observer. Holds spans of driven runs only: their number bounds it."""

    def __init__(self, tracer: Tracer, ids: RunIds) -> None:
        self._tracer = tracer
        self._ids = ids
        self._driven: dict[str, Driven] = {}
        self._propagator = TraceContextTextMapPropagator()

    def headers(self, run: Run) -> dict[str, str]:
        """For the request to the provider: its part of the trace hangs below the turn."""
        driven = self._driven.get(run.id)
        if driven is None:
            return {}
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, set_span_in_context(driven.chat or driven.agent))
        return carrier

    def end_all(self, now: datetime) -> None:
        """What is still driven goes on in the next process."""
        for driven in self._driven.values():
            end(driven, now, "interrupted by the end of the process")
        self._driven.clear()

    # --- Observer ---

    def said(self, run: Run, text: str) -> None:
        return

    def attempted(self, run: Run, outcome: str, *, again: bool) -> None:
        driven = self._driven.get(run.id)
        if driven is not None and driven.chat is not None and outcome != "ok":
            driven.chat.add_event("gateway.attempt_failed", {"outcome": outcome, "again": again})

    def recorded(self, news: Sequence[Recorded]) -> None:
        for run, event, _ in news:
            self._follow(run, event)

    def _follow(self, run: Run, event: e.Event) -> None:
        match event:
            case e.RunStarted():
                self._begin(run, event.time, "start")
            case e.RunResumed():
                self._begin(run, event.time, event.cause)
            case e.RunStopped():
                self._stop(run, event)
            case _:
                if driven := self._driven.get(run.id):
                    self._step(driven, run, event)

    def _begin(self, run: Run, now: datetime, cause: str) -> None:
        self._ids.run_id = run.parent.run_id if run.parent else run.id
        span = self._tracer.start_span(
            f"invoke_agent {run.agent}",
            self._above(run),
            SpanKind.INTERNAL,
            of_run(run) | {"gen_ai.operation.name": "invoke_agent", "gateway.cause": cause},
            start_time=nanoseconds(now),
        )
        self._driven[run.id] = Driven(span)

    def _above(self, run: Run) -> Context:
        """The context of whoever asked: the call of a parent's run, or a program that sent a traceparent."""
        asking = self._driven.get(run.parent.run_id) if run.parent else None
        if asking is not None and run.parent is not None:
            return set_span_in_context(asking.tools.get(run.parent.call_id, asking.agent), Context())
        traceparent = traceparent_of(run)
        return self._propagator.extract({TRACEPARENT: traceparent}, Context()) if traceparent else Context()

    def _step(self, driven: Driven, run: Run, event: e.Event) -> None:
        match event:
            case e.TurnStart() if driven.chat is None:
                driven.chat = self._chat(driven, run, event)
            case e.Turn() if driven.chat is not None:
                driven.chat.set_attributes(of_turn(event))
                driven.chat.end(nanoseconds(event.time))
                driven.chat = None
            case e.ToolStart():
                driven.tools[event.call] = self._tool(driven, run, event)
            case e.ToolResult():
                answered(driven, event)
            case _:
                pass

    def _chat(self, driven: Driven, run: Run, event: e.TurnStart) -> Span:
        return self._tracer.start_span(
            f"chat {run.model}",
            set_span_in_context(driven.agent, Context()),
            SpanKind.CLIENT,
            of_run(run)
            | {"gen_ai.operation.name": "chat", "gen_ai.request.stream": run.stream, "gateway.turn": event.turn},
            start_time=nanoseconds(event.time),
        )

    def _tool(self, driven: Driven, run: Run, event: e.ToolStart) -> Span:
        spec = run.tool(event.tool_name)
        return self._tracer.start_span(
            f"execute_tool {event.tool_name}",
            set_span_in_context(driven.agent, Context()),
            SpanKind.INTERNAL,
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": event.tool_name,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": event.provider_id,
                "gateway.call.id": event.call,
                "gateway.tool.read_only": spec is not None and spec.read_only,
            },
            start_time=nanoseconds(event.time),
        )

    def _stop(self, run: Run, event: e.RunStopped) -> None:
        """A run that waited and is stopped has no span that is open."""
        driven = self._driven.pop(run.id, None)
        if driven is None:
            return
        driven.agent.set_attributes(of_stop(run, event))
        if event.status is RunStatus.FAILED or event.reason == "provider_unavailable":
            failed(driven.agent, event.reason or "failed")
        end(driven, event.time, event.reason or event.status)


# --- what spans say ---------------------------------------------------------------------------------------------------


def of_run(run: Run) -> dict[str, AttributeValue]:
    return {
        "gen_ai.agent.name": run.agent,
        "gen_ai.conversation.id": run.id,
        "gen_ai.provider.name": run.provider,
        "gen_ai.request.model": run.model,
        "gateway.run.id": run.id,
    }


def of_turn(event: e.Turn) -> Attributes:
    said: dict[str, AttributeValue | None] = {
        "gen_ai.usage.input_tokens": event.prompt_tokens,
        "gen_ai.usage.output_tokens": event.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": event.cached_tokens or None,
        "gen_ai.usage.reasoning.output_tokens": event.reasoning_tokens or None,
        "gen_ai.response.finish_reasons": [event.finish] if event.finish else None,
        "gen_ai.response.time_to_first_chunk": event.first_token_ms and event.first_token_ms / 1000,
        "gen_ai.request.max_tokens": event.max_tokens,
        "gateway.cost_usd": float(event.turn_cost_usd),
        "gateway.fault": event.fault,
    }
    return {name: value for name, value in said.items() if value is not None}


def of_stop(run: Run, event: e.RunStopped) -> Attributes:
    """Figures of the whole run so far, not only of this stretch."""
    return {
        "gateway.status": str(event.status),
        "gateway.reason": event.reason or "none",
        "gateway.turns": event.turns,
        "gateway.tool_runs": run.tool_runs,
        "gateway.cost_usd": float(event.cost_usd),
        "gateway.unconfirmed_cost_usd": float(run.unconfirmed_cost_usd),
        "gen_ai.usage.input_tokens": run.usage.prompt_tokens,
        "gen_ai.usage.output_tokens": run.usage.completion_tokens,
    }


def answered(driven: Driven, event: e.ToolResult) -> None:
    """A call that was answered without an execution is a moment in the run, and no span."""
    span = driven.tools.pop(event.call, None)
    if span is None:
        said = {"gen_ai.tool.name": event.tool_name, "source": event.source}
        driven.agent.add_event("gateway.answered", said, nanoseconds(event.time))
        return
    if not event.ok:
        failed(span, "permanent" if event.permanent else "tool_failed")
    span.end(nanoseconds(event.time))


def failed(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def end(driven: Driven, now: datetime, why: str) -> None:
    """Whatever is open below the agent's span was cut off by what ended it."""
    for span in filter(None, (driven.chat, *driven.tools.values())):
        failed(span, why)
        span.end(nanoseconds(now))
    driven.agent.end(nanoseconds(now))


def nanoseconds(time: datetime) -> int:
    return int(time.timestamp()) * 1_000_000_000 + time.microsecond * 1000


# --- the way out ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def sending(settings: OtelSettings, version: str, utc_now: Clock) -> AsyncIterator[Traces]:
    """Traces on their way to the receiver. Whether one answers is not asked: runs do not wait for it."""
    exporter = OTLPSpanExporter(
        endpoint=settings.endpoint,
        insecure=settings.insecure,
        headers=settings.headers,
        timeout=settings.export_timeout_seconds,
    )
    queue = BatchSpanProcessor(
        exporter,
        max_queue_size=settings.queue_spans_max,
        max_export_batch_size=min(BATCH_SPANS_MAX, settings.queue_spans_max),
        schedule_delay_millis=BATCH_SECONDS * 1000,
    )
    ids = RunIds()
    resource = Resource({"service.name": settings.service_name, "service.version": version})
    provider = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
    provider.add_span_processor(queue)
    traces = Traces(provider.get_tracer("gateway", version), ids)
    try:
        yield traces
    finally:
        traces.end_all(utc_now())
        giving_up = threading.Timer(CLOSE_SECONDS_MAX, exporter.shutdown)
        giving_up.start()
        try:
            await asyncio.to_thread(provider.shutdown)
        finally:
            giving_up.cancel()
