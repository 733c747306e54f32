"""A thousand requests to the smallest model, a tenth of them aborted: memory stays flat, and nothing leaks.

Not part of `make test`, since it takes minutes: `make soak-model`. `SOAK_REQUESTS` changes the number.
"""

import asyncio
import os
import random
from contextlib import suppress

import psutil
import pytest

from model_server.registry import SMALL
from model_server.scheduler import Limits
from tests.model_server.conftest import Client
from tests.model_server.real import chosen, hosted

REQUESTS = int(os.environ.get("SOAK_REQUESTS", "1000"))
AT_ONCE = 8
GROWTH_BYTES_MAX = 32 * 1024 * 1024
LIMITS = Limits(cells=1024, sequences=4, kept=8, queue=16, batch_tokens=128)
WORDS = ["river", "mill", "bridge", "stone", "water", "light", "evening", "road", "field", "tower"]


async def one(client: Client, number: int, turn: asyncio.Semaphore) -> int:
    """A request of some kind; every tenth is given up after a moment."""
    pick = random.Random(number)
    text = " ".join(pick.choices(WORDS, k=pick.choice([3, 40, 150])))
    async with turn:
        asked = asyncio.create_task(client.chat(text, max_tokens=pick.randint(1, 12), stream=pick.random() < 0.5))
        if number % 10:
            return (await asked).status
        await asyncio.sleep(pick.uniform(0, 0.3))
        asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked
        return 0


async def some(client: Client, numbers: range) -> list[int]:
    turn = asyncio.Semaphore(AT_ONCE)
    return await asyncio.gather(*(one(client, number, turn) for number in numbers))


@pytest.mark.timeout(3600)
async def test_a_thousand_requests_leave_memory_flat_and_no_sequence_behind() -> None:
    async with hosted(chosen(SMALL), LIMITS) as client:
        await some(client, range(REQUESTS // 10))
        before = psutil.Process().memory_info().rss
        statuses = await some(client, range(REQUESTS // 10, REQUESTS))
        growth = psutil.Process().memory_info().rss - before
        await client.until("sequences_active", 0)
        await client.chat("The last one.", max_tokens=1)

        engine, cells = client.service.engine, client.service._worker._scheduler.cells  # type: ignore[union-attr]
        account = {line.id: len(line.tokens) for line in cells.lines.values()}
        really = {number: engine.held(number) for number in account}  # type: ignore[attr-defined]
        print(f"{len(statuses)} requests, {statuses.count(0)} aborted, memory grew by {growth / 1e6:.1f} MB")  # noqa: T201

        assert set(statuses) == {0, 200}
        assert really == account
        assert not client.service._inboxes
        assert await client.metric("batches_failed_total") == 0
        assert growth < GROWTH_BYTES_MAX
