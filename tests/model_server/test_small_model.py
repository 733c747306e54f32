"""The whole server on the smallest real weights: the answers are poor, and everything else is real."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from model_server.registry import SMALL
from model_server.scheduler import Limits
from tests.model_server.conftest import Client
from tests.model_server.real import LIMITS, chosen, hosted

LONG = "The river runs past the old mill and under the bridge. " * 60  # some 800 tokens, many chunks


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with hosted(chosen(SMALL)) as client:
        yield client


async def held(client: Client) -> tuple[dict[int, int], dict[int, int]]:
    """What llama.cpp holds of each sequence, and what the scheduler thinks that it holds."""
    engine: Any = client.service.engine
    scheduler = client.service._worker._scheduler  # type: ignore[union-attr]
    await asyncio.sleep(0.3)  # operations of what ended last are carried out with the next batch
    account = {number: len(line.tokens) for number, line in scheduler.cells.lines.items()}
    return {number: engine.held(number) for number in account}, account


async def test_a_greedy_reply_is_the_same_every_time_and_the_second_time_it_is_cached(client: Client) -> None:
    first, again = [await client.chat("Say hello.", max_tokens=12) for _ in range(2)]

    assert first.message["content"]
    assert again.message == first.message
    assert again.json["usage"]["prompt_tokens_details"]["cached_tokens"] == first.json["usage"]["prompt_tokens"] - 1


async def test_what_is_forgotten_is_computed_again_and_nothing_of_it_is_left(client: Client) -> None:
    first = await client.chat("Say hello.", max_tokens=12)
    client.service.forget()
    again = await client.chat("Say hello.", max_tokens=12)

    assert again.json["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert again.message == first.message
    really, account = await held(client)
    assert really == account
    assert len(account) == 1


async def test_a_reply_goes_on_past_its_end_where_the_client_wants_that(client: Client) -> None:
    asked = await client.chat("Say hello.", max_tokens=80, ignore_eos=True)

    assert asked.json["usage"]["completion_tokens"] == 80
    assert asked.json["choices"][0]["finish_reason"] == "length"


async def test_a_seed_makes_a_drawn_reply_repeatable(client: Client) -> None:
    async def drawn(seed: int) -> str:
        return (await client.chat("Tell me a story.", max_tokens=16, temperature=1.2, seed=seed)).message["content"]

    one, again, other = await drawn(1), await drawn(1), await drawn(2)

    assert one == again != other


async def test_a_schema_is_kept_even_by_a_model_that_does_not_understand_it(client: Client) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "people": {"type": "integer"}},
        "required": ["city", "people"],
    }
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}
    for temperature in (0, 1.5):
        got = await client.chat("Name a city.", response_format=form, temperature=temperature, seed=3, max_tokens=200)
        place = msgspec.json.decode(got.message["content"])
        assert list(place) == ["city", "people"]
        assert isinstance(place["people"], int)


async def test_many_at_once_are_all_answered_and_leave_the_account_right(client: Client) -> None:
    async def one(number: int) -> int:
        got = await client.chat(f"Count from {number}.", max_tokens=3 + number, stream=bool(number % 2))
        return got.status

    statuses = await asyncio.gather(*(one(number) for number in range(LIMITS.sequences + LIMITS.queue)))

    assert set(statuses) == {200}
    really, account = await held(client)
    assert really == account
    assert await client.metric("sequences_active") == 0
    assert await client.metric("batches_failed_total") == 0


async def test_requests_that_come_together_share_the_prompt_they_have_in_common(client: Client) -> None:
    system = {"role": "system", "content": LONG[:1500]}
    got = await asyncio.gather(
        *(client.chat([system, {"role": "user", "content": f"Question {n}?"}], max_tokens=2) for n in range(4))
    )
    computed = sum(one.json["timings"]["prefill_tokens"] for one in got)
    prompts = [one.json["usage"]["prompt_tokens"] for one in got]

    assert min(prompts) > 250
    assert computed < max(prompts) + 4 * 30


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_while_its_prompt_is_computed_frees_its_sequence_within_a_chunk(
    client: Client, stream: bool
) -> None:
    body = {"messages": [{"role": "user", "content": f"{stream} {LONG}"}], "stream": stream}
    async with aiohttp.ClientSession() as session:
        asked = asyncio.create_task(session.post(client.address + "/v1/chat/completions", json=body))
        await client.until("sequences_active", 1)
        batches = await client.metric("batches_total")
        asked.cancel()
    await client.until("sequences_active", 0)

    assert await client.metric("batches_total") - batches <= 2  # the one that was being computed, and one more at most
    assert await client.metric("generated_tokens_total") == 0
    await client.until('requests_total{outcome="cancelled"}', 1)


async def test_a_client_that_goes_away_in_the_middle_of_a_reply_stops_it(client: Client) -> None:
    body = {"messages": [{"role": "user", "content": "Tell me everything."}], "stream": True}
    async with aiohttp.ClientSession() as session:
        response = await session.post(client.address + "/v1/chat/completions", json=body)
        await response.content.readuntil(b"\n\n")
        response.close()
    await client.until("sequences_active", 0)
    computed = await client.metric("computed_tokens_total")
    await asyncio.sleep(0.3)

    assert await client.metric("computed_tokens_total") == computed


async def test_an_overflow_is_refused_before_any_computing_and_harms_nobody(client: Client) -> None:
    running = asyncio.create_task(client.chat("Tell me a story.", max_tokens=40))
    await client.until("sequences_active", 1)
    refused = await client.chat(LONG * 8)

    assert refused.json["error"]["code"] == "context_length_exceeded"
    assert (await running).status == 200
    assert await client.metric("prompt_tokens_total") < 100


async def test_a_full_queue_refuses_and_those_who_wait_are_served() -> None:
    limits = Limits(cells=2048, sequences=1, kept=2, queue=1, batch_tokens=64)
    async with hosted(chosen(SMALL), limits) as client:
        waiting = [asyncio.create_task(client.chat(f"{n} {LONG[:800]}", max_tokens=8)) for n in range(2)]
        await client.until("queue_length", 1)
        refused = await client.chat("one more")

        assert (refused.status, refused.json["error"]["code"]) == (429, "queue_full")
        assert int(refused.headers["Retry-After"]) >= 1
        assert [got.status for got in await asyncio.gather(*waiting)] == [200, 200]


async def test_a_memory_too_small_for_all_replies_at_once_still_ends_them_all() -> None:
    limits = Limits(cells=256, sequences=3, kept=2, queue=8, batch_tokens=64)
    async with hosted(chosen(SMALL), limits) as client:
        got = await asyncio.gather(*(client.chat(f"Story {n}.", max_tokens=120) for n in range(4)))

        assert {one.status for one in got} == {200}
        assert await client.metric("batches_failed_total") == 0
        really, account = await held(client)
        assert really == account
