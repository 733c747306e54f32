"""The public client against a real gateway, and against connections that break."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from gateway.bench.process import serving, write_config
from gateway.client import (
    Gateway,
    GatewayProblem,
    GatewayUnreachable,
    RaisedLimits,
    RunBody,
    Seen,
    StartRun,
    Status,
    TextDelta,
    ToolOutput,
)
from gateway.core import events as e
from tests.cli.conftest import INPUT, posted

ANSWER = "errors.log mentions a timeout: worker 7 timed out after 30000 ms."


@pytest.fixture
async def gateway(url: str) -> AsyncIterator[Gateway]:
    async with Gateway(url) as gateway:
        yield gateway


def plan() -> StartRun:
    return StartRun(input=INPUT, agent="plan")


async def waiting(gateway: Gateway, number: int) -> RunBody:
    """A run that waits for an approval."""
    return await gateway.start(StartRun(input=INPUT, agent=f"destructive_{number}"), wait_seconds=10)


# --- calls ----------------------------------------------------------------------------------------------------------


async def test_a_run_is_started_and_waited_for(gateway: Gateway) -> None:
    run = await gateway.start(plan(), wait_seconds=10)

    assert (run.status, run.output, run.turns) == (Status.COMPLETED, ANSWER, 3)
    assert await gateway.get(run.id) == run


async def test_a_run_can_be_started_with_nothing_but_words(gateway: Gateway) -> None:
    run = await gateway.start(INPUT)

    assert (await gateway.get(run.id, wait_seconds=10)).status is not Status.RUNNING


async def test_the_same_idempotency_key_starts_one_run(gateway: Gateway) -> None:
    runs = [await gateway.start(plan(), idempotency_key="the-only-one") for _ in range(2)]

    assert runs[0].id == runs[1].id


async def test_the_list_goes_on_at_its_cursor(gateway: Gateway) -> None:
    for _ in range(2):
        await gateway.start(plan(), wait_seconds=10)
    first = await gateway.runs(agent="plan", status=Status.COMPLETED, limit=1)
    second = await gateway.runs(agent="plan", status=Status.COMPLETED, limit=1, cursor=first.next_cursor)

    assert first.runs[0].created_at >= second.runs[0].created_at
    assert first.runs[0].id != second.runs[0].id


async def test_a_waiting_call_is_approved_by_what_was_seen(gateway: Gateway) -> None:
    run = await waiting(gateway, 8)
    call = run.pending_approvals[0]

    approved = await gateway.approve(run.id, call.call_id, args_hash=call.args_hash, wait_seconds=10)

    assert approved.output == "Deleted access.log to free space."


async def test_a_waiting_call_is_rejected_with_a_reason(gateway: Gateway) -> None:
    run = await waiting(gateway, 9)

    rejected = await gateway.reject(run.id, run.pending_approvals[0].call_id, "keep the log.", wait_seconds=10)

    assert rejected.output == "I did not delete anything: you declined the deletion."


async def test_a_capped_run_is_resumed_with_a_higher_cap(gateway: Gateway) -> None:
    order = StartRun(input=INPUT, agent="runaway", limits=RaisedLimits(max_turns=1))
    run = await gateway.start(order, wait_seconds=10)

    resumed = await gateway.resume(run.id, RaisedLimits(max_turns=2), wait_seconds=10)

    assert (run.turns, resumed.turns, resumed.status) == (1, 2, Status.MAX_TURNS_EXCEEDED)


async def test_a_run_is_cancelled_in_words(gateway: Gateway) -> None:
    run = await gateway.start(StartRun(input=INPUT, agent="sleepy"))

    cancelled = await gateway.cancel(run.id, "enough")

    assert (cancelled.status, cancelled.why) == (Status.INTERRUPTED, "It was cancelled: enough")


async def test_outputs_of_the_clients_own_tools_are_posted(gateway: Gateway, url: str) -> None:
    tool = {"type": "function", "function": {"name": "read_file"}}
    asked = await asyncio.to_thread(
        posted, f"{url}/v1/runs?wait=10", {"input": INPUT, "model": "once", "tools": [tool]}
    )
    call_id = asked["interruption"]["call_ids"][0]

    run = await gateway.tool_outputs(asked["id"], [ToolOutput(call_id=call_id, output="x")], wait_seconds=10)

    assert run.status is Status.COMPLETED


# --- watching -------------------------------------------------------------------------------------------------------


async def test_a_stream_has_every_event_once_and_the_text_as_it_comes(gateway: Gateway) -> None:
    seen = [item async for item in gateway.stream(plan())]

    events = [item for item in seen if isinstance(item, Seen)]
    assert [item.seq for item in events] == list(range(1, len(events) + 1))
    assert isinstance(events[-1].event, e.RunStopped)
    assert "".join(item.text for item in seen if isinstance(item, TextDelta)) == ANSWER


async def test_events_can_be_read_from_the_middle(gateway: Gateway) -> None:
    run = await gateway.start(plan(), wait_seconds=10)

    rest = [item async for item in gateway.events(run.id, after=run.events - 1)]
    nothing = [item async for item in gateway.events(run.id, after=run.events)]

    assert [type(item.event) for item in rest if isinstance(item, Seen)] == [e.RunStopped]
    assert nothing == []


async def test_a_watched_run_survives_the_death_of_its_gateway(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"plan": "plan@latency=300"})
    async with serving(config) as first, Gateway(first.url, reconnect_seconds=20) as gateway:
        kinds: list[type] = []
        async with aclosing(gateway.stream(plan())) as events:
            async for item in events:
                kinds += [type(item.event)] if isinstance(item, Seen) else []
                if kinds == [e.RunStarted, e.TurnStart, e.Turn]:
                    await first.kill()
                    port = first.url.rsplit(":", 1)[1]
                    config.write_text(config.read_text().replace("port = 0", f"port = {port}"))
                    second = asyncio.create_task(serve_until_cancelled(config))
    second.cancel()
    await asyncio.wait({second})

    assert kinds.count(e.RunStarted) == 1
    assert e.RunResumed in kinds
    assert kinds[-1] is e.RunStopped


async def serve_until_cancelled(config: Path) -> None:
    async with serving(config):
        await asyncio.Event().wait()


# --- what goes wrong ------------------------------------------------------------------------------------------------


async def test_a_refusal_is_one_exception_with_all_that_was_said(gateway: Gateway) -> None:
    with pytest.raises(GatewayProblem, match="nobody") as refused:
        await gateway.start(StartRun(input=INPUT, agent="nobody"))

    problem = refused.value
    assert (problem.status, problem.param, problem.title) == (422, "agent", "Unprocessable Entity")
    assert problem.code


async def test_a_refused_stream_is_refused_in_the_same_words(gateway: Gateway) -> None:
    with pytest.raises(GatewayProblem, match="run_none"):
        await anext(gateway.events("run_none"))


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://nowhere.invalid", "nonsense"])
async def test_where_nothing_answers_the_url_is_named(url: str) -> None:
    async with Gateway(url) as gateway:
        with pytest.raises(GatewayUnreachable, match=url):
            await gateway.get("run_1")
        with pytest.raises(GatewayUnreachable, match=url):
            await anext(gateway.stream(plan()))


async def test_a_server_that_is_no_gateway_is_told_apart() -> None:
    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    async with a_server(hello) as url, Gateway(url) as gateway:
        with pytest.raises(GatewayProblem, match="is no gateway") as refused:
            await gateway.get("run_1")

    assert refused.value.code == "not_a_gateway"


async def test_a_stream_that_only_breaks_is_given_up_in_time() -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Run-Id": "run_1"})
        await response.prepare(request)
        return response

    async with a_server(hang_up) as url, Gateway(url, reconnect_seconds=0.5) as gateway:
        with pytest.raises(GatewayUnreachable):
            await asyncio.wait_for(anext(gateway.events("run_1")), 5)


async def test_the_key_is_sent_and_goes_nowhere_else() -> None:
    seen: list[str | None] = []

    async def elsewhere(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.Response(status=302, headers={"Location": "http://127.0.0.1:9/"})

    async with a_server(elsewhere) as url, Gateway(url, "secret") as gateway:
        with pytest.raises(GatewayProblem, match="is no gateway"):
            await gateway.get("run_1")

    assert seen == ["Bearer secret"]


async def test_a_client_that_is_not_open_says_how_to_open_it() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Gateway().get("run_1")


@asynccontextmanager
async def a_server(handler: object) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
