"""The HTTP side, with a model without weights."""

import asyncio
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec
import pytest

from model_server.errors import LoadFailed
from model_server.scheduler import Limits
from tests.model_server.conftest import LIMITS, TOOLS, Client, served
from tests.model_server.fakes import FakeEngine, answers

CALLS = answers(
    {
        "which": 'I look.\n<tool_call>\n{"name": "list_files", "arguments": {}}\n</tool_call>',
        "bare": '{"name": "read_file", "arguments": {"path": "a"}}; {"name": "list_files", "arguments": {}}',
        "unknown": '{"name": "open_file", "arguments": {}}',
        "long": "x" * 500,
        "half": '<tool_call>\n{"name": "read_file", "arguments": {"path": "' + "a" * 500,
    }
)


async def test_a_reply_has_the_shape_of_openai(serve: Any) -> None:
    got = await (await serve()).chat("hello", model="fake")

    assert got.status == 200
    assert got.headers["Content-Type"] == "application/json"
    assert got.json["object"] == "chat.completion"
    assert got.json["model"] == "fake"
    assert got.json["system_fingerprint"] == "fp_q4_k_m"
    assert got.json["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "you said: hello"},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]


async def test_usage_and_timings_tell_what_was_cached_and_how_long_it_took(serve: Any) -> None:
    client: Client = await serve()
    first, again = await client.chat("hello"), await client.chat("hello")

    prompt = first.json["usage"]["prompt_tokens"]
    assert first.json["usage"]["completion_tokens"] == len("you said: hello")
    assert first.json["usage"]["total_tokens"] == prompt + len("you said: hello")
    assert first.json["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert again.json["usage"]["prompt_tokens_details"] == {"cached_tokens": prompt - 1}
    timings = again.json["timings"]
    assert timings["prefill_tokens"] == 1
    assert 0 <= timings["queue_ms"] <= timings["ttft_ms"]
    assert timings["decode_tokens_per_second"] > 0


async def test_a_conversation_computes_only_what_is_added(serve: Any) -> None:
    client: Client = await serve()
    first = await client.chat([{"role": "user", "content": "one"}])
    history = [{"role": "user", "content": "one"}, first.message, {"role": "user", "content": "two"}]
    second = await client.chat(history)

    usage = second.json["usage"]
    added = usage["prompt_tokens"] - first.json["usage"]["total_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - added - 2


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_come_as_calls_and_prose_before_them_as_content(serve: Any, stream: bool) -> None:
    client: Client = await serve(FakeEngine(CALLS))
    got = await client.chat("which", tools=TOOLS, stream=stream)

    content, calls, finish = told(got.chunks) if stream else whole(got.json)
    assert content == "I look."
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in calls] == [("list_files", "{}")]
    assert all(call["id"].startswith("call_") for call in calls)
    assert finish == "tool_calls"


async def test_a_reply_of_calls_alone_has_no_content(serve: Any) -> None:
    got = await (await serve(FakeEngine(CALLS))).chat("bare", tools=TOOLS)

    assert got.message["content"] is None
    assert [call["function"]["name"] for call in got.message["tool_calls"]] == ["read_file", "list_files"]
    assert len({call["id"] for call in got.message["tool_calls"]}) == 2


async def test_what_names_no_declared_tool_is_content(serve: Any) -> None:
    got = await (await serve(FakeEngine(CALLS))).chat("unknown", tools=TOOLS)

    assert got.message == {"role": "assistant", "content": '{"name": "open_file", "arguments": {}}'}


async def test_without_tools_or_with_none_to_be_called_nothing_is_read_as_a_call(serve: Any) -> None:
    client: Client = await serve(FakeEngine(CALLS))
    plain, none = await client.chat("bare"), await client.chat("bare", tools=TOOLS, tool_choice="none")

    assert plain.message["content"] == none.message["content"] == CALLS("bare")
    assert "tool_calls" not in none.message


async def test_a_reply_that_is_cut_off_in_a_call_says_so_and_leaves_the_arguments_unfinished(serve: Any) -> None:
    got = await (await serve(FakeEngine(CALLS))).chat("half", tools=TOOLS, max_tokens=60)

    assert got.json["choices"][0]["finish_reason"] == "length"
    (call,) = got.message["tool_calls"]
    assert call["function"]["arguments"].startswith('{"path": "aaa')


async def test_a_reply_ends_at_max_tokens_and_at_a_stop_string(serve: Any) -> None:
    client: Client = await serve(FakeEngine(CALLS))
    capped = await client.chat("long", max_completion_tokens=7)
    stopped = await (await serve()).chat("hello", stop=["said", ":"])

    assert capped.message["content"] == "x" * 7
    assert capped.json["choices"][0]["finish_reason"] == "length"
    assert stopped.message["content"] == "you "
    assert stopped.json["choices"][0]["finish_reason"] == "stop"


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def told(chunks: list[Any]) -> tuple[str, list[Any], str]:
    """A stream, put together again as clients do it."""
    content, calls, finish = "", {}, ""
    for chunk in chunks:
        for choice in chunk["choices"]:
            content += choice["delta"].get("content") or ""
            finish = choice["finish_reason"] or finish
            for delta in choice["delta"].get("tool_calls", ()):
                call = calls.setdefault(delta["index"], {"function": {"arguments": ""}})
                call["id"] = delta.get("id", call.get("id"))
                call["function"]["name"] = delta["function"].get("name", call["function"].get("name"))
                call["function"]["arguments"] += delta["function"]["arguments"]
    return content, list(calls.values()), finish


def whole(body: Any) -> tuple[str, list[Any], str]:
    choice = body["choices"][0]
    return choice["message"]["content"], choice["message"].get("tool_calls", []), choice["finish_reason"]


async def test_a_stream_comes_in_pieces_and_ends_with_done(serve: Any) -> None:
    got = await (await serve()).chat("hello", stream=True)

    assert got.headers["Content-Type"] == "text/event-stream"
    assert got.events[-1] == "[DONE]"
    assert len(got.chunks) > 10
    assert got.chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert told(got.chunks) == ("you said: hello", [], "stop")
    assert all("usage" not in chunk for chunk in got.chunks)


async def test_usage_comes_last_when_it_is_asked_for(serve: Any) -> None:
    got = await (await serve()).chat("hello", stream=True, stream_options={"include_usage": True})

    assert got.chunks[-1]["choices"] == []
    assert got.chunks[-1]["usage"]["completion_tokens"] == len("you said: hello")
    assert all(chunk["usage"] is None for chunk in got.chunks[:-1])
    assert got.chunks[-2]["timings"]["prefill_tokens"] > 0


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────────────────

HELLO = [{"role": "user", "content": "hello"}]
REFUSED = [
    ({"messages": []}, 400, "messages"),
    ({}, 400, "messages"),
    ({"messages": [{"role": "nobody"}]}, 400, "messages[0].role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages[0].content"),
    ({"messages": HELLO, "n": 2}, 400, "n"),
    ({"messages": HELLO, "logprobs": True}, 400, "logprobs"),
    ({"messages": HELLO, "logit_bias": {"1": 5}}, 400, "logit_bias"),
    ({"messages": HELLO, "presence_penalty": 1}, 400, "presence_penalty"),
    ({"messages": HELLO, "temperature": 9}, 400, "temperature"),
    ({"messages": HELLO, "max_tokens": 0}, 400, "max_tokens"),
    ({"messages": HELLO, "model": "gpt-4"}, 404, "model"),
    ({"messages": HELLO, "tool_choice": "required"}, 400, "tool_choice"),
    (
        {"messages": HELLO, "tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
        400,
        "tool_choice",
    ),
    ({"messages": [{"role": "user", "content": "long " * 1000}]}, 400, "messages"),
]


@pytest.mark.parametrize(("body", "status", "param"), REFUSED, ids=[str(n) for n in range(len(REFUSED))])
async def test_what_cannot_be_done_is_refused_and_names_the_field(
    serve: Any, body: Any, status: int, param: str
) -> None:
    got = await (await serve()).post("/v1/chat/completions", body)

    assert got.status == status
    error = got.json["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert error["message"].endswith(".")


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"x":' + b"[" * 100_000])
async def test_a_body_that_is_no_json_is_a_400(serve: Any, body: bytes) -> None:
    got = await (await serve()).post("/v1/chat/completions", body)

    assert (got.status, got.json["error"]["code"]) == (400, "invalid_json")


async def test_a_context_overflow_computes_nothing_and_harms_nobody(serve: Any) -> None:
    engine = FakeEngine()
    client: Client = await serve(engine)
    await client.chat("hello")
    batches = len(engine.batches)
    got = await client.chat("long " * 1000)

    assert got.json["error"]["code"] == "context_length_exceeded"
    assert len(engine.batches) == batches
    assert (await client.chat("hello")).json["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


async def test_a_model_that_was_not_trained_for_tools_says_so(serve: Any) -> None:
    client: Client = await serve(template="chatml")

    assert (await client.chat("hello", tools=TOOLS)).json["error"]["code"] == "tools_unsupported"
    assert (await client.chat("hello", tools=TOOLS, tool_choice="none")).status == 200


async def test_when_nobody_more_can_wait_the_answer_is_429_and_says_when_to_come_back(serve: Any) -> None:
    engine = FakeEngine()
    client: Client = await serve(engine)
    engine.go.clear()
    waiting = [asyncio.create_task(client.chat(f"hello {n}")) for n in range(LIMITS.sequences + LIMITS.queue)]
    await client.holds(len(waiting))
    refused = await client.chat("one more")
    engine.go.set()

    assert refused.status == 429
    assert refused.json["error"]["code"] == "queue_full"
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert [got.status for got in await asyncio.gather(*waiting)] == [200] * len(waiting)
    assert await client.metric('requests_total{outcome="queue_full"}') == 1


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("GET", "/v1/chat/completions", 405)])
async def test_errors_of_the_web_framework_have_the_same_body(serve: Any, method: str, path: str, status: int) -> None:
    client: Client = await serve()
    async with aiohttp.ClientSession() as session, session.request(method, client.address + path) as response:
        assert response.status == status
        assert (await response.json())["error"]["type"] == "invalid_request_error"


# ── going away ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_frees_its_sequence_in_the_middle_of_its_reply(serve: Any, stream: bool) -> None:
    client: Client = await serve(
        FakeEngine(lambda _: "endless " * 4000, seconds=0.001), Limits(cells=40_000, sequences=2, kept=2, queue=2)
    )
    body = msgspec.json.encode({"messages": HELLO, "stream": stream})
    async with aiohttp.ClientSession() as session:
        asked = asyncio.create_task(session.post(client.address + "/v1/chat/completions", data=body))
        await client.until("sequences_active", 1)
        asked.cancel()
        with suppress(asyncio.CancelledError):
            (await asked).close()

    await client.until('requests_total{outcome="cancelled"}', 1)
    await client.until("sequences_active", 0)
    assert (await client.chat("hello", max_tokens=3)).status == 200


async def test_a_client_that_goes_away_while_it_waits_is_forgotten(serve: Any) -> None:
    engine = FakeEngine()
    client: Client = await serve(engine)
    engine.go.clear()
    first = [asyncio.create_task(client.chat(f"hello {n}")) for n in range(3)]
    await client.holds(3)
    first[2].cancel()
    await client.holds(2)
    engine.go.set()
    await asyncio.gather(*first[:2])

    assert len(engine.lines) <= 3
    await client.until('requests_total{outcome="cancelled"}', 1)


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_one_request_that_cannot_be_computed_fails_alone(serve: Any) -> None:
    """A batch fails whenever a certain token is in it; the requests that shared the batch go on."""
    engine = FakeEngine(code=lambda shares: -3 if any(ord("~") in share.tokens for share in shares) else 0)
    client: Client = await serve(engine)
    good, bad = await asyncio.gather(client.chat("hello there"), client.chat("~"))

    assert (good.status, good.message["content"]) == (200, "you said: hello there")
    assert (bad.status, bad.json["error"]["type"]) == (500, "server_error")
    assert "llama_decode returned -3" in bad.json["error"]["message"]
    assert await client.metric("sequences_active") == 0
    assert await client.metric("batches_failed_total") >= 1


async def test_a_memory_that_has_less_room_than_it_should_gives_up_its_cache_and_goes_on(serve: Any) -> None:
    refusals: list[int] = []
    engine = FakeEngine(code=lambda _: refusals.pop() if refusals else 0)
    client: Client = await serve(engine)
    await client.chat("one")
    refusals.append(1)
    got = await client.chat("two")

    assert got.status == 200
    assert await client.metric("batches_failed_total") == 1
    assert await client.metric("sequences_kept") == 1


async def test_while_the_weights_load_the_server_listens_and_says_that_it_is_not_ready() -> None:
    began, go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def load(progress: Any) -> FakeEngine:
        progress(0.25)
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result(10)
        return FakeEngine()

    async with served(load) as client:
        await began.wait()
        ready, chat = await client.get("/readyz"), await client.chat("hello")
        assert (await client.get("/healthz")).status == 200
        assert (ready.status, ready.json) == (503, {"status": "loading", "model": "fake", "progress": 0.25})
        assert (chat.status, chat.json["error"]["code"], chat.headers["Retry-After"]) == (503, "model_loading", "1")
        go.set()
        await client.service.settled.wait()
        assert (await client.get("/readyz")).json == {"status": "ready", "model": "fake", "progress": 1.0}


async def test_weights_that_cannot_be_loaded_are_told_to_whoever_waits() -> None:
    def load(_: Any) -> FakeEngine:
        raise LoadFailed("It is no model.")

    async with served(load) as client:
        await client.service.settled.wait()
        assert str(client.service.failure) == "It is no model."
        assert (await client.get("/readyz")).json["status"] == "failed"
        assert (await client.chat("hello")).json["error"]["code"] == "model_failed"


async def test_a_bug_in_the_loop_of_the_model_fails_all_requests_and_readiness(serve: Any, caplog: Any) -> None:
    def bug(_: Any) -> int:
        raise RuntimeError("a bug")

    client: Client = await serve(FakeEngine(code=bug))
    got = await client.chat("hello")

    assert got.status == 500
    assert client.service.broken.is_set()
    assert (await client.get("/readyz")).status == 503
    assert "a bug" in caplog.text


# ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_model_is_listed_with_what_it_is(serve: Any) -> None:
    client: Client = await serve()
    (model,) = (await client.get("/v1/models")).json["data"]

    assert model["id"] == "fake"
    assert model["context_tokens"] == LIMITS.cells
    assert model["takes_tools"] is True
    assert (await client.get("/v1/models/fake")).json == model
    assert (await client.get("/v1/models/other")).status == 404


async def test_text_is_tokenised_without_control_tokens_unless_they_are_asked_for(serve: Any) -> None:
    client: Client = await serve()
    text = await client.post("/tokenize", {"content": "<|im_end|>"})
    control = await client.post("/tokenize", {"content": "<|im_end|>", "parse_special": True})

    assert text.json["count"] == 10
    assert control.json == {"tokens": [256], "count": 1}


async def test_every_series_is_there_from_the_start_and_counts(serve: Any) -> None:
    client: Client = await serve()
    assert await client.metric("ready") == 1
    assert await client.metric("cache_bytes_max") == LIMITS.cells * 12_288
    assert await client.metric('requests_total{outcome="cancelled"}') == 0
    got = await client.chat("hello")

    usage = got.json["usage"]
    assert await client.metric("prompt_tokens_total") == usage["prompt_tokens"]
    assert await client.metric("generated_tokens_total") == usage["completion_tokens"]
    assert await client.metric("time_to_first_token_seconds_count") == 1
    assert await client.metric("cache_bytes") == (usage["total_tokens"] - 1 + 1) * 12_288
    assert await client.metric("sequences_kept") == 1


async def test_the_engine_is_closed_with_the_server() -> None:
    engine = FakeEngine()
    async with served(lambda _: engine) as client:
        await client.service.settled.wait()
        await client.chat("hello")

    assert engine.closed
