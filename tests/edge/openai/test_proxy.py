"""A model of the provider's: passed through byte for byte, metered, and without a run."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from gateway.core.pricing import Price
from tests.edge.openai.talking import USER, chat, stream
from tests.serving import Gateway, Serve, eventually, refused

TEXT = "errors.log mentions a timeout, and nothing else does."


async def direct(gateway: Gateway, body: dict[str, Any]) -> bytes:
    """What the provider itself says."""
    assert gateway.config.provider is not None
    async with gateway.session.post(f"{gateway.config.provider.base_url}/chat/completions", json=body) as response:
        return await response.read()


async def test_a_reply_comes_back_byte_for_byte_and_no_run_is_made(gateway: Gateway) -> None:
    body = {"model": "talks", "messages": [USER], "some_future_field": {"deep": [1, None]}}

    got = await gateway.post("/v1/chat/completions", data=json.dumps(body).encode())

    assert got.status == 200
    assert got.body == await direct(gateway, body)
    assert got.headers["Content-Type"].startswith("application/json")
    assert gateway.stored_runs() == 0


async def test_a_stream_comes_back_with_its_own_events(gateway: Gateway) -> None:
    asked = {"model": "talks", "messages": [USER], "stream": True, "stream_options": {"include_usage": True}}

    got = await stream(gateway, "talks", stream_options={"include_usage": True})

    assert normal(got.data) == normal(await direct(gateway, asked))
    assert got.done
    assert got.chunks[-1]["usage"]["completion_tokens"] > 0


def normal(data: bytes) -> list[Any]:
    """Without the id, which the provider makes of the request's own bytes."""
    events = [line[5:].strip() for line in data.split(b"\n") if line.startswith(b"data:")]
    return [{**json.loads(each), "id": ""} if each != b"[DONE]" else each for each in events]


@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": False}}, {"stream_options": None}])
async def test_usage_that_the_client_did_not_ask_for_is_counted_and_not_shown(
    gateway: Gateway, options: dict[str, Any]
) -> None:
    got = await stream(gateway, "talks", **options)

    assert got.text == TEXT
    assert all(chunk["choices"] for chunk in got.chunks)
    assert got.done
    metrics = await gateway.metrics()
    assert metrics['gateway_tokens_total{agent="proxy",kind="completion",model="talks"}'] > 0


async def test_tokens_cost_and_outcome_are_counted(gateway: Gateway) -> None:
    await chat(gateway, "talks")
    await chat(gateway, "talks@fault=400")
    metrics = await gateway.metrics()

    assert metrics['gateway_tokens_total{agent="proxy",kind="prompt",model="talks"}'] > 0
    assert metrics['gateway_cost_usd_total{agent="proxy",model="talks"}'] > 0
    assert metrics['gateway_provider_requests_total{outcome="ok",provider="scripted"}'] == 1
    assert metrics['gateway_provider_requests_total{outcome="refused",provider="scripted"}'] == 1


OUTCOMES = ("ok", "refused", "unavailable", "lost", "abandoned")


async def outcomes(gateway: Gateway) -> dict[str, float]:
    """Those that there were."""
    metrics = await gateway.metrics()
    found = {
        each: metrics.get(f'gateway_provider_requests_total{{outcome="{each}",provider="scripted"}}')
        for each in OUTCOMES
    }
    return {outcome: count for outcome, count in found.items() if count}


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n"
BEGUN = {
    "nothing": b"",
    "half a reply": HEAD % b"application/json" + b'Content-Length: 100\r\n\r\n{"choices":',
    "an event": HEAD % b"text/event-stream" + b'\r\ndata: {"choices":[]}\n\n',
}


@pytest.mark.parametrize("begun", BEGUN)
async def test_a_client_that_hangs_up_does_not_make_the_provider_look_bad(serve: Serve, begun: str) -> None:
    said, gone = asyncio.Event(), asyncio.Event()

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(BEGUN[begun])
        said.set()
        await reader.read()
        gone.set()
        writer.close()

    async with await asyncio.start_server(say, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        async with serve(settings={"base_url": f"http://127.0.0.1:{port}/v1"}) as gateway:
            asking = asyncio.create_task(chat(gateway, "talks", stream=begun == "an event"))
            await said.wait()
            asking.cancel()

            await eventually(lambda: counted(gateway, {"abandoned": 1}), "the request is counted")
            await gone.wait()


async def counted(gateway: Gateway, wanted: dict[str, int]) -> bool:
    return await outcomes(gateway) == wanted


@pytest.mark.parametrize("kind", ["drop_middle", "truncate", "bad_json"])
async def test_a_stream_that_the_provider_breaks_off_is_lost(gateway: Gateway, kind: str) -> None:
    await stream(gateway, f"talks@fault={kind}")

    assert await outcomes(gateway) == {"lost": 1}


async def test_a_reply_without_usage_is_estimated(gateway: Gateway) -> None:
    await chat(gateway, "talks@fault=no_usage")

    metrics = await gateway.metrics()
    assert metrics['gateway_tokens_total{agent="proxy",kind="completion",model="talks@fault=no_usage"}'] > 5


async def test_a_model_without_a_price_is_refused(serve: Serve) -> None:
    async with serve(prices={"plan": Price(free=True)}) as gateway:
        refused(await chat(gateway, "talks"), 422, "no_price")


async def test_an_error_of_the_providers_comes_back_as_it_is(gateway: Gateway) -> None:
    got = await chat(gateway, "none-such")

    assert got.status == 404
    assert got.json["error"]["code"] == "model_not_found"
    limited = await chat(gateway, "talks@fault=429,retry_after=0")
    assert (limited.status, limited.headers["Retry-After"]) == (429, "0")


async def test_what_the_provider_did_not_do_is_asked_again_here(gateway: Gateway) -> None:
    got = await chat(gateway, "talks@fault=503,attempt=1")

    assert got.json["choices"][0]["message"]["content"] == TEXT


async def test_what_is_no_request_is_refused_here(gateway: Gateway) -> None:
    refused(await gateway.post("/v1/chat/completions", data=b"{"), 400, "malformed_json")
    refused(await gateway.post("/v1/chat/completions", {"messages": []}), 400, param="model")


async def test_a_provider_that_is_not_there_is_told_in_words(serve: Serve) -> None:
    async with serve(settings={"base_url": "http://127.0.0.1:9/v1", "retries_max": 0}) as gateway:
        got = await chat(gateway, "talks")

        assert got.status == 502
        assert "the provider gave no answer" in got.json["error"]["message"]
        assert "x-should-retry" not in got.headers


async def test_a_large_request_passes_through(gateway: Gateway) -> None:
    got = await chat(gateway, "talks", [{"role": "user", "content": "word " * 180_000}])

    assert got.status == 200


async def test_the_library_reads_a_stream_of_the_providers(gateway: Gateway) -> None:
    client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none")
    chunks = await client.chat.completions.create(model="talks", messages=[USER], stream=True)  # type: ignore

    text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    assert text == TEXT
    await client.close()


@pytest.mark.parametrize("header", ["X-Gateway-Max-Turns", "X-Gateway-Max-Budget-Usd"])
async def test_a_limit_that_would_hold_nothing_back_is_refused(gateway: Gateway, header: str) -> None:
    got = await chat(gateway, "talks", headers={header: "1"})

    assert (got.status, got.json["error"]["param"]) == (400, header)
    assert "X-Gateway-Conversation" in got.json["error"]["message"]
