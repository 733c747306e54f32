"""An agent's name as the model: the loop runs here, and the answer has OpenAI's shape."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import openai
import pytest

from gateway.edge.openai import loops
from tests.edge.openai.talking import ANSWER, USER, answer_of, chat, stream
from tests.serving import Gateway, Serve, eventually, refused


async def test_the_loop_runs_here_and_the_answer_has_the_runs_figures(gateway: Gateway) -> None:
    got = await chat(gateway)

    assert answer_of(got)["message"] == {"role": "assistant", "content": ANSWER, "refusal": None}
    assert answer_of(got)["finish_reason"] == "stop"
    assert (got.json["model"], got.json["object"]) == ("files", "chat.completion")
    assert (got.json["usage"]["prompt_tokens"], got.json["usage"]["completion_tokens"]) == (815, 70)
    told = got.json["gateway"]
    assert (told["status"], told["turns"], told["cost_usd"]) == ("completed", 3, Decimal("0.00247"))
    assert told["why"] == "The model answered after 3 turns."
    assert got.headers["X-Run-Id"] == told["run_id"]
    assert got.headers["X-Gateway-Status"] == "completed"
    assert "X-Gateway-Reason" not in got.headers


async def test_the_final_text_streams_piece_by_piece_behind_the_role(gateway: Gateway) -> None:
    got = await stream(gateway, stream_options={"include_usage": True})

    assert got.choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert got.text == ANSWER
    assert len([choice for choice in got.choices if choice["delta"].get("content")]) > 2
    assert got.finish == "stop"
    assert got.chunks[-1]["usage"]["prompt_tokens"] == 815
    assert got.chunks[-1]["choices"] == []
    assert got.gateway["status"] == "completed"
    assert got.headers["X-Run-Id"] == got.gateway["run_id"]
    assert got.data.endswith(b"data: [DONE]\n\n")
    assert b": keep-alive\n\n" in got.data


async def test_progress_is_told_only_to_those_who_ask(gateway: Gateway) -> None:
    plain = await stream(gateway)
    told = await stream(gateway, stream_options={"include_progress": True})

    assert not [chunk for chunk in plain.chunks if "progress" in chunk.get("gateway", {})]
    progress = [chunk["gateway"]["progress"] for chunk in told.chunks if "progress" in chunk.get("gateway", {})]
    assert [(each["type"], each["tool_name"]) for each in progress] == [
        ("tool_start", "list_files"), ("tool_result", "list_files"),
        ("tool_start", "read_file"), ("tool_result", "read_file"),
    ]  # fmt: skip
    assert told.text == ANSWER


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_capped_run_says_why_and_what_next_and_is_never_a_stop(serve: Serve, streamed: bool) -> None:
    async with serve(agent={"model": "runaway"}) as gateway:
        headers = {"X-Gateway-Max-Turns": "2"}
        if streamed:
            got = await stream(gateway, headers=headers)
            text, finish, told = got.text, got.finish, got.gateway
            assert got.done
        else:
            plain = await chat(gateway, headers=headers)
            choice = answer_of(plain)
            text, finish, told = choice["message"]["content"], choice["finish_reason"], plain.json["gateway"]
            assert plain.headers["X-Gateway-Reason"] == "max_turns"

        assert finish == "length"
        assert "It used 2 turns, and max_turns is 2." in text
        assert f"gateway resume {told['run_id']} --max-turns 4" in text
        assert (told["status"], told["interruption"]) == ("max_turns_exceeded", {"type": "max_turns", "max_turns": 2})


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_failed_run_is_an_error_that_no_library_asks_again_about(serve: Serve, streamed: bool) -> None:
    async with serve(agent={"model": "plan@fault=401"}) as gateway:
        got = await chat(gateway, stream=streamed)

        refused(got, 502, "run_failed", words="the provider answered 401")
        assert got.headers["x-should-retry"] == "false"
        assert got.json["gateway"]["status"] == "failed"
        assert gateway.stored_runs() == 1


async def test_a_run_that_fails_in_the_middle_of_its_stream_ends_it_with_an_error_and_no_done(serve: Serve) -> None:
    async with serve(agent={"model": "plan@fault=401,turn=2"}) as gateway:
        got = await stream(gateway)

        assert got.error is not None
        assert "answered 401" in got.error["message"]
        assert not got.done
        assert got.finish is None


async def test_the_library_raises_for_a_failed_run_and_for_an_error_in_a_stream(serve: Serve) -> None:
    async with serve(agent={"model": "plan@fault=401,turn=2"}) as gateway:
        client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none")
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="files", messages=[USER])  # type: ignore[list-item]
        chunks = await client.chat.completions.create(model="files", messages=[USER], stream=True)  # type: ignore
        with pytest.raises(openai.APIError, match="401"):
            [chunk async for chunk in chunks]
        await client.close()
        assert gateway.stored_runs() == 2


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_the_same_request_just_after_a_failure_is_a_retry_whether_it_says_so_or_not(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, path: str, streamed: bool
) -> None:
    said = {"input": [USER]} if path.endswith("responses") else {"messages": [USER]}
    async with serve(agent={"model": "plan@fault=401,turn=1"}) as gateway:
        first, again = [await gateway.post(path, {"model": "files", "stream": streamed, **said}) for _ in "12"]
        assert again.status == 502
        assert again.headers["X-Run-Id"] == first.headers["X-Run-Id"]
        assert b"answered 401" in again.body
        await gateway.post(path, {"model": "files", "stream": streamed, "temperature": 0, **said})
        assert gateway.stored_runs() == 2

        monkeypatch.setattr(loops, "RETRIED_WITHIN", timedelta())
        later = await gateway.post(path, {"model": "files", "stream": streamed, **said})
        assert later.headers["X-Run-Id"] != first.headers["X-Run-Id"]


async def test_the_same_request_after_an_answer_is_a_new_run(gateway: Gateway) -> None:
    first, second = await chat(gateway), await chat(gateway)

    assert first.headers["X-Run-Id"] != second.headers["X-Run-Id"]


async def test_an_approval_inside_is_told_and_the_answer_comes_to_who_joins_the_run(serve: Serve) -> None:
    async with serve(agent={"model": "destructive"}) as gateway:
        waits = await chat(gateway)
        assert answer_of(waits)["finish_reason"] == "length"
        assert "waits for an approval" in answer_of(waits)["message"]["content"]
        told = waits.json["gateway"]
        call_id = told["pending_approvals"][0]["call_id"]

        await gateway.command(told["run_id"], "approve", {"call_id": call_id}, wait=0)
        by_header = await chat(gateway, headers={"X-Run-Id": told["run_id"]})
        by_body = await chat(gateway, gateway={"run_id": told["run_id"]})
        streamed = await stream(gateway, headers={"X-Run-Id": told["run_id"]})

        for choice in (answer_of(by_header), answer_of(by_body)):
            assert choice["message"]["content"] == "Deleted access.log to free space."
        assert (streamed.text, streamed.finish) == ("Deleted access.log to free space.", "stop")
        assert gateway.stored_runs() == 1


async def test_parameters_reach_the_provider_as_they_are(serve: Serve) -> None:
    async with serve(agent={"model": "talks"}) as gateway:
        given = {
            "temperature": 0.25,
            "seed": 7,
            "parallel_tool_calls": False,
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
            "some_future_field": {"deep": [1, None]},
            "metadata": {"ticket": "42"},
        }
        got = await chat(gateway, **given)

        first = (await gateway.trace(got.headers["X-Run-Id"]))[0]
        assert first["params"] == {**given, "temperature": Decimal("0.25")}
        assert first["metadata"] == {"ticket": "42"}


async def test_parts_images_and_the_developer_role_are_kept(serve: Serve) -> None:
    async with serve(agent={"model": "talks"}) as gateway:
        parts = [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
        ]
        messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}]
        got = await chat(gateway, messages=messages)

        run = await gateway.look(got.headers["X-Run-Id"])
        assert run["messages"][:2] == messages


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"n": 2}, 400, "params.n"),
        ({"functions": [{"name": "f"}]}, 422, "functions"),
        ({"tools": [{"type": "web_search"}]}, 422, "tools[0]"),
        ({"messages": [{"role": "assistant", "content": "Hello."}]}, 400, "input"),
        ({"messages": [{"role": "nobody", "content": "Hello."}]}, 400, "messages[0].role"),
    ],
)
async def test_what_no_run_can_do_is_refused_naming_the_field(
    gateway: Gateway, fields: dict[str, Any], status: int, param: str
) -> None:
    refused(await chat(gateway, **fields), status, param=param)


async def test_a_client_that_goes_away_cancels_its_run_only_if_it_asked_for_that(serve: Serve) -> None:
    async with serve(agent={"model": "plan@latency=500"}) as gateway:
        for headers, status in (({}, "running"), ({"X-Gateway-Cancel-On-Disconnect": "true"}, "interrupted")):
            before = gateway.stored_runs()
            asking = asyncio.create_task(chat(gateway, headers=headers))
            await eventually(lambda before=before: is_more(gateway, before), "the run starts")
            asking.cancel()
            await asyncio.wait({asking})
            await eventually(lambda status=status: newest_is(gateway, status), f"the run is {status}")


async def is_more(gateway: Gateway, before: int) -> bool:
    return gateway.stored_runs() > before


async def newest_is(gateway: Gateway, status: str) -> bool:
    return (await gateway.get("/v1/runs")).json["runs"][0]["status"] == status


# --- the same request once more -------------------------------------------------------------------------------------


async def test_a_retry_of_the_library_joins_the_run_under_way(serve: Serve) -> None:
    async with serve(agent={"model": "plan@latency=60"}) as gateway:
        first = asyncio.create_task(chat(gateway))
        await eventually(lambda: is_more(gateway, 0), "the run starts")

        retry = await chat(gateway, headers={"x-stainless-retry-count": "1"})

        assert retry.json["gateway"]["run_id"] == (await first).json["gateway"]["run_id"]
        assert gateway.stored_runs() == 1
        again = await stream(gateway, headers={"x-stainless-retry-count": "1"})
        assert again.text == ANSWER
        assert gateway.stored_runs() == 2  # a stream is another request


async def test_a_request_with_a_key_is_carried_out_once(gateway: Gateway) -> None:
    headers = {"Idempotency-Key": "k1"}
    first, second = await asyncio.gather(chat(gateway, headers=headers), chat(gateway, headers=headers))

    assert answer_of(first) == answer_of(second)
    assert gateway.stored_runs() == 1
    refused(await chat(gateway, headers=headers, seed=1), 422, "idempotency_key_reused")


async def test_models_are_the_agents_and_the_providers(gateway: Gateway) -> None:
    listed = (await gateway.get("/v1/models")).json["data"]

    assert (listed[0]["id"], listed[0]["owned_by"]) == ("files", "agent")
    assert {"plan", "talks"} <= {model["id"] for model in listed}
    assert (await gateway.get("/v1/models/plan")).json["owned_by"] == "scripted"
    refused(await gateway.get("/v1/models/none-such"), 404, "not_found")
