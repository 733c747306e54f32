"""What watchers see when they are slower than the run: every record once and in order, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from gateway.core.codec import encode
from gateway.core.errors import Busy
from gateway.core.events import Event, RunStopped, ToolProgress
from gateway.core.ports import Record
from gateway.core.pricing import Price
from gateway.core.run import Limits, Policies, Run, Status
from gateway.service import feed as feed_module
from gateway.service.feed import Delta, Feed, Item, watch

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
        self._feed.recorded([(THE_RUN, event, record)])

    def progress(self, count: int) -> None:
        for _ in range(count):
            self.record(ToolProgress(tool_name="t", label="on it", call="r:1:0", time=NOON))

    async def append(self, *args: Any) -> None:
        raise NotImplementedError

    async def read(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Record]:
        return self.records[after:][:limit]


def run_of(records: int, status: Status = Status.RUNNING) -> Run:
    return Run(
        id="r", agent="a", model="m", tools=(), limits=Limits(), policies=Policies(), price=Price(free=True),
        messages=(), created_at=NOON, updated_at=NOON, driven_since=NOON, seq=records, status=status,
    )  # fmt: skip


THE_RUN = run_of(0)


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
    monkeypatch.setattr(feed_module, "UNREAD_MAX", queue_max)
    log.progress(1)
    with feed.subscribe("r") as subscription:
        watching = watch(subscription, log, run_of(1), 0, follow=False)
        log.progress(missed)
        log.record(STOPPED)

        seen = await in_time(watching)

    assert [item.seq for item in seen if isinstance(item, Record)] == list(range(1, missed + 3))


async def in_time(watching: AsyncGenerator[Item, None]) -> list[Item]:
    async with asyncio.timeout(5):
        return [item async for item in watching]


async def test_text_comes_between_the_records_however_far_the_run_is_when_they_are_read(
    feed: Feed, log: MemoryLog
) -> None:
    log.progress(1)
    with feed.subscribe("r") as subscription:
        watching = watch(subscription, log, run_of(1), 0, follow=False)
        feed.said(THE_RUN, "hel")
        feed.said(THE_RUN, "lo")
        log.record(STOPPED)

        seen = await in_time(watching)

    assert [item.text if isinstance(item, Delta) else item.seq for item in seen] == [1, "hel", "lo", 2]


async def test_text_that_crowds_records_out_loses_none_of_them(
    feed: Feed, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "UNREAD_MAX", 3)
    log.progress(1)
    with feed.subscribe("r") as subscription:
        watching = watch(subscription, log, run_of(1), 0, follow=False)
        log.progress(1)
        for _ in range(10):
            feed.said(THE_RUN, "word ")
        log.record(STOPPED)

        seen = await in_time(watching)

    assert [item.seq for item in seen if isinstance(item, Record)] == [1, 2, 3]


@pytest.mark.parametrize("pieces", [10, 150, 5000])
async def test_no_text_is_lost_however_many_pieces_of_it_come_before_anybody_reads(
    feed: Feed, log: MemoryLog, pieces: int
) -> None:
    with feed.subscribe("r") as subscription:
        watching = watch(subscription, log, run_of(0), 0, follow=False)
        for number in range(pieces):
            feed.said(THE_RUN, f"{number} ")
        log.record(STOPPED)

        seen = await in_time(watching)

    assert "".join(item.text for item in seen if isinstance(item, Delta)) == "".join(f"{n} " for n in range(pieces))
    assert len(seen) <= feed_module.MERGED_FROM + 2


async def test_a_watcher_that_reads_nothing_is_kept_no_more_text_than_so_much(
    feed: Feed, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "CHARS_MAX", 100)
    with feed.subscribe("r") as subscription:
        watching = watch(subscription, log, run_of(0), 0, follow=False)
        for _ in range(50):
            feed.said(THE_RUN, "ten chars ")
        log.record(STOPPED)

        seen = await in_time(watching)

    assert sum(len(item.text) for item in seen if isinstance(item, Delta)) == 100
    assert [item.seq for item in seen if isinstance(item, Record)] == [1]


async def test_what_was_recorded_between_the_subscription_and_the_look_comes_once(feed: Feed, log: MemoryLog) -> None:
    log.progress(1)
    with feed.subscribe("r") as subscription:
        log.progress(2)
        watching = watch(subscription, log, run_of(3), 1, follow=False)
        log.record(STOPPED)

        seen = await in_time(watching)

    assert [item.seq for item in seen if isinstance(item, Record)] == [2, 3, 4]


@pytest.mark.parametrize(("after", "seqs"), [(0, [1, 2]), (1, [2]), (2, []), (9, [])])
async def test_of_a_run_that_has_stopped_there_is_what_was_recorded(
    feed: Feed, log: MemoryLog, after: int, seqs: list[int]
) -> None:
    log.progress(1)
    log.record(STOPPED)
    with feed.subscribe("r") as subscription:
        seen = await in_time(watch(subscription, log, run_of(2, Status.COMPLETED), after, follow=False))

    assert [item.seq for item in seen if isinstance(item, Record)] == seqs


async def test_whoever_leaves_is_forgotten(feed: Feed) -> None:
    with feed.subscribe("r"), feed.subscribe("r"):
        pass

    assert feed._subscriptions == {}


async def test_only_so_many_watch_and_places_are_given_back(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "SUBSCRIPTIONS_MAX", 2)
    for _ in range(2):
        with feed.subscribe("r"), feed.subscribe("s"):
            for run_id in ("r", "t"):
                with pytest.raises(Busy, match="2 clients watch runs already: try again"), feed.subscribe(run_id):
                    pass

    assert feed._subscriptions == {}
