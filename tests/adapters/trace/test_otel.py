"""Traces as a receiver gets them: OTLP over gRPC, from a whole gateway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import aiohttp
import grpc
import pytest
from msgspec.structs import replace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from gateway import app
from gateway.adapters.trace.otel import Traces
from gateway.adapters.trace.settings import OtelSettings
from gateway.app import assembled
from gateway.config import Config, ConfigError, secrets_of
from scripted import app as scripted_app
from tests.serving import Gateway, Serve

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CALLERS_TRACE, CALLERS_SPAN = CALLER.split("-")[1:3]


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """What arrived, in the order in which spans ended."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self.metadata: list[dict[str, str]] = []

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.metadata.append({str(name): str(value) for name, value in context.invocation_metadata()})
        for of_resource in request.resource_spans:
            self.resources.append(attributes(of_resource.resource))
            for scope in of_resource.scope_spans:
                self.spans.extend(scope.spans)
        return trace_service_pb2.ExportTraceServiceResponse()

    def named(self, beginning: str) -> list[Any]:
        found = [span for span in self.spans if span.name.startswith(beginning)]
        return sorted(found, key=lambda span: span.start_time_unix_nano)


def attributes(holder: Any) -> dict[str, Any]:
    return {each.key: value_of(each.value) for each in holder.attributes}


def value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(each) for each in value.array_value.values]
    return getattr(value, kind)


@pytest.fixture
def receiver() -> Iterator[tuple[Receiver, OtelSettings]]:
    server = grpc.server(ThreadPoolExecutor(2))
    kept = Receiver()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(kept, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield kept, OtelSettings(endpoint=f"http://127.0.0.1:{port}", insecure=True, headers={"x-key": "sesame"})
    server.stop(0).wait()


Received = tuple[Receiver, OtelSettings]


async def test_a_run_is_a_trace_of_an_agent_its_chats_and_its_tools(serve: Serve, receiver: Received) -> None:
    kept, otel = receiver
    async with serve(otel=otel) as gateway:
        run = await gateway.run("plan")

    (agent,) = kept.named("invoke_agent")
    chats, tools = kept.named("chat"), kept.named("execute_tool")
    assert [span.name for span in (agent, *chats)] == ["invoke_agent files", *["chat plan"] * 3]
    assert [span.name for span in tools] == ["execute_tool list_files", "execute_tool read_file"]
    assert {span.trace_id for span in kept.spans} == {agent.trace_id}
    assert {span.parent_span_id for span in chats + tools} == {agent.span_id}
    assert agent.parent_span_id == b""
    assert {span.kind for span in chats} == {3}  # CLIENT
    assert kept.resources[0] == {"service.name": "agent-gateway", "service.version": app.VERSION}
    assert kept.metadata[0]["x-key"] == "sesame"
    assert (
        attributes(agent).items()
        >= {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "files",
            "gen_ai.conversation.id": run["id"],
            "gen_ai.provider.name": "scripted",
            "gen_ai.request.model": "plan",
            "gen_ai.usage.input_tokens": 815,
            "gen_ai.usage.output_tokens": 70,
            "gateway.run.id": run["id"],
            "gateway.status": "completed",
            "gateway.reason": "none",
            "gateway.turns": 3,
            "gateway.tool_runs": 2,
            "gateway.cost_usd": 0.00247,
        }.items()
    )
    first = attributes(chats[0])
    assert (first["gen_ai.operation.name"], first["gateway.turn"]) == ("chat", 1)
    assert first["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert sum(attributes(chat)["gen_ai.usage.input_tokens"] for chat in chats) == 815
    assert sum(Decimal(str(attributes(chat)["gateway.cost_usd"])) for chat in chats) == Decimal("0.00247")
    assert (
        attributes(tools[1]).items()
        >= {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "read_file",
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": "c2",
            "gateway.call.id": f"{run['id']}:2:0",
        }.items()
    )


async def test_spans_take_the_time_that_the_record_says(serve: Serve, receiver: Received) -> None:
    kept, otel = receiver
    async with serve(otel=otel) as gateway:
        await gateway.run("talks@latency=80")

    (chat,), (agent,) = kept.named("chat"), kept.named("invoke_agent")
    assert 80e6 <= chat.end_time_unix_nano - chat.start_time_unix_nano < 3e9
    assert agent.start_time_unix_nano <= chat.start_time_unix_nano
    assert chat.end_time_unix_nano <= agent.end_time_unix_nano


async def test_nothing_of_what_was_said_is_sent(serve: Serve, receiver: Received) -> None:
    kept, otel = receiver
    async with serve(otel=otel) as gateway:
        await gateway.run("plan")

    everything = "".join(str(span) for span in kept.spans)
    assert "timeout" not in everything
    assert "errors.log" not in everything


async def test_a_run_hangs_in_the_trace_of_its_caller_and_passes_it_on(
    serve: Serve, receiver: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, otel = receiver
    asked = seen_by_the_provider(monkeypatch)
    async with serve(otel=otel) as gateway:
        run = (await gateway.start("plan", headers={"traceparent": CALLER})).json

    (agent,) = kept.named("invoke_agent")
    assert (agent.trace_id.hex(), agent.parent_span_id.hex()) == (CALLERS_TRACE, CALLERS_SPAN)
    assert run["metadata"]["traceparent"] == CALLER
    chats = [span.span_id.hex() for span in kept.named("chat")]
    assert asked == [f"00-{CALLERS_TRACE}-{span}-01" for span in chats]


USER = {"role": "user", "content": "Which file mentions a timeout?"}
NAMED = {"X-Gateway-Conversation": "ticket-42"}


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/v1/chat/completions", {"model": "files", "messages": [USER]}, {}),
        ("/v1/chat/completions", {"model": "files", "messages": [USER], "stream": True}, {}),
        ("/v1/chat/completions", {"model": "talks", "messages": [USER], "metadata": {"ticket": "42"}}, NAMED),
        ("/v1/responses", {"model": "files", "input": [USER]}, {}),
        ("/v1/responses", {"model": "talks", "input": [USER]}, {}),
    ],
)
async def test_a_run_that_is_made_of_another_apis_request_hangs_in_the_trace_of_its_caller(
    serve: Serve, receiver: Received, path: str, body: dict[str, Any], headers: dict[str, str]
) -> None:
    kept, otel = receiver
    async with serve(otel=otel) as gateway:
        got = await gateway.post(path, body, headers={"traceparent": CALLER, **headers})
        run = await gateway.look(got.headers["X-Run-Id"])

    (agent,) = kept.named("invoke_agent")
    assert (agent.trace_id.hex(), agent.parent_span_id.hex()) == (CALLERS_TRACE, CALLERS_SPAN)
    assert run["metadata"] == {"traceparent": CALLER, **body.get("metadata", {})}


async def test_a_conversation_stays_in_the_trace_that_it_began_in(serve: Serve, receiver: Received) -> None:
    kept, otel = receiver
    other = CALLER.replace(CALLERS_TRACE, "1" * 32)
    async with serve(otel=otel) as gateway:
        for traceparent, question in ((CALLER, "One?"), (other, "Two?")):
            body = {"model": "talks", "messages": [{"role": "user", "content": question}]}
            await gateway.post("/v1/chat/completions", body, headers={"traceparent": traceparent, **NAMED})

    assert [span.trace_id.hex() for span in kept.named("invoke_agent")] == [CALLERS_TRACE] * 2


async def test_without_a_receiver_the_callers_trace_is_still_passed_on(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = seen_by_the_provider(monkeypatch)

    await gateway.start("talks", headers={"traceparent": CALLER})
    await gateway.start("talks", headers={"traceparent": "00-not-a-parent-01"})
    await gateway.run("talks", metadata={"traceparent": "x\r\ny: z"})

    assert asked == [CALLER, None, None]


def seen_by_the_provider(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    seen: list[str | None] = []
    respond = scripted_app.replies.respond

    def watched(body: bytes, headers: Any, *rest: Any) -> Any:
        seen.append(headers.get("traceparent"))
        return respond(body, headers, *rest)

    monkeypatch.setattr(scripted_app.replies, "respond", watched)
    return seen


async def test_a_run_that_is_resumed_by_another_process_stays_in_its_trace(serve: Serve, receiver: Received) -> None:
    kept, otel = receiver
    async with serve(otel=otel) as gateway:
        run = await gateway.run("runaway", limits={"max_turns": 2})
    async with serve(otel=otel) as gateway:
        await gateway.command(run["id"], "resume", {"limits": {"max_turns": 3}})

    first, second = kept.named("invoke_agent")
    assert first.trace_id == second.trace_id
    assert [attributes(span)["gateway.cause"] for span in (first, second)] == ["start", "resume"]
    assert [attributes(span)["gateway.turns"] for span in (first, second)] == [2, 3]
    assert attributes(first)["gateway.status"] == "max_turns_exceeded"


async def test_the_run_of_a_subagent_hangs_below_the_call_that_asked(config: Config, receiver: Received) -> None:
    kept, otel = receiver
    files = config.agents["files"]
    agents = {
        "research": replace(files, about="Investigates.", tools=("list_files", "read_file")),
        "lead": replace(files, model="delegate", tools=(), subagents=("research",)),
    }
    async with (
        app.serving(replace(config, agents={**config.agents, **agents}, otel=otel)) as url,
        aiohttp.ClientSession() as session,
    ):
        await Gateway(url, session, config).run("delegate", agent="lead")

    (call,) = kept.named("execute_tool research")
    (child,) = kept.named("invoke_agent research")
    assert child.parent_span_id == call.span_id
    assert child.trace_id == call.trace_id


@pytest.mark.parametrize(
    ("model", "error", "reason", "failed_attempts"),
    [
        ("plan@fault=500", "provider_unavailable", "provider_unavailable", 3),
        ("plan@fault=401", "failed", "none", 1),
        ("talks@fault=500:1", None, "none", 1),
    ],
)
async def test_what_the_provider_did_wrong_is_in_the_trace(
    serve: Serve, receiver: Received, model: str, error: str | None, reason: str, failed_attempts: int
) -> None:
    kept, otel = receiver
    async with serve(otel=otel) as gateway:
        await gateway.run(model)

    (agent,), (chat,) = kept.named("invoke_agent"), kept.named("chat")
    assert attributes(agent)["gateway.reason"] == reason
    assert attributes(agent).get("error.type") == error
    assert (agent.status.code == 2) == (chat.status.code == 2) == (error is not None)
    assert [event.name for event in chat.events] == ["gateway.attempt_failed"] * failed_attempts


async def test_a_tool_that_fails_and_a_call_that_is_only_answered(serve: Serve, receiver: Received) -> None:
    kept, otel = receiver
    async with serve(otel=otel) as gateway:
        await gateway.run("recover")
        await gateway.run("nonsense")

    failed = kept.named("execute_tool read_file")[0]
    assert (attributes(failed)["error.type"], failed.status.code) == ("tool_failed", 2)
    answered = [event for span in kept.named("invoke_agent") for event in span.events]
    assert [attributes(event) for event in answered] == [
        {"gen_ai.tool.name": "no_such_tool", "source": "invalid"},
        {"gen_ai.tool.name": "read_file", "source": "invalid"},
    ]


async def test_what_a_stop_cuts_off_ends_with_it(serve: Serve, receiver: Received) -> None:
    kept, otel = receiver
    async with serve(otel=otel) as gateway:
        run = await gateway.run("plan@latency=5000", wait=0)
        await gateway.command(run["id"], "cancel")
        left = await gateway.run("plan@latency=5000", wait=0)
        await asyncio.sleep(0.05)
        await gateway.command(left["id"], "cancel")

    assert len(kept.named("invoke_agent")) == 2
    assert {attributes(span)["error.type"] for span in kept.named("chat")} == {"cancelled"}


async def test_a_receiver_that_is_not_there_costs_runs_nothing(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.adapters.trace.otel.CLOSE_SECONDS_MAX", 0.2)
    began = time.perf_counter()
    async with serve(otel=OtelSettings(endpoint="http://127.0.0.1:9", insecure=True, queue_spans_max=16)) as gateway:
        runs = [await gateway.run("plan") for _ in range(20)]

    assert {run["status"] for run in runs} == {"completed"}
    assert time.perf_counter() - began < 10


async def test_no_spans_are_kept_of_runs_that_have_stopped(serve: Serve, receiver: Received, config: Config) -> None:
    kept: list[Traces] = []
    make = Traces.__init__

    def watched(self: Traces, *args: Any) -> None:
        make(self, *args)
        kept.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Traces, "__init__", watched)
        async with serve(otel=receiver[1]) as gateway:
            await gateway.run("plan")
            await gateway.run("destructive")

    assert vars(kept[0])["_driven"] == {}


async def test_an_endpoint_without_the_extra_is_refused_in_a_sentence(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gateway.adapters.trace.otel", None)

    with pytest.raises(ConfigError, match=r"pip install -e '\.\[otel\]'"):
        async with assembled(replace(config, otel=OtelSettings(endpoint="http://127.0.0.1:4317"))):
            pass


def test_the_receivers_key_is_a_secret(config: Config) -> None:
    otel = OtelSettings(endpoint="http://127.0.0.1:4317", headers={"authorization": "Bearer sesame"})

    assert "sesame" not in repr(otel)
    assert "Bearer sesame" in secrets_of(replace(config, otel=otel))
