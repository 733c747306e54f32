"""Idempotency-Key: carried out once, answered again with the same bytes."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest

from tests.serving import QUESTION, Gateway, Serve, refused

KEY = {"Idempotency-Key": "order-1"}
SSE = {"Accept": "text/event-stream"}


async def test_the_same_request_again_gets_the_same_bytes(gateway: Gateway) -> None:
    first = await gateway.start("plan", headers=KEY)

    again = await gateway.start("plan", headers=KEY)

    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert all(again.headers[name] == first.headers[name] for name in ("Location", "X-Run-Id"))
    assert "Idempotent-Replayed" not in first.headers
    assert gateway.stored_runs() == 1


async def test_the_answer_outlives_the_process(serve: Serve) -> None:
    async with serve() as gateway:
        first = await gateway.start("plan", headers=KEY)
    async with serve() as gateway:
        again = await gateway.start("plan", headers=KEY)

    assert (again.status, again.body) == (first.status, first.body)


@pytest.mark.parametrize("change", [{"model": "once"}, {"wait": 5}])
async def test_a_key_that_came_with_another_request_is_refused(gateway: Gateway, change: dict[str, object]) -> None:
    await gateway.start("plan", headers=KEY)

    got = await gateway.start(**{"model": "plan", "headers": KEY, **change})  # type: ignore[arg-type]

    refused(got, 422, "idempotency_key_reused", param="Idempotency-Key")
    assert gateway.stored_runs() == 1


async def test_a_request_in_flight_is_not_carried_out_again(gateway: Gateway) -> None:
    first = asyncio.create_task(gateway.start("talks@latency=1000", headers=KEY))
    await gateway.begun()

    second = await gateway.start("talks@latency=1000", headers=KEY)

    refused(second, 409, "idempotency_key_in_flight")
    assert second.headers["Retry-After"] == "1"
    assert (await first).json["status"] == "completed"
    assert gateway.stored_runs() == 1


async def test_after_a_restart_without_an_answer_the_request_joins_its_run(serve: Serve) -> None:
    async with serve() as gateway:
        run = (await gateway.start("plan", headers=KEY)).json
        path = gateway.config.store.path
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE keys SET status = NULL, body = NULL")  # as if the process had died before answering

    async with serve() as gateway:
        again = await gateway.start("plan", headers=KEY)

        assert again.status == 201
        assert again.json["id"] == run["id"]
        assert again.json["status"] == "completed"
        assert gateway.stored_runs() == 1


async def test_an_answer_that_was_not_the_last_word_is_not_kept(gateway: Gateway) -> None:
    first = await gateway.start("plan@latency=150", headers=KEY, wait=0.1)
    assert first.status == 202
    await gateway.look(first.json["id"], wait=20)

    again = await gateway.start("plan@latency=150", headers=KEY, wait=0.1)

    assert (again.status, again.json["id"], again.json["status"]) == (201, first.json["id"], "completed")


async def test_a_request_that_was_refused_may_be_mended_under_the_same_key(gateway: Gateway) -> None:
    refused(await gateway.start("plan", headers=KEY, agent="nobody"), 422)

    assert (await gateway.start("plan", headers=KEY)).json["status"] == "completed"


async def test_a_streamed_start_with_a_known_key_streams_the_same_run(gateway: Gateway) -> None:
    first = await gateway.start("plan", headers={**KEY, **SSE}, wait=0)

    again = await gateway.start("plan", headers={**KEY, **SSE}, wait=0)

    assert again.headers["X-Run-Id"] == first.headers["X-Run-Id"]
    assert [event.id for event in again.sse] == [event.id for event in first.sse if event.id]
    assert gateway.stored_runs() == 1


async def test_streamed_starts_with_one_key_at_the_same_time_are_one_run(gateway: Gateway) -> None:
    got = await asyncio.gather(*(gateway.start("plan", headers={**KEY, **SSE}, wait=0) for _ in range(8)))

    assert [each.status for each in got] == [200] * 8
    assert len({each.headers["X-Run-Id"] for each in got}) == 1
    assert all(each.sse[-1].event == "run_stopped" for each in got)
    assert gateway.stored_runs() == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"], ids=["empty", "long", "tab"])
async def test_an_unusable_key_is_refused(gateway: Gateway, key: str) -> None:
    got = await gateway.post("/v1/runs", {"input": QUESTION}, headers={"Idempotency-Key": key})

    refused(got, 400, param="Idempotency-Key")
    assert gateway.stored_runs() == 0
