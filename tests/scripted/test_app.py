import json
import time
from typing import Any

import aiohttp
import pytest

from scripted.app import DRAIN_SECONDS_MAX, create_app, serving
from scripted.faults import parse
from scripted.scripts import SCRIPTS, Script, Step

HELLO = {"role": "user", "content": "hello"}
CALL = {"id": "c1", "type": "function", "function": {"name": "list_files", "arguments": "{}"}}


async def test_a_reply_has_the_shape_of_openai(ask: Any) -> None:
    got = await ask("plan", tools=[{"type": "function", "function": {"name": "list_files"}}])

    assert got.status == 200
    assert got.headers["Content-Type"] == "application/json"
    assert got.json["id"].startswith("chatcmpl-")
    assert got.json["object"] == "chat.completion"
    assert got.json["model"] == "plan"
    assert isinstance(got.json["created"], int)
    assert got.json["system_fingerprint"]
    assert got.json["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ]


async def test_usage_is_counted_from_what_was_sent_as_it_was_sent(ask: Any) -> None:
    bare = await ask("once")
    named = await ask("once", messages=[{"role": "user", "content": "Which file mentions a timeout?", "name": "ada"}])

    assert bare.json["usage"] == {
        "prompt_tokens": 15,
        "completion_tokens": 29,
        "total_tokens": 44,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert named.json["usage"]["prompt_tokens"] > 15


async def test_prose_has_no_tool_calls_and_finishes_with_stop(ask: Any) -> None:
    got = await ask("once", messages=[HELLO, {"role": "assistant"}])

    choice = got.json["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "errors.log mentions a timeout."}
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [False, True])
async def test_the_same_request_has_the_same_reply_to_the_byte(ask: Any, stream: bool) -> None:
    assert (await ask("plan", stream=stream)).body == (await ask("plan", stream=stream)).body


async def test_different_requests_have_different_ids(ask: Any) -> None:
    assert (await ask("plan")).json["id"] != (await ask("plan", seed=1)).json["id"]


async def test_fields_that_are_not_known_are_ignored(ask: Any) -> None:
    got = await ask("plan", temperature=0, seed=7, n=1, stop=["x"], parallel_tool_calls=True, user="ada", nonsense={})

    assert got.status == 200


@pytest.mark.parametrize("content", [None, "", "hello", [], [{"type": "text", "text": "hello"}, {"type": "image_url"}]])
async def test_content_is_a_string_or_null_or_parts(ask: Any, content: Any) -> None:
    assert (await ask("plan", messages=[{"role": "user", "content": content}])).status == 200


BODIES = [
    (b"", 400, None, "JSON"),
    (b"{", 400, None, "JSON"),
    (b"\xff", 400, None, "JSON"),
    (b'{"model": "plan", "messages": [{"role": "user", "content": "\\ud800"}]}', 400, None, "JSON"),
    (b'{"deep": ' + b"[" * 100_000, 400, None, "nested too deeply"),
    (b"[]", 400, None, "Expected `object`"),
    (b"{}", 400, "model", "`model`"),
    (b'{"model": 3, "messages": []}', 400, "model", "str"),
    (b'{"model": "plan"}', 400, "messages", "`messages`"),
    (b'{"model": "plan", "messages": []}', 400, "messages", "length >= 1"),
    (b'{"model": "plan", "messages": "hello"}', 400, "messages", "array"),
    (b'{"model": "plan", "messages": ["hello"]}', 400, "messages[0]", "object"),
    (b'{"model": "plan", "messages": [{}]}', 400, "messages[0].role", "`role`"),
    (b'{"model": "plan", "messages": [{"role": "cat"}]}', 400, "messages[0].role", "cat"),
    (b'{"model": "plan", "messages": [{"role": "user", "content": 3}]}', 400, "messages[0].content", "int"),
    (b'{"model": "plan", "messages": [{"role": "user"}], "tools": [1]}', 400, "tools[0]", "object"),
    (b'{"model": "plan", "messages": [{"role": "user"}], "stream": "yes"}', 400, "stream", "bool"),
    (b'{"model": "nope", "messages": [{"role": "user"}]}', 404, "model", "'nope' does not exist. Known are: plan,"),
    (b'{"model": "plan@fault=x", "messages": [{"role": "user"}]}', 400, "model", "Unknown fault 'x'. Known are:"),
    (b'{"model": "plan@x=1", "messages": [{"role": "user"}]}', 400, "model", "Unknown setting 'x'. Known are:"),
    (
        b'{"model": "plan", "messages": [{"role": "user", "content": "' + b" " * 600_000 + b'"}]}',
        400,
        "messages",
        "white space",
    ),
]


@pytest.mark.parametrize(("body", "status", "param", "words"), BODIES, ids=[str(body[0][:60]) for body in BODIES])
async def test_a_bad_request_is_told_what_is_wrong(
    post: Any, body: bytes, status: int, param: str | None, words: str
) -> None:
    got = await post(body)

    assert got.status == status
    assert got.headers["Content-Type"] == "application/json"
    assert got.json["error"].keys() == {"message", "type", "param", "code"}
    assert got.json["error"]["param"] == param
    assert words in got.json["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "param"), [({"X-Scripted": "fault=explode"}, "X-Scripted"), ({"X-Attempt": "often"}, None)]
)
async def test_a_bad_header_is_told_what_is_wrong(ask: Any, headers: dict[str, str], param: str | None) -> None:
    got = await ask("plan", headers)

    assert (got.status, got.json["error"]["param"]) == (400, param)
    assert next(iter(headers.values())).split("=")[-1] in got.json["error"]["message"]


async def test_a_body_that_is_not_encoded_as_it_says_is_a_bad_request(post: Any) -> None:
    got = await post(b"not gzip", {"Content-Encoding": "gzip"})

    assert (got.status, got.json["error"]["code"]) == (400, "invalid_body")


async def test_a_request_that_is_too_large_is_refused_in_the_same_shape() -> None:
    async with serving(create_app(request_bytes_max=1000)) as address, aiohttp.ClientSession() as session:
        body = json.dumps({"model": "plan", "messages": [{"role": "user", "content": "x" * 2000}]}).encode()
        async with session.post(f"{address}/v1/chat/completions", data=body) as response:
            assert response.status == 413
            assert (await response.json())["error"]["code"] == "request_too_large"


async def test_a_large_request_is_counted_like_any_other(ask: Any) -> None:
    got = await ask("plan", messages=[{"role": "user", "content": "word " * 100_000}])

    assert got.json["usage"]["prompt_tokens"] > 100_000


@pytest.mark.parametrize(("path", "status"), [("/", 404), ("/v1/chat/completions", 405), ("/v1/models/nope", 404)])
async def test_a_path_that_is_not_served_has_the_same_shape_of_error(get: Any, path: str, status: int) -> None:
    got = await get(path)

    assert got.status == status
    assert got.json["error"].keys() == {"message", "type", "param", "code"}


async def test_a_bug_is_answered_without_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    broken = {"broken": Script("Has an argument that JSON lacks.", (Step(text=b"bytes"),))}  # pyright: ignore
    async with serving(create_app(scripts=broken)) as address, aiohttp.ClientSession() as session:
        body = {"model": "broken", "messages": [HELLO]}
        async with session.post(f"{address}/v1/chat/completions", json=body) as response:
            text = await response.text()

    assert (response.status, json.loads(text)["error"]["type"]) == (500, "server_error")
    assert "Traceback" not in text
    assert "a request failed" in caplog.text


async def test_models_are_the_scripts(get: Any) -> None:
    got = await get("/v1/models")

    assert got.json["object"] == "list"
    assert [model["id"] for model in got.json["data"]] == list(SCRIPTS)


async def test_a_model_keeps_the_name_it_was_asked_by(get: Any, ask: Any) -> None:
    name = "plan@latency=1,fault=no_usage"

    assert (await get(f"/v1/models/{name}")).json["id"] == name
    assert (await ask(name)).json["model"] == name


async def test_health_is_told(get: Any) -> None:
    assert (await get("/healthz")).json == {"status": "ok"}


async def test_latency_is_waited_before_the_reply(ask: Any) -> None:
    await ask("plan")
    start = time.perf_counter()

    await ask("plan@latency=120")

    assert time.perf_counter() - start >= 0.12


async def test_the_name_goes_before_the_header_and_the_header_before_the_defaults() -> None:
    async with serving(create_app(parse("fault=503"))) as address, aiohttp.ClientSession() as session:

        async def status(model: str, header: str) -> int:
            body, headers = {"model": model, "messages": [HELLO]}, {"X-Scripted": header}
            async with session.post(f"{address}/v1/chat/completions", json=body, headers=headers) as response:
                return response.status

        assert await status("plan", "") == 503
        assert await status("plan", "fault=429") == 429
        assert await status("plan@fault=401", "fault=429") == 401
        assert await status("plan@fault=none", "") == 200


async def test_a_client_that_goes_away_ends_the_wait() -> None:
    body = {"model": "plan@latency=60000", "messages": [HELLO]}
    start = time.perf_counter()
    impatient = aiohttp.ClientTimeout(total=0.05)
    async with serving(create_app()) as address, aiohttp.ClientSession(timeout=impatient) as session:
        with pytest.raises(TimeoutError):
            await session.post(f"{address}/v1/chat/completions", json=body)

    # A server that stops waits for replies in flight, DRAIN_SECONDS_MAX at most; none was left.
    assert time.perf_counter() - start < DRAIN_SECONDS_MAX / 2
