"""What becomes of a run whose client goes away, or asks again, while it is still being written down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from gateway.adapters.store.sqlite import SqliteStore
from tests.edge.openai.talking import chat
from tests.serving import Gateway, Serve, eventually

SSE = {"Accept": "text/event-stream"}


class Held:
    """While held, nothing is written; whoever wants to write waits."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.released = asyncio.Event()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held, append = Held(), SqliteStore.append

    async def appended(store: SqliteStore, *args: Any) -> None:
        held.asked.set()
        await held.released.wait()
        await append(store, *args)

    monkeypatch.setattr(SqliteStore, "append", appended)
    yield held
    held.released.set()


async def given_up(held: Held, request: Any) -> None:
    """The request reaches the store, and then its client goes away."""
    held.asked.clear()
    asking = asyncio.create_task(request)
    await held.asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def ended(gateway: Gateway, runs: int) -> list[dict[str, Any]]:
    """All runs of the store, once so many have stopped."""

    async def there() -> bool:
        page = (await gateway.get("/v1/runs")).json["runs"]
        return len(page) >= runs and all(run["status"] != "running" for run in page)

    await eventually(there, f"{runs} runs have stopped")
    return (await gateway.get("/v1/runs")).json["runs"]


async def test_a_run_whose_client_gave_up_while_it_began_is_carried_out(gateway: Gateway, held: Held) -> None:
    await given_up(held, gateway.start("talks"))
    held.released.set()

    assert [run["status"] for run in await ended(gateway, 1)] == ["completed"]


@pytest.mark.parametrize("way", ["wait", "stream", "chat"])
async def test_it_is_cancelled_if_the_client_had_asked_for_that(gateway: Gateway, held: Held, way: str) -> None:
    slow, gone = "talks@latency=5000", {"X-Gateway-Cancel-On-Disconnect": "true"}
    match way:
        case "wait":
            request = gateway.start(slow, cancel_on_disconnect=True)
        case "stream":
            request = gateway.start(slow, wait=0, headers=SSE, cancel_on_disconnect=True)
        case _:
            request = chat(gateway, headers=gone)
    await given_up(held, request)
    await asyncio.sleep(0.05)  # for the gateway to hear of it
    held.released.set()

    assert [run["reason"] for run in await ended(gateway, 1)] == ["cancelled"]


async def test_a_conversation_goes_on_whose_first_request_was_given_up(gateway: Gateway, held: Held) -> None:
    headers = {"X-Gateway-Conversation": "ticket"}
    await given_up(held, chat(gateway, "talks", headers=headers))
    again = asyncio.create_task(chat(gateway, "talks", headers=headers))
    await asyncio.sleep(0.05)
    held.released.set()

    assert (await again).status == 200
    assert gateway.stored_runs() == 1


async def test_a_retry_of_a_library_joins_a_run_that_is_still_to_begin(gateway: Gateway, held: Held) -> None:
    await given_up(held, chat(gateway))
    again = asyncio.create_task(chat(gateway, headers={"X-Stainless-Retry-Count": "1"}))
    await asyncio.sleep(0.05)
    held.released.set()

    assert (await again).status == 200
    assert gateway.stored_runs() == 1


async def test_a_shutdown_tells_nobody_that_there_is_no_run_where_there_is_one(serve: Serve, held: Held) -> None:
    async with aiohttp.ClientSession() as session:
        async with serve(server={"shutdown_grace_seconds": 0.01}) as gateway:
            client = Gateway(gateway.url, session, gateway.config)
            starting = asyncio.create_task(client.start("talks@latency=5000", wait=0))
            await held.asked.wait()
            asyncio.get_running_loop().call_later(0.3, held.released.set)
        got = await starting

    assert (got.status, got.json["status"]) == (201, "running")
    assert gateway.stored_runs() == 1


async def test_a_run_id_that_is_no_text_is_a_run_that_there_is_not(gateway: Gateway) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = b'{"model":"files","messages":[{"role":"user","content":"x"}]}'
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(body)}\r\nX-Run-Id: "
    writer.write(head.encode() + b"\xff\r\n\r\n" + body)

    assert (await reader.readline()).split()[1] == b"404"
    writer.close()


@pytest.mark.parametrize("turns", ["1e999999999", "1e5000", "99999999999", "1.5", "nan"])
async def test_a_number_of_turns_that_nobody_could_count_is_refused_at_once(gateway: Gateway, turns: str) -> None:
    got = await chat(gateway, headers={"X-Gateway-Max-Turns": turns})

    assert (got.status, got.json["error"]["param"]) == (400, "X-Gateway-Max-Turns")


@pytest.mark.parametrize("usd", ["1e-99999999", "0." + "0" * 40 + "1", "1e9", "0", "-1"])
async def test_an_amount_that_nobody_could_read_is_refused_in_few_words(gateway: Gateway, usd: str) -> None:
    started = await gateway.start("talks", limits={"max_budget_usd": usd})
    run = await gateway.run("runaway", limits={"max_turns": 1})
    resumed = await gateway.command(run["id"], "resume", {"limits": {"max_turns": 9, "max_budget_usd": usd}})

    for got in (started, resumed):
        assert (got.status, got.json["error"]["param"]) == (400, "limits.max_budget_usd")
        assert len(got.body) < 1000
