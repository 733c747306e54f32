"""Each fault as a client meets it, plain and streamed, on a real connection."""

import json
import time
from typing import Any

import aiohttp
import pytest

from scripted.app import create_app, serving
from scripted.scripts import Script, Step

STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
WAYS = pytest.mark.parametrize("fields", [{}, STREAMED], ids=["plain", "streamed"])


@WAYS
@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 503])
async def test_a_status_fault_is_an_error_in_the_shape_of_openai(ask: Any, status: int, fields: Any) -> None:
    got = await ask(f"plan@fault={status}", **fields)

    assert got.status == status
    assert got.headers["Content-Type"] == "application/json"
    assert got.json["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("asked", "header"),
    [
        ("fault=429", "1"),
        ("fault=429,retry_after=0.05", "0.05"),
        ("fault=503,retry_after=2", "2"),
        ("fault=503", None),
    ],
)
async def test_a_429_says_when_to_come_back(ask: Any, asked: str, header: str | None) -> None:
    assert (await ask("plan", {"X-Scripted": asked})).headers.get("Retry-After") == header


@pytest.mark.parametrize("counter", ["X-Attempt", "x-stainless-retry-count"])
async def test_a_client_that_counts_its_attempts_sees_the_fault_so_often_and_then_the_reply(
    ask: Any, counter: str
) -> None:
    statuses = [(await ask("plan@fault=500:2", {counter: str(attempt)})).status for attempt in range(3)]

    assert statuses == [500, 500, 200]


async def test_a_fault_of_one_turn_leaves_the_others_alone(ask: Any) -> None:
    spoken = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hello"}]

    assert (await ask("plan@fault=503,turn=1")).status == 200
    assert (await ask("plan@fault=503,turn=1", messages=spoken)).status == 503


@WAYS
async def test_drop_before_closes_the_connection_before_any_byte(ask: Any, fields: Any) -> None:
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await ask("plan@fault=drop_before", **fields)


@WAYS
async def test_drop_middle_closes_the_connection_in_the_middle_of_the_body(
    address: str, fields: dict[str, Any]
) -> None:
    body = {"model": "plan@fault=drop_middle", "messages": [{"role": "user", "content": "hello"}], **fields}
    got = bytearray()
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{address}/v1/chat/completions", json=body) as response,
    ):
        with pytest.raises(aiohttp.ClientPayloadError):
            await read_into(got, response.content)

    assert response.status == 200
    assert b"chatcmpl-" in got
    assert b'finish_reason":"' not in got


async def read_into(got: bytearray, content: aiohttp.StreamReader) -> None:
    async for data, _ in content.iter_chunks():
        got += data


async def test_a_truncated_stream_ends_cleanly_without_finish_usage_and_done(ask: Any) -> None:
    got = await ask("plan@fault=truncate", **STREAMED)

    assert got.chunks
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in got.chunks)
    assert "[DONE]" not in got.events


async def test_a_truncated_stream_of_an_empty_text_has_no_finish_either() -> None:
    empty = {"empty": Script("Says nothing.", (Step(text=""),))}
    body = {"model": "empty@fault=truncate", "messages": [{"role": "user", "content": "hello"}], **STREAMED}
    async with (
        serving(create_app(scripts=empty)) as address,
        aiohttp.ClientSession() as session,
        session.post(f"{address}/v1/chat/completions", json=body) as response,
    ):
        assert '"finish_reason":"stop"' not in await response.text()


@pytest.mark.parametrize("fault", ["truncate", "bad_json"])
async def test_a_plain_body_that_is_cut_short_arrives_in_full_and_is_not_json(ask: Any, fault: str) -> None:
    got = await ask(f"plan@fault={fault}")

    assert got.status == 200
    assert int(got.headers["Content-Length"]) == len(got.body) > 0
    with pytest.raises(json.JSONDecodeError):
        json.loads(got.body)


async def test_one_line_of_a_stream_is_not_json_and_the_rest_is_in_order(ask: Any) -> None:
    got = await ask("plan@fault=bad_json", **STREAMED)

    assert [is_json(data) for data in got.events].count(False) == 2  # and [DONE]
    assert is_json(got.events[0])
    assert got.events[-1] == "[DONE]"


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True


async def test_no_usage_leaves_the_usage_out(ask: Any) -> None:
    plain = await ask("plan@fault=no_usage")
    streamed = await ask("plan@fault=no_usage", **STREAMED)

    assert "usage" not in plain.json
    assert not any(chunk.get("usage") for chunk in streamed.chunks)
    assert streamed.events[-1] == "[DONE]"


async def test_no_finish_leaves_the_finish_reason_out(ask: Any) -> None:
    plain = await ask("plan@fault=no_finish")
    streamed = await ask("plan@fault=no_finish", **STREAMED)

    assert "finish_reason" not in plain.json["choices"][0]
    assert not any(choice["finish_reason"] for chunk in streamed.chunks for choice in chunk["choices"])
    assert streamed.chunks[-1]["usage"]
    assert streamed.events[-1] == "[DONE]"


async def test_finish_stop_makes_tool_calls_end_with_stop(ask: Any) -> None:
    plain = await ask("plan@fault=finish_stop")
    streamed = await ask("plan@fault=finish_stop", **STREAMED)

    assert plain.json["choices"][0]["message"]["tool_calls"]
    assert plain.json["choices"][0]["finish_reason"] == "stop"
    assert streamed.chunks[-2]["choices"][0]["finish_reason"] == "stop"


async def test_no_index_leaves_the_index_out_of_streamed_calls(ask: Any) -> None:
    streamed = await ask("plan@fault=no_index", **STREAMED)

    calls = [call for chunk in streamed.chunks for choice in chunk["choices"] for call in deltas(choice)]
    assert calls[0]["id"] == "c1"
    assert not any("index" in call for call in calls)


def deltas(choice: dict[str, Any]) -> list[dict[str, Any]]:
    return choice["delta"].get("tool_calls", [])


async def test_reissue_id_gives_every_call_of_the_conversation_the_same_id(ask: Any) -> None:
    spoken = [{"role": "user", "content": "hello"}, {"role": "assistant"}]
    got = await ask("plan@fault=reissue_id", messages=spoken)

    call = got.json["choices"][0]["message"]["tool_calls"][0]
    assert (call["id"], call["function"]["name"]) == ("c1", "read_file")


@WAYS
async def test_stall_sends_the_headers_at_once_and_the_reply_later(address: str, fields: dict[str, Any]) -> None:
    body = {"model": "plan@fault=stall,stall_ms=400", "messages": [{"role": "user", "content": "hello"}], **fields}
    async with aiohttp.ClientSession() as session:
        start = time.perf_counter()
        async with session.post(f"{address}/v1/chat/completions", json=body) as response:
            headers_after = time.perf_counter() - start
            text = await response.text()
            body_after = time.perf_counter() - start

    assert headers_after < 0.4 <= body_after
    assert "list_files" in text


async def test_a_client_that_waits_for_less_than_the_stall_times_out(address: str) -> None:
    body = {"model": "plan@fault=stall", "messages": [{"role": "user", "content": "hello"}]}
    timeout = aiohttp.ClientTimeout(sock_read=0.05)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(f"{address}/v1/chat/completions", json=body) as response,
    ):
        with pytest.raises(TimeoutError):
            await response.read()


@WAYS
async def test_a_connection_goes_on_after_a_fault_that_does_not_drop_it(address: str, fields: dict[str, Any]) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
        for fault in ("429", "truncate", "bad_json", "none"):
            body = {"model": f"plan@fault={fault}", "messages": [{"role": "user", "content": "hello"}], **fields}
            async with session.post(f"{address}/v1/chat/completions", json=body) as response:
                await response.read()

    assert response.status == 200
