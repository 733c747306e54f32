"""A consumer that leaves early, and many at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from gateway.core.messages import Assistant
from gateway.core.ports import Sending

PLAIN_AND_STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@PLAIN_AND_STREAMED
async def test_a_cancelled_request_is_hung_up_at_once(
    upstream: Any, open_model: Any, ask_model: Any, make_run: Any, stream: bool
) -> None:
    begun = upstream.events(chunk(content="The"), done=False, hang=True)
    upstream.will(begun if stream else upstream.hang())

    async with open_model(upstream.base_url) as model:
        task = asyncio.create_task(ask_model(model, make_run(), stream=stream))
        await asyncio.wait_for(upstream.waiting.wait(), 2)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await asyncio.wait_for(upstream.disconnected.wait(), 0.2)

    assert task.cancelled()
    assert len(upstream.requests) == 1


async def test_a_request_cancelled_in_the_middle_of_its_reply_leaves_no_half_read_connection(
    upstream: Any, open_model: Any, ask_model: Any, make_run: Any
) -> None:
    upstream.will(upstream.events(chunk(content="The"), done=False, hang=True), upstream.says())

    async with open_model(upstream.base_url) as model:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await ask_model(model, make_run(), stream=True)
        got = await ask_model(model, make_run(), stream=True)

    assert got.reply.message == Assistant("Hi.")
    assert len(upstream.connections) == 2


async def test_a_consumer_that_stops_before_the_next_attempt_sends_no_more(
    upstream: Any, open_model: Any, make_run: Any
) -> None:
    upstream.will(upstream.error(503))

    async def stop_at_the_second(sending: Sending) -> None:
        if sending.attempt == 2:
            raise LookupError("not again")

    async with open_model(upstream.base_url) as model:
        with pytest.raises(LookupError, match="not again"):
            await model.ask(make_run(), stop_at_the_second, None)

    assert len(upstream.requests) == 1


async def test_a_wait_between_attempts_can_be_cancelled(upstream: Any, ask: Any) -> None:
    upstream.will(upstream.error(503, Retry_After="30"))

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await ask()


async def test_many_requests_at_once_keep_their_attempts_apart(
    upstream: Any, open_model: Any, ask_model: Any, make_run: Any
) -> None:
    async def flaky(request: Any) -> Any:
        first = request.headers["X-Attempt"] == "0"
        return await (upstream.error(503) if first else upstream.says())(request)

    upstream.will(flaky)
    async with open_model(upstream.base_url) as model:
        all_got = await asyncio.gather(*(ask_model(model, make_run(id=f"r{number}")) for number in range(20)))

    assert all(len(got.sendings) == 2 and got.reply for got in all_got)
    assert len(upstream.requests) == 40
