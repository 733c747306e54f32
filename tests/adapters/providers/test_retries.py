"""What is tried again, how long is waited, what may have been billed, and in which words it ends."""

from __future__ import annotations

import asyncio
import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from gateway.adapters.providers.failures import retry_after_of
from gateway.core.errors import ProviderRefused, ProviderUnavailable
from gateway.core.messages import Assistant
from gateway.core.ports import Sending

PLAIN_AND_STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


# --- statuses -------------------------------------------------------------------------------------------------------


@PLAIN_AND_STREAMED
@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_a_status_that_passes_is_tried_again(upstream: Any, ask: Any, status: int, stream: bool) -> None:
    upstream.will(upstream.error(status, "Come back later."), upstream.says())

    got = await ask(stream=stream)

    assert got.reply.message == Assistant("Hi.")
    assert got.sendings == [Sending(1), Sending(2, after=f"the provider answered {status}: Come back later")]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_status_that_stays_is_refused_in_the_words_of_the_provider(
    upstream: Any, ask: Any, status: int
) -> None:
    upstream.will(upstream.error(status, "Incorrect API key"))

    got = await ask()

    assert isinstance(got.error, ProviderRefused)
    assert str(got.error) == f"the provider answered {status}: Incorrect API key"
    assert (got.error.status, got.error.attempts, got.error.lost) == (status, 1, False)
    assert got.sendings == [Sending(1)]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error":{"message":"No such model."}}', "No such model"),
        (b'{"error":"No such model"}', "No such model"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"message":"no Route\\n matched"}', "no Route matched"),
        (b"<html>\n  <h1>404</h1>", "<html> <h1>404</h1>"),
        (b'{"detail":[{"loc":["body"]}]}', '{"detail":[{"loc":["body"]}]}'),
        (b"x" * 100_000, "x" * 200),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
async def test_whatever_the_body_of_an_error_is_it_is_quoted(upstream: Any, ask: Any, body: bytes, words: str) -> None:
    upstream.will(upstream.raw(body, status=404))

    assert str((await ask()).error) == f"the provider answered 404: {words}"


async def test_an_error_without_a_body_is_its_status(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.raw(b"", status=404))

    assert str((await ask()).error) == "the provider answered 404"


async def test_retries_that_are_used_up_end_in_the_words_of_the_last_failure(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.error(503, "Overloaded.", Retry_After="0.001"))

    got = await ask()

    assert isinstance(got.error, ProviderUnavailable)
    assert str(got.error) == "the provider answered 503 to 4 attempts: Overloaded"
    assert (got.error.attempts, got.error.status, got.error.lost) == (4, 503, False)
    assert got.error.retry_after_seconds == 0.001
    assert [sending.attempt for sending in got.sendings] == [1, 2, 3, 4]


async def test_failures_of_different_kinds_are_not_called_the_same(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.error(503), upstream.drop())

    got = await ask(retries_max=1)

    assert str(got.error) == "the provider gave no answer to the last of 2 attempts: the connection dropped before it"


async def test_no_retries_is_one_attempt(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.error(500, "oops"))

    got = await ask(retries_max=0)

    assert str(got.error) == "the provider answered 500: oops"
    assert len(upstream.requests) == 1


async def test_the_provider_may_say_that_a_retry_cannot_help(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.error(503, x_should_retry="false"))

    got = await ask()

    assert isinstance(got.error, ProviderUnavailable)
    assert len(upstream.requests) == 1


async def test_the_provider_may_say_that_a_retry_helps(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.error(400, x_should_retry="true"), upstream.says())

    assert (await ask()).reply.message == Assistant("Hi.")


async def test_a_quota_that_is_used_up_is_not_waited_for(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.error(429, "You exceeded your current quota.", code="insufficient_quota"))

    got = await ask()

    assert isinstance(got.error, ProviderUnavailable)
    assert len(upstream.requests) == 1


async def test_a_redirect_is_not_followed(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.raw(b"", status=307, Location="http://elsewhere.test/"))

    got = await ask()

    assert isinstance(got.error, ProviderRefused)
    assert str(got.error) == ("the provider answered 307: a redirect to http://elsewhere.test/, which is not followed")


# --- waits ----------------------------------------------------------------------------------------------------------


async def test_the_wait_is_at_least_what_the_provider_asks_for(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.error(429, Retry_After="0.2"), upstream.says())
    started = time.perf_counter()

    await ask()

    assert 0.19 < time.perf_counter() - started < 1


async def test_a_wait_that_is_too_long_ends_the_retries_at_once(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.error(429, "Slow down", Retry_After="120"))

    got = await ask()

    assert isinstance(got.error, ProviderUnavailable)
    assert str(got.error) == (
        "the provider answered 429 and asks to wait 120 s, longer than the 60 s that are waited: Slow down"
    )
    assert (got.error.retry_after_seconds, len(upstream.requests)) == (120, 1)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("2", 2), ("0.5", 0.5), ("-1", 0), ("nan", None), ("inf", None), ("soon", None), ("", None), ("1e3", 1000)],
)
def test_retry_after_in_seconds(value: str, seconds: float | None) -> None:
    assert retry_after_of({"Retry-After": value}) == seconds


def test_retry_after_as_a_date() -> None:
    later = datetime.now(UTC) + timedelta(seconds=30)

    assert retry_after_of({"Retry-After": format_datetime(later, usegmt=True)}) == pytest.approx(30, abs=1.5)
    assert retry_after_of({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert retry_after_of({"Retry-After": "Wed, 99 Oct 2015 07:28:00 GMT"}) is None
    assert retry_after_of({}) is None


# --- replies that are lost ------------------------------------------------------------------------------------------

CUT = b'{"choices":[{"message":{"content":"The answer'


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("drop", "gave no answer: the connection dropped before it"),
        ("half", "gave a broken answer: Input data was truncated"),
        ("short", "gave no answer: the connection dropped in the middle of it"),
        ("no_json", "gave a broken answer: JSON is malformed"),
        ("no_object", "gave a broken answer: Expected `object`, got `array`"),
        ("no_choices", "gave a broken answer: it has no choices"),
        ("empty", "gave a broken answer: Input data was truncated"),
    ],
)
async def test_a_plain_reply_that_was_sent_for_and_did_not_come_whole_is_lost_and_tried_again(
    upstream: Any, ask: Any, name: str, words: str
) -> None:
    broken = {
        "drop": upstream.drop(),
        "half": upstream.raw(CUT),
        "short": upstream.stream(CUT, drop=True, content_type="application/json"),
        "no_json": upstream.raw(b"<html>"),
        "no_object": upstream.raw(b"[]"),
        "no_choices": upstream.json({"choices": [], "usage": {"prompt_tokens": 3}}),
        "empty": upstream.raw(b""),
    }
    upstream.will(broken[name], upstream.says())

    got = await ask()

    assert got.reply.message == Assistant("Hi.")
    assert got.sendings[1].lost
    assert got.sendings[1].after.startswith(f"the provider {words}")


@pytest.mark.parametrize("name", ["truncated", "dropped", "malformed", "no_choices", "error"])
async def test_a_stream_that_did_not_come_whole_is_lost_and_tried_again(upstream: Any, ask: Any, name: str) -> None:
    begun = chunk(content="The answer")
    broken = {
        "truncated": upstream.events(begun, done=False),
        "dropped": upstream.events(begun, done=False, drop=True),
        "malformed": upstream.stream(b'data: {"choices":[{"delta\n\ndata: [DONE]\n\n'),
        "no_choices": upstream.events(),
        "error": upstream.events(begun, {"error": {"message": "GPU lost", "code": 500}}, chunk("stop")),
    }
    upstream.will(broken[name], upstream.events(chunk("stop", content="Hi.")))

    got = await ask(stream=True)

    assert got.reply.message == Assistant("Hi.")
    assert [(sending.attempt, sending.lost) for sending in got.sendings] == [(1, False), (2, True)]


async def test_the_last_attempt_says_whether_it_was_lost(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.drop())

    got = await ask(retries_max=1)

    assert isinstance(got.error, ProviderUnavailable)
    assert (got.error.lost, got.error.status, got.error.attempts) == (True, None, 2)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ({"message": "no", "code": 503}, False),
        ({"message": "no", "type": "server_error"}, False),
        ({"message": "no", "code": "rate_limit_exceeded"}, False),
        ({"message": "no", "code": 429}, False),
        ("no", False),
        ({"message": "no", "code": 400}, True),
        ({"message": "no", "code": "401"}, True),
        ({"message": "no", "type": "invalid_request_error"}, True),
        ({"message": "no", "code": "context_length_exceeded"}, True),
    ],
)
async def test_an_error_inside_of_a_reply_is_judged_by_its_code(
    upstream: Any, ask: Any, error: Any, refused: bool, stream: bool
) -> None:
    upstream.will(upstream.events({"error": error}) if stream else upstream.json({"error": error}))

    got = await ask(stream=stream, retries_max=0)

    assert type(got.error) is (ProviderRefused if refused else ProviderUnavailable)
    assert str(got.error) == "the provider reported an error: no"
    assert got.error.lost is not refused


async def test_an_event_called_error_is_an_error(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.stream(b'event: error\ndata: {"message":"overloaded"}\n\n'))

    assert str((await ask(stream=True, retries_max=0)).error) == "the provider reported an error: overloaded"


async def test_a_provider_that_cannot_be_reached_has_lost_nothing(
    open_model: Any, ask_model: Any, make_run: Any
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        async with open_model(url, retries_max=1) as model:
            got = await ask_model(model, make_run())

    assert isinstance(got.error, ProviderUnavailable)
    assert str(got.error).startswith("the provider gave no answer to 2 attempts: cannot connect to 127.0.0.1")
    assert (got.error.lost, got.sendings[1].lost) == (False, False)


async def test_a_name_that_does_not_resolve_has_lost_nothing(open_model: Any, ask_model: Any, make_run: Any) -> None:
    async with open_model("http://nowhere.invalid/v1", retries_max=0) as model:
        got = await ask_model(model, make_run())

    assert isinstance(got.error, ProviderUnavailable)
    assert not got.error.lost


async def test_a_provider_that_does_not_speak_tls_has_lost_nothing(
    upstream: Any, open_model: Any, ask_model: Any, make_run: Any
) -> None:
    async with open_model(upstream.base_url.replace("http:", "https:"), retries_max=0) as model:
        got = await ask_model(model, make_run())

    assert isinstance(got.error, ProviderUnavailable)
    assert not got.error.lost


@pytest.mark.parametrize("timeout", ["read_timeout_seconds", "total_timeout_seconds"])
@PLAIN_AND_STREAMED
async def test_silence_is_not_waited_for_longer_than_allowed(
    upstream: Any, ask: Any, timeout: str, stream: bool
) -> None:
    begun = upstream.events(chunk(content="The"), done=False, hang=True)
    upstream.will(begun if stream else upstream.hang(), upstream.says())

    got = await ask(stream=stream, **{timeout: 0.1})

    assert got.reply.message == Assistant("Hi.")
    assert got.sendings[1].lost
    await asyncio.wait_for(upstream.disconnected.wait(), 0.2)


async def test_a_connection_that_the_server_closed_between_requests_is_lost_and_tried_again(
    upstream: Any, open_model: Any, ask_model: Any, make_run: Any
) -> None:
    upstream.will(upstream.says("One."), upstream.drop(), upstream.says("Two."))

    async with open_model(upstream.base_url) as model:
        first = await ask_model(model, make_run())
        second = await ask_model(model, make_run())

    assert [got.reply.message.content for got in (first, second)] == ["One.", "Two."]
    assert [sending.lost for sending in second.sendings] == [False, True]


@PLAIN_AND_STREAMED
async def test_a_reply_that_is_too_large_is_refused(upstream: Any, ask: Any, stream: bool) -> None:
    text = "x" * 2000
    upstream.will(upstream.events(*[chunk(content=text)] * 5) if stream else upstream.says(text * 5))

    got = await ask(stream=stream, reply_bytes_max=4000)

    assert isinstance(got.error, ProviderRefused)
    assert str(got.error) == "the provider gave too large an answer: more than the 4000 bytes that are read"
    assert (got.error.lost, len(upstream.requests)) == (True, 1)
