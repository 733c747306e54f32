"""What watchers see when they are slower than the run: every record once and in order, and the end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import pytest

from gateway.core.codec import encode
from gateway.core.events import Event, RunStopped, ToolProgress
from gateway.core.ports import Record
from gateway.core.run import Run, Status
from gateway.service import feed as feed_module
from gateway.service.feed import Delta, Feed, watch

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
STOPPED = RunStopped(status=Status.COMPLETED, reason=None, turns=1, cost_usd=Decimal(0), time=NOON)


class MemoryLog:
    """What is recorded, and published to whoever watches."""

    def __init__(self, feed: Feed) -> None:
        self.records: list[Record] = []
        self._feed = feed

    def record(self, event: Event) -> None:
        record = Record("r", len(self.records) + 1, encode(event))
        self.records.append(record)
        self._feed.recorded(THE_RUN, event, record)

    def progress(self, count: int) -> None:
        for _ in range(count):
            self.record(ToolProgress(tool_name="t", label="on it", call="r:1:0", time=NOON))

    async def append(self, *args: Any) -> None:
        raise NotImplementedError

    async def read(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Record]:
        return self.records[after:][:limit]


class JustAnId:
    id = "r"


THE_RUN = cast(Run, JustAnId())


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def log(feed: Feed) -> MemoryLog:
    return MemoryLog(feed)


@pytest.mark.parametrize("queue_max", [1, 2, 5, 1000])
@pytest.mark.parametrize("missed", [0, 1, 2, 20])
async def test_a_watcher_that_sleeps_while_its_queue_overflows_misses_nothing(
    feed: Feed, log: MemoryLog, monkeypatch: pytest.MonkeyPatch, queue_max: int, missed: int
) -> None:
    monkeypatch.setattr(feed_module, "QUEUE_MAX", queue_max)
    log.progress(1)
    watching = watch(feed, log, "r", 0, follow=False)
    seen = [await anext(watching)]
    waiting = asyncio.ensure_future(anext(watching))  # it has caught up, and listens
    await asyncio.sleep(0)

    log.progress(missed)
    log.record(STOPPED)
    async with asyncio.timeout(5):
        seen += [await waiting, *[item async for item in watching]]

    assert [item.seq for item in seen if isinstance(item, Record)] == list(range(1, missed + 3))


async def test_text_comes_between_the_records_and_is_not_read_from_the_log(feed: Feed, log: MemoryLog) -> None:
    log.progress(1)
    watching = watch(feed, log, "r", 0, follow=False)
    seen = [await anext(watching)]
    waiting = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)

    feed.said(THE_RUN, "hel")
    feed.said(THE_RUN, "lo")
    log.record(STOPPED)
    seen += [await waiting, *[item async for item in watching]]

    assert [item.text if isinstance(item, Delta) else item.seq for item in seen] == [1, "hel", "lo", 2]


async def test_text_that_crowds_records_out_loses_none_of_them(
    feed: Feed, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "QUEUE_MAX", 3)
    log.progress(1)
    watching = watch(feed, log, "r", 0, follow=False)
    await anext(watching)
    waiting = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)

    log.progress(1)
    for _ in range(10):
        feed.said(THE_RUN, "word ")
    log.record(STOPPED)
    seen = [await waiting, *[item async for item in watching]]

    assert [item.seq for item in seen if isinstance(item, Record)] == [2, 3]


async def test_whoever_leaves_is_forgotten(feed: Feed, log: MemoryLog) -> None:
    log.progress(1)
    watching = watch(feed, log, "r", 0, follow=False)
    await anext(watching)

    await watching.aclose()

    assert feed._subscriptions == {}
