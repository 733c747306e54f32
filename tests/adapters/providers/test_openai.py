"""What is sent, and what is made of whole replies."""

from __future__ import annotations

import gzip
import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gateway.adapters.providers.settings import ProviderSettings
from gateway.core.errors import ProviderRefused, ProviderUnavailable
from gateway.core.messages import Assistant, Function, ToolCall, User
from gateway.core.ports import Sending
from gateway.core.pricing import Usage
from gateway.core.run import ToolSpec
from scripted import tokens

READ = ToolSpec(name="read", description="Read it.", parameters={"type": "object"})
PLAIN_AND_STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])


async def unheard(_: Sending) -> None:
    pass


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


# --- what is sent ---------------------------------------------------------------------------------------------------


async def test_a_request_says_who_asks_and_which_attempt_it_is(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.error(503), upstream.says())

    await ask(api_key="sk-1", headers={"X-Team": "blue", "user-agent": "mine", "host": "own"}, extra_body={"seed": 7})

    first, second = upstream.requests
    assert [request.headers["X-Attempt"] for request in (first, second)] == ["0", "1"]
    assert first.path == "/v1/chat/completions"
    assert first.headers["Authorization"] == "Bearer sk-1"
    assert first.headers["X-Team"] == "blue"
    assert first.headers.getall("User-Agent") == ["mine"]
    assert first.headers.getall("Host") == ["own"]
    assert first.headers["Content-Type"] == "application/json"
    assert upstream.bodies[0] == upstream.bodies[1]
    assert msgspec.json.decode(upstream.bodies[0]) == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}],
        "stream": False,
        "seed": 7,
    }


async def test_without_a_key_there_is_no_authorization(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.says())

    await ask()

    assert "Authorization" not in upstream.requests[0].headers


@pytest.mark.parametrize(
    ("settings", "sent"),
    [({}, "Basic bWU6cDp3"), ({"api_key": "sk-1"}, "Bearer sk-1"), ({"headers": {"authorization": "own"}}, "own")],
)
async def test_credentials_in_the_address_are_sent_where_nothing_else_is(
    upstream: Any, open_model: Any, ask_model: Any, make_run: Any, settings: Any, sent: str
) -> None:
    upstream.will(upstream.says())

    async with open_model(upstream.base_url.replace("http://", "http://me:p%3Aw@"), **settings) as model:
        await ask_model(model, make_run())

    assert upstream.requests[0].headers.getall("Authorization") == [sent]
    assert "me" not in upstream.requests[0].headers["Host"]


async def test_a_transcript_of_megabytes_is_sent_whole(upstream: Any, ask: Any, make_run: Any) -> None:
    upstream.will(upstream.error(503), upstream.says())

    got = await ask(make_run(User("x" * 3_000_000)))

    assert got.reply.message == Assistant("Hi.")
    assert [len(body) > 3_000_000 for body in upstream.bodies] == [True, True]


@PLAIN_AND_STREAMED
async def test_connections_are_kept_for_the_next_request(
    upstream: Any, open_model: Any, ask_model: Any, make_run: Any, stream: bool
) -> None:
    upstream.will(upstream.events(chunk("stop", content="Hi.")) if stream else upstream.says())

    async with open_model(upstream.base_url) as model:
        for _ in range(3):
            await ask_model(model, make_run(), stream=stream)

    assert len(upstream.requests) == 3
    assert len(upstream.connections) == 1


async def test_cookies_are_not_kept(upstream: Any, open_model: Any, ask_model: Any, make_run: Any) -> None:
    upstream.will(upstream.raw(b'{"choices":[{"message":{}}]}', Set_Cookie="a=b"))

    async with open_model(upstream.base_url) as model:
        for _ in range(2):
            await ask_model(model, make_run())

    assert "Cookie" not in upstream.requests[1].headers


# --- whole replies --------------------------------------------------------------------------------------------------


async def test_a_plain_reply_is_announced_and_then_read(upstream: Any, ask: Any) -> None:
    entry = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    choice = {"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": [entry]}}
    upstream.will(upstream.json({"choices": [choice | {"finish_reason": "stop"}], "usage": USAGE, "timings": TIMINGS}))

    got = await ask()

    assert got.sendings == [Sending(1)]
    assert got.reply.message == Assistant(None, (ToolCall("c1", "function", Function("read", "{}")),))
    assert got.reply.usage == Usage(
        prompt_tokens=10, completion_tokens=4, total_tokens=14, cached_tokens=6, reasoning_tokens=2
    )
    assert got.reply.finish == "tool_calls"
    assert got.reply.provider_ms == {"prompt_ms": 12.5, "predicted_n": 4}
    assert (got.reply.estimated, got.reply.first_token_ms) == (False, None)


USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 4,
    "total_tokens": 14,
    "prompt_tokens_details": {"cached_tokens": 6},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
TIMINGS = {"prompt_ms": 12.5, "predicted_n": 4, "note": "words", "warm": True}


async def test_a_streamed_reply_passes_its_text_on_and_is_then_whole(upstream: Any, ask: Any) -> None:
    usage = {"choices": [], "usage": USAGE, "timings": TIMINGS}
    upstream.will(upstream.events(chunk(role="assistant", content=""), chunk(content="Grü"), chunk("stop"), usage))

    got = await ask(stream=True)

    assert msgspec.json.decode(upstream.bodies[0])["stream_options"] == {"include_usage": True}
    assert got.texts == ["Grü"]
    assert got.reply.message == Assistant("Grü")
    assert got.reply.usage.total_tokens == 14
    assert got.reply.finish == "stop"
    assert got.reply.provider_ms == {"prompt_ms": 12.5, "predicted_n": 4}
    assert 0 <= got.reply.first_token_ms <= got.reply.ms
    assert not got.reply.estimated


async def test_a_provider_that_ignores_stream_is_read_as_it_answers(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.says("All of it."))

    got = await ask(stream=True)

    assert got.texts == ["All of it."]
    assert got.reply.message == Assistant("All of it.")


async def test_a_provider_that_always_streams_is_read_as_it_answers(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.events(chunk("stop", content="Hi.")))

    assert (await ask()).reply.message == Assistant("Hi.")


async def test_a_compressed_reply_is_read(upstream: Any, ask: Any) -> None:
    body = gzip.compress(msgspec.json.encode({"choices": [{"message": {"content": "Hi."}}]}))
    upstream.will(upstream.raw(body, Content_Encoding="gzip"))

    got = await ask()

    assert got.reply.message == Assistant("Hi.")
    assert got.reply.finish == "stop"


@PLAIN_AND_STREAMED
async def test_a_provider_that_never_ends_after_done_is_not_waited_for(upstream: Any, ask: Any, stream: bool) -> None:
    upstream.will(upstream.events(chunk("stop", content="Hi."), hang=True))

    got = await ask(stream=stream)

    assert got.reply.message == Assistant("Hi.")
    assert got.reply.ms < 2000


async def test_a_reply_that_is_whole_is_kept_when_the_connection_drops_after_it(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.events(chunk("stop", content="Hi."), done=False, drop=True))

    got = await ask(stream=True)

    assert got.sendings == [Sending(1)]
    assert got.reply.message == Assistant("Hi.")
    assert got.reply.estimated


async def test_a_failure_of_the_consumer_is_its_own(upstream: Any, open_model: Any, make_run: Any) -> None:
    upstream.will(upstream.events(chunk("stop", content="Hi.")))

    def trip(_: str) -> None:
        raise LookupError("a bug of ours")

    async with open_model(upstream.base_url) as model:
        with pytest.raises(LookupError, match="a bug of ours"):
            await model.ask(make_run(), unheard, trip)

    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("conversation", "calls", "kept"), [(None, False, False), (None, True, True), ("chat", False, True)]
)
async def test_the_transcript_of_a_run_is_kept_encoded_only_while_it_may_ask_again(
    upstream: Any, open_model: Any, ask_model: Any, make_run: Any, conversation: str | None, calls: bool, kept: bool
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    message = {"content": None, "tool_calls": [call]} if calls else {"content": "Hi."}
    upstream.will(upstream.says(choices=[{"message": message}]))

    async with open_model(upstream.base_url) as model:
        await ask_model(model, replace(make_run(), conversation=conversation))

        assert bool(model._bodies._known) == kept


# --- usage ----------------------------------------------------------------------------------------------------------


@PLAIN_AND_STREAMED
async def test_usage_that_is_missing_is_counted_here_and_marked(
    upstream: Any, ask: Any, make_run: Any, stream: bool
) -> None:
    whole = upstream.says("It is noted.", usage=None)
    upstream.will(upstream.events(chunk("stop", content="It is noted.")) if stream else whole)
    sent = make_run(tools=(READ,))

    got = await ask(sent, stream=stream)

    body = msgspec.json.decode(upstream.bodies[0])
    prompt = tokens.prompt_tokens(body["messages"], body["tools"])
    completion = tokens.completion_tokens("It is noted.", None)
    assert got.reply.estimated
    assert got.reply.usage == Usage(
        prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
    )


@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": -5}])
async def test_usage_that_says_nothing_is_counted_here(upstream: Any, ask: Any, usage: Any) -> None:
    upstream.will(upstream.says(usage=usage))

    got = await ask()

    assert got.reply.estimated
    assert got.reply.usage.prompt_tokens > 0


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ({"completion_tokens": -3, "total_tokens": 7}, (10, 0, 10, 0, 0)),
        ({"total_tokens": 1}, (10, 4, 14, 0, 0)),
        ({"total_tokens": None}, (10, 4, 14, 0, 0)),
        ({"total_tokens": 20}, (10, 4, 20, 0, 0)),
        ({"prompt_tokens": 10.0}, (10, 4, 14, 0, 0)),
        ({"prompt_tokens_details": None}, (10, 4, 14, 0, 0)),
        ({"prompt_tokens_details": {"cached_tokens": 99}}, (10, 4, 14, 10, 0)),
        ({"prompt_tokens_details": {"cached_tokens": -9}}, (10, 4, 14, 0, 0)),
        ({"completion_tokens_details": {"reasoning_tokens": 1e300}}, (10, 4, 14, 0, 4)),
        ({"total_tokens": 10**30}, (10, 4, 10**9, 0, 0)),
    ],
)
async def test_usage_that_cannot_be_is_brought_within_reason(upstream: Any, ask: Any, said: Any, read: Any) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14} | said
    upstream.will(upstream.raw(b'{"choices":[{"message":{"content":"Hi."}}],"usage":%b}' % encoded(usage)))

    got = (await ask()).reply.usage

    assert read == (
        got.prompt_tokens,
        got.completion_tokens,
        got.total_tokens,
        got.cached_tokens,
        got.reasoning_tokens,
    )


def encoded(usage: dict[str, Any]) -> bytes:
    """msgspec writes no integers above 64 bits, and providers do not use it."""
    return json.dumps(usage).encode()


# --- models ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [{"object": "list", "data": [{"id": "a"}, {"id": "b"}]}, [{"id": "a"}, {"id": "b"}]])
async def test_the_models_are_listed_in_the_order_of_the_endpoint(upstream: Any, open_model: Any, body: Any) -> None:
    upstream.will(upstream.json(body))

    async with open_model(upstream.base_url + "/", api_key="sk-1") as model:
        assert await model.models() == ["a", "b"]

    assert upstream.requests[0].path == "/v1/models"
    assert upstream.requests[0].headers["Authorization"] == "Bearer sk-1"


async def test_a_list_of_models_that_does_not_come_is_an_error_in_words(upstream: Any, open_model: Any) -> None:
    upstream.will(upstream.error(401, "Incorrect API key"), upstream.raw(b"<html>"), upstream.drop())

    async with open_model(upstream.base_url) as model:
        with pytest.raises(ProviderRefused, match=r"^the provider answered 401: Incorrect API key$"):
            await model.models()
        with pytest.raises(ProviderUnavailable, match=r"^the provider gave a broken answer: JSON is malformed"):
            await model.models()
        with pytest.raises(
            ProviderUnavailable, match=r"^the provider gave no answer: the connection dropped before it"
        ):
            await model.models()


# --- settings -------------------------------------------------------------------------------------------------------


def test_the_key_and_the_headers_are_masked_in_repr() -> None:
    settings = ProviderSettings(
        name="hosted", base_url="https://example.com/v1", api_key="sk-secret", headers={"api-key": "sk-other"}
    )

    assert "sk-" not in repr(settings)
    assert "sk-" not in f"{settings}"
    assert "api_key='***'" in repr(settings)
    assert "{'api-key': '***'}" in repr(settings)
    assert "api_key=None" in repr(ProviderSettings(name="local", base_url="http://localhost/v1"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"base_url": "localhost:8788"}, "base_url must begin with"),
        ({"base_url": "http://:0/v1"}, "base_url is 'http://:0/v1', which is no address"),
        ({"base_url": "http:///v1"}, "base_url is 'http:///v1', which names no server"),
        ({"base_url": "http://localhost:99999/v1"}, "which is no address: Port out of range"),
        ({"extra_body": {"stream": True, "model": "x"}}, "extra_body may not have model, stream: the run says"),
        (
            {"extra_body": {"stream_options": {"include_usage": False}}},
            "extra_body may not have stream_options: the run",
        ),
        (
            {"extra_body": {"max_tokens": "512"}},
            "extra_body.max_tokens must be a whole number of at least 1, not '512'",
        ),
        ({"extra_body": {"max_completion_tokens": 0}}, "extra_body.max_completion_tokens must be a whole number"),
        ({"api_key": "sk-1\n"}, "no HTTP header can carry"),
        ({"headers": {"Connection": "close", "te": "x"}}, "headers may not have Connection, te: the gateway says how"),
        ({"headers": {"Host": "a", "host": "b"}}, "headers has a name twice: it is the same in upper and lower case"),
        ({"headers": {"X One": "a"}}, "headers has 'X One', which cannot be the name of a header"),
        ({"headers": {"X-One": "a\nX-Two: b"}}, "headers.X-One has a line break or a null in it"),
        ({"read_timeout_seconds": 0}, "read_timeout_seconds"),
        ({"retries": 3}, "unknown field `retries`"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_words(wrong: Any, words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert({"name": "x", "base_url": "http://localhost/v1"} | wrong, ProviderSettings)
