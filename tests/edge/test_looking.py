"""GET /v1/runs and below: lists, one run, and its trace as it grows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import assel
import pytest

from gateway.adapters.tools.tool import Tool
from gateway.core.run import ToolSpec
from gateway.edge import streaming
from gateway.service import feed
from tests.serving import QUESTION, Gateway, Serve, refused

SSE = {"Accept": "text/event-stream"}


# --- lists ----------------------------------------------------------------------------------------------------------


async def test_runs_are_listed_newest_first(gateway: Gateway) -> None:
    ids = [(await gateway.run("once"))["id"] for _ in range(3)]

    page = (await gateway.get("/v1/runs")).json

    assert [entry["id"] for entry in page["runs"]] == ids[::-1]
    assert page["next_cursor"] is None
    first = page["runs"][0]
    assert (first["status"], first["turns"], first["tool_runs"], first["agent"]) == ("completed", 2, 1, "files")
    assert "messages" not in first


async def test_a_list_is_read_a_page_at_a_time(gateway: Gateway) -> None:
    ids = [(await gateway.run("talks"))["id"] for _ in range(5)]

    seen: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(3):
        page = (await gateway.get("/v1/runs", limit=2, **cursor)).json
        seen += [entry["id"] for entry in page["runs"]]
        cursor = {"cursor": page["next_cursor"]}

    assert seen == ids[::-1]
    assert cursor == {"cursor": None}


@pytest.mark.parametrize(
    ("params", "models"),
    [
        ({"status": "interrupted"}, ["destructive"]),
        ({"status": "completed"}, ["talks", "once"]),
        ({"status": "failed"}, []),
        ({"agent": "files"}, ["destructive", "talks", "once"]),
        ({"agent": "nobody"}, []),
        ({"agent": "files", "status": "completed", "limit": "1"}, ["talks"]),
        ({"text": "FILES talks mentions"}, ["talks"]),
        ({"text": "alpacas"}, []),
    ],
)
async def test_a_list_can_be_of_one_status_and_one_agent(
    gateway: Gateway, params: dict[str, str], models: list[str]
) -> None:
    for model in ("once", "talks", "destructive"):
        await gateway.run(model)

    page = (await gateway.get("/v1/runs", **params)).json

    assert [entry["model"] for entry in page["runs"]] == models


# --- one run --------------------------------------------------------------------------------------------------------


async def test_a_run_that_stopped_is_read_from_the_store_as_it_was_answered(gateway: Gateway) -> None:
    run = await gateway.run("destructive")

    assert await gateway.look(run["id"]) == run


async def test_a_run_under_way_can_be_waited_for(gateway: Gateway) -> None:
    run = await gateway.run("plan@latency=50", wait=0)

    assert (await gateway.look(run["id"]))["status"] == "running"
    assert (await gateway.look(run["id"], wait=20))["status"] == "completed"


@pytest.mark.parametrize("path", ["", "/events"])
async def test_a_run_that_nobody_started_is_not_found(gateway: Gateway, path: str) -> None:
    refused(await gateway.get(f"/v1/runs/run_0{path}"), 404, "not_found", words="run_0", param="run_id")


# --- the trace ------------------------------------------------------------------------------------------------------


async def test_the_trace_has_the_published_fields_in_their_order(gateway: Gateway) -> None:
    run = await gateway.run("destructive")

    got = await gateway.get(f"/v1/runs/{run['id']}/events")

    assert got.headers["Content-Type"] == "application/x-ndjson"
    lines = got.body.decode().splitlines()
    started = f'{{"runId":"{run["id"]}","type":'
    assert all(line.startswith(started) for line in lines)
    assert lines[-1].startswith(
        started + '"run_stopped","status":"interrupted","reason":"approval","turns":2,"costUsd":0.00157,'
    )
    assert [event["type"] for event in got.lines] == [
        "run_started", "turn_start", "turn", "tool_start", "tool_result", "turn_start", "turn", "approval_required",
        "run_stopped",
    ]  # fmt: skip


async def test_the_trace_ends_when_the_run_stops(gateway: Gateway) -> None:
    run = await gateway.run("plan@latency=30", wait=0)

    trace = await gateway.trace(run["id"])

    assert trace[-1]["type"] == "run_stopped"
    assert [event["seq"] for event in trace] == list(range(1, len(trace) + 1))


@pytest.mark.parametrize("by_header", [True, False])
async def test_a_client_that_comes_back_is_sent_what_it_missed(gateway: Gateway, by_header: bool) -> None:
    run = await gateway.run("plan")
    events = f"/v1/runs/{run['id']}/events"

    if by_header:
        got = await gateway.get(events, headers={**SSE, "Last-Event-ID": "9"})
    else:
        got = await gateway.get(events, headers=SSE, after=9)

    assert [event.id for event in got.sse] == ["10", "11", "12"]


@pytest.mark.parametrize("last", ["12", "13", "999999"])
async def test_a_client_that_has_seen_the_end_is_told_not_to_come_back(gateway: Gateway, last: str) -> None:
    run = await gateway.run("plan")

    got = await gateway.get(f"/v1/runs/{run['id']}/events", headers={**SSE, "Last-Event-ID": last})

    assert (got.status, got.body) == (204, b"")


async def test_a_trace_after_the_end_has_no_lines(gateway: Gateway) -> None:
    run = await gateway.run("plan")

    got = await gateway.get(f"/v1/runs/{run['id']}/events", after=12)

    assert (got.status, got.body) == (200, b"")


async def test_an_id_beyond_the_end_of_a_run_under_way_still_brings_what_comes(gateway: Gateway) -> None:
    run = await gateway.run("plan@latency=50", wait=0)

    got = await gateway.get(f"/v1/runs/{run['id']}/events", headers={**SSE, "Last-Event-ID": "5000"})

    assert got.sse[-1].event == "run_stopped"


@asynccontextmanager
async def following(gateway: Gateway, run_id: str, **params: str) -> AsyncIterator[AsyncIterator[assel.Event]]:
    url = f"{gateway.url}/v1/runs/{run_id}/events"
    async with gateway.session.get(url, headers=SSE, params=params) as response:
        yield events_of(response)


async def events_of(response: aiohttp.ClientResponse) -> AsyncIterator[assel.Event]:
    parser = assel.Parser()
    async for chunk in response.content.iter_any():
        for event in parser.receive_bytes(chunk):
            yield event


async def until(events: AsyncIterator[assel.Event], kind: str) -> list[str]:
    seen: list[str] = []
    async with asyncio.timeout(20):
        async for event in events:
            if event.event:
                seen.append(event.event)
            if event.event == kind:
                return seen
    raise AssertionError(f"no {kind} among {seen}")


async def test_following_goes_on_through_a_verdict(gateway: Gateway) -> None:
    run = await gateway.run("destructive")

    async with following(gateway, run["id"], follow="1") as events:
        assert (await until(events, "run_stopped"))[-2:] == ["approval_required", "run_stopped"]
        await gateway.command(run["id"], "approve", {"call_id": "c2"})
        seen = await until(events, "run_stopped")

    assert seen[:2] == ["verdict", "run_resumed"]
    assert "tool_result" in seen


async def test_following_from_the_end_brings_what_a_resume_does(gateway: Gateway) -> None:
    run = await gateway.run("runaway", limits={"max_turns": 1})

    async with following(gateway, run["id"], follow="1", after=str(run["events"])) as events:
        await gateway.command(run["id"], "resume", {"limits": {"max_turns": 2}})
        seen = await until(events, "run_stopped")

    assert seen == ["run_resumed", "tool_start", "tool_result", "turn_start", "turn", "run_stopped"]


async def test_while_nothing_happens_the_connection_is_kept_alive(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE_SECONDS", 0.02)
    run = await gateway.run("talks@latency=200", wait=0)

    got = await gateway.get(f"/v1/runs/{run['id']}/events", headers=SSE)

    assert b":keep-alive\n" in got.body
    assert got.sse[-1].event == "run_stopped"


# --- watchers that are slow -----------------------------------------------------------------------------------------


async def chatty(args: dict[str, Any], ctx: Any) -> str:
    """Reports more, all at once, than a watcher's queue holds."""
    for number in range(50):
        ctx.progress(f"step {number}")
    await asyncio.sleep(0)
    return "said it all"


CHATTY = Tool(ToolSpec(name="act", description="Acts.", parameters={"type": "object"}, read_only=True), chatty)


@pytest.mark.parametrize("queue_max", [1, 3, 1000])
async def test_a_watcher_whose_queue_overflows_still_gets_every_event_in_order(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, queue_max: int
) -> None:
    monkeypatch.setattr(feed, "UNREAD_MAX", queue_max)
    async with serve(tools={"act": CHATTY}) as gateway:
        got = await gateway.start("acts", wait=0, headers=SSE)

        ids = [int(event.id) for event in got.sse if event.id]
        run = await gateway.look(got.headers["X-Run-Id"])
        assert run["status"] == "completed"
        assert ids == list(range(1, run["events"] + 1))
        labels = [json.loads(event.data)["label"] for event in got.sse if event.event == "tool_progress"]
        assert labels == [f"step {number}" for number in range(50)]


# --- too many watchers ----------------------------------------------------------------------------------------------

CHAT = {"model": "files", "messages": [{"role": "user", "content": QUESTION}], "stream": True}
RESPONSE = {"model": "files", "input": QUESTION, "stream": True}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/runs", {"agent": "files", "input": QUESTION}),
        ("/v1/chat/completions", CHAT),
        ("/v1/responses", RESPONSE),
    ],
)
async def test_a_stream_that_is_one_too_many_is_refused_before_its_run_begins(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    monkeypatch.setattr(feed, "SUBSCRIPTIONS_MAX", 0)

    got = await gateway.post(path, body, headers=SSE)

    refused(got, 429, "busy", words="clients watch runs already")
    assert got.headers["Retry-After"] == "5"
    assert gateway.stored_runs() == 0


@pytest.mark.parametrize("headers", [SSE, {}])
async def test_a_watcher_that_is_one_too_many_is_told_to_come_back(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    run = await gateway.run("talks")
    monkeypatch.setattr(feed, "SUBSCRIPTIONS_MAX", 0)

    refused(await gateway.get(f"/v1/runs/{run['id']}/events", headers=headers), 429, "busy", words="try again")
