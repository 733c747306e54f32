"""POST /v1/runs: at once, waiting, streamed; what a run is made of; clients that go away."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import Any

import aiohttp
import pytest

from tests.serving import QUESTION, Gateway, Serve, eventually, refused

SSE = {"Accept": "text/event-stream"}


async def test_a_run_is_created_at_once_and_goes_on_by_itself(gateway: Gateway) -> None:
    got = await gateway.start("plan@latency=20", wait=0)

    assert got.status == 201
    assert got.json["status"] == "running"
    assert got.json["why"] is None
    assert got.headers["Location"] == f"/v1/runs/{got.json['id']}"
    assert got.headers["X-Run-Id"] == got.json["id"]
    assert (await gateway.look(got.json["id"], wait=20))["status"] == "completed"


async def test_a_client_that_waits_gets_the_whole_run(gateway: Gateway) -> None:
    run = await gateway.run("plan")

    assert run["status"] == "completed"
    assert run["reason"] is None
    assert run["output"] == "errors.log mentions a timeout: worker 7 timed out after 30000 ms."
    assert (run["turns"], run["tool_runs"]) == (3, 2)
    assert run["cost_usd"] == Decimal("0.00247")
    assert run["unconfirmed_cost_usd"] == 0
    assert run["usage"]["prompt_tokens"] == 815
    assert run["usage"]["completion_tokens"] == 70
    assert run["why"] == "The model answered after 3 turns."
    assert run["next"] is None
    assert [message["role"] for message in run["messages"]] == [
        "system", "user", "assistant", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip


async def test_a_run_that_takes_longer_than_the_wait_is_accepted(gateway: Gateway) -> None:
    got = await gateway.start("plan@latency=300", wait=0.05)

    assert got.status == 202
    assert got.json["status"] == "running"
    assert (await gateway.look(got.json["id"], wait=20))["status"] == "completed"


async def test_a_streamed_start_sends_every_event_with_its_seq_and_text_without(gateway: Gateway) -> None:
    got = await gateway.start("plan", wait=0, headers=SSE)

    assert got.status == 200
    assert got.headers["Content-Type"] == "text/event-stream"
    assert got.headers["Cache-Control"] == "no-store"
    recorded = [event for event in got.sse if event.id]
    deltas = [json.loads(event.data)["text"] for event in got.sse if event.event == "text_delta"]
    run = await gateway.look(got.headers["X-Run-Id"])
    assert [json.loads(event.data)["seq"] for event in recorded] == list(range(1, run["events"] + 1))
    assert (recorded[0].event, recorded[-1].event) == ("run_started", "run_stopped")
    assert len(deltas) > 1
    assert "".join(deltas) == run["output"]
    assert all(event.event == json.loads(event.data)["type"] for event in got.sse)


async def test_text_deltas_are_streamed_and_never_recorded(gateway: Gateway) -> None:
    got = await gateway.start("talks", wait=0, headers=SSE)
    run_id = got.headers["X-Run-Id"]

    again = await gateway.get(f"/v1/runs/{run_id}/events", headers=SSE)

    assert "text_delta" in [event.event for event in got.sse]
    assert "text_delta" not in [event.event for event in again.sse]
    assert [event.data for event in again.sse] == [event.data for event in got.sse if event.id]
    assert "text_delta" not in {line["type"] for line in await gateway.trace(run_id)}


async def test_text_deltas_of_a_run_with_stream_are_seen_by_whoever_watches(gateway: Gateway) -> None:
    run = await gateway.run("talks@latency=150", wait=0, stream=True)

    got = await gateway.get(f"/v1/runs/{run['id']}/events", headers=SSE)

    assert "text_delta" in [event.event for event in got.sse]


async def test_a_streamed_run_costs_what_a_plain_one_does(gateway: Gateway) -> None:
    got = await gateway.start("plan", wait=0, headers=SSE)

    run = await gateway.look(got.headers["X-Run-Id"])

    assert run["cost_usd"] == Decimal("0.00247")


async def test_an_order_is_pinned_in_the_first_event(gateway: Gateway) -> None:
    run = await gateway.run(
        "once",
        system="Be brief.",
        tools=["read_file"],
        limits={"max_turns": 7, "max_budget_usd": 0.5, "deadline_seconds": 60},
        policies={"tool_errors": "vague"},
        metadata={"ticket": "42"},
    )

    first = (await gateway.trace(run["id"]))[0]
    assert first["model"] == "once"
    assert first["provider"] == "scripted"
    assert [tool["name"] for tool in first["tools"]] == ["read_file"]
    assert first["limits"] == {
        "max_turns": 7,
        "max_budget_usd": Decimal("0.5"),
        "budget_mode": "soft",
        "deadline_seconds": Decimal("60.0"),
    }
    assert first["policies"]["tool_errors"] == "vague"
    assert first["policies"]["dedupe"] == "off"
    assert first["price"] == {"input": 2, "output": 12}
    assert run["metadata"] == {"ticket": "42"}
    assert run["messages"][0] == {"role": "system", "content": "Be brief."}
    assert first["version"] == 1


async def test_a_conversation_can_be_gone_on_with(gateway: Gateway) -> None:
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
    ]

    run = await gateway.run("talks", input=history)

    assert run["messages"][:4] == history
    assert run["status"] == "completed"


async def test_a_run_without_a_model_uses_the_first_that_the_provider_lists(serve: Serve) -> None:
    async with serve(agent={"model": None}) as gateway:
        got = await gateway.post("/v1/runs", {"input": QUESTION}, wait=20)

    assert got.json["model"] == "plan"


@pytest.mark.parametrize("model", ["", None])
async def test_without_a_model_and_a_provider_that_answers_the_client_may_try_again(
    serve: Serve, model: str | None
) -> None:
    async with serve(
        agent={"model": None}, settings={"base_url": "http://127.0.0.1:9/v1", "retries_max": 0}
    ) as gateway:
        got = await gateway.post("/v1/runs", {"input": QUESTION, "model": model})

        refused(got, 503, "unavailable", words="set LLM_MODEL")
        assert gateway.stored_runs() == 0


# --- clients that go away -------------------------------------------------------------------------------------------


async def leave(gateway: Gateway, body: dict[str, Any], **options: Any) -> None:
    """Start a run and close the connection once it is under way."""
    asking = asyncio.create_task(gateway.post("/v1/runs", {"input": QUESTION, **body}, **options))
    await eventually(lambda: has_started(gateway), "the run starts")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def has_started(gateway: Gateway) -> bool:
    return bool((await gateway.get("/v1/runs")).json["runs"])


async def only_run(gateway: Gateway) -> dict[str, Any]:
    [entry] = (await gateway.get("/v1/runs")).json["runs"]
    return await gateway.look(entry["id"], wait=20)


@pytest.mark.parametrize("options", [{"wait": 20}, {"headers": SSE}], ids=["waiting", "streaming"])
async def test_a_client_that_goes_away_does_not_cancel_its_run(gateway: Gateway, options: dict[str, Any]) -> None:
    await leave(gateway, {"model": "plan@latency=100"}, **options)

    assert (await only_run(gateway))["status"] == "completed"


@pytest.mark.parametrize("options", [{"wait": 20}, {"headers": SSE}], ids=["waiting", "streaming"])
async def test_a_client_that_goes_away_cancels_its_run_if_it_asked_for_that(
    gateway: Gateway, options: dict[str, Any]
) -> None:
    await leave(gateway, {"model": "plan@latency=1000", "cancel_on_disconnect": True}, **options)

    await eventually(lambda: stopped(gateway), "the run stops")
    run = await only_run(gateway)
    assert (run["status"], run["reason"]) == ("interrupted", "cancelled")
    assert run["interruption"]["reason"] == "the client went away"


async def stopped(gateway: Gateway) -> bool:
    return (await gateway.get("/v1/runs")).json["runs"][0]["status"] != "running"


# --- how many, how large --------------------------------------------------------------------------------------------


async def test_more_runs_than_are_driven_at_once_are_told_when_to_come_back(serve: Serve) -> None:
    async with serve(server={"runs_active_max": 1}) as gateway:
        first = await gateway.run("plan@latency=200", wait=0)

        second = await gateway.start("plan", wait=0)

        refused(second, 429, "busy", words="try again")
        assert second.headers["Retry-After"] == "1"
        assert gateway.stored_runs() == 1
        await gateway.look(first["id"], wait=20)
        assert (await gateway.start("plan")).json["status"] == "completed"


async def test_the_cap_on_runs_holds_when_many_come_at_the_same_time(serve: Serve) -> None:
    async with serve(server={"runs_active_max": 3}) as gateway:
        got = await asyncio.gather(*(gateway.start("plan@latency=300", wait=0) for _ in range(20)))

        statuses = sorted(each.status for each in got)
        assert statuses == [201] * 3 + [429] * 17
        assert gateway.stored_runs() == 3


async def test_a_resumed_run_counts_towards_the_cap_too(serve: Serve) -> None:
    async with serve(server={"runs_active_max": 1}) as gateway:
        capped = await gateway.run("runaway", limits={"max_turns": 1})
        busy = await gateway.run("plan@latency=300", wait=0)

        got = await gateway.command(capped["id"], "resume", {"limits": {"max_turns": 2}})

        refused(got, 429, "busy")
        assert (await gateway.look(capped["id"]))["status"] == "max_turns_exceeded"
        await gateway.look(busy["id"], wait=20)
        again = await gateway.command(capped["id"], "resume", {"limits": {"max_turns": 2}})
        assert again.json["turns"] == 2


async def test_a_body_that_is_too_large_is_refused(serve: Serve) -> None:
    async with serve(server={"request_bytes_max": 1000}) as gateway:
        got = await gateway.post("/v1/runs", {"input": "x" * 2000})

        refused(got, 413, "too_large")
        assert gateway.stored_runs() == 0


async def test_a_large_body_is_taken_where_it_is_allowed(gateway: Gateway) -> None:
    run = await gateway.run("talks", input="word " * 100_000)

    assert run["status"] == "completed"


async def test_a_body_that_is_not_encoded_as_it_says_is_refused(gateway: Gateway) -> None:
    try:
        got = await gateway.post("/v1/runs", data=b"no gzip", headers={"Content-Encoding": "gzip"})
    except aiohttp.ClientOSError:  # the connection is closed, perhaps before the answer is read
        return
    assert got.status == 400


async def test_whoever_sends_a_field_that_there_is_not_is_told_which_there_are(gateway: Gateway) -> None:
    got = await gateway.post("/v1/runs", {"input": "x", "max_turns": 3})

    refused(got, 400, param="max_turns", words="The fields are: input, agent, model, system, tools, limits, policies,")
