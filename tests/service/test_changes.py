"""What the watchers of a list are told when they are slower than the runs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gateway.core.codec import encode
from gateway.core.errors import Busy
from gateway.core.events import ToolProgress
from gateway.core.ports import Record
from gateway.core.pricing import Price
from gateway.core.run import Limits, Policies, Run
from gateway.service import changes
from gateway.service.changes import Changes

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EVENT = ToolProgress(tool_name="t", label="on it", call="r:1:0", time=NOON)


def run_of(run_id: str, turns: int = 0) -> Run:
    return Run(
        id=run_id, agent="a", model="m", tools=(), limits=Limits(), policies=Policies(), price=Price(free=True),
        messages=(), created_at=NOON, updated_at=NOON, driven_since=NOON, turns=turns,
    )  # fmt: skip


def happens(feed: Changes, run_id: str, turns: int = 0) -> None:
    feed.recorded([(run_of(run_id, turns), EVENT, Record(run_id, 1, encode(EVENT)))])


async def test_a_slow_watcher_reads_the_newest_state_of_each_run_once() -> None:
    feed = Changes()
    with feed.watch() as watcher:
        for turns in range(5):
            happens(feed, "r1", turns)
        happens(feed, "r2")
        happens(feed, "r1", 9)

        taken = await watcher.take()

    assert [(entry.id, entry.turns) for entry in taken.runs] == [("r2", 0), ("r1", 9)]
    assert not taken.missed


async def test_a_watcher_that_is_too_slow_is_told_that_something_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "UNREAD_MAX", 3)
    feed = Changes()
    with feed.watch() as watcher:
        for number in range(5):
            happens(feed, f"r{number}")
        first = await watcher.take()
        happens(feed, "r9")
        second = await watcher.take()

    assert ([entry.id for entry in first.runs], first.missed) == (["r2", "r3", "r4"], True)
    assert ([entry.id for entry in second.runs], second.missed) == (["r9"], False)


async def test_places_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "WATCHERS_MAX", 1)
    feed = Changes()
    for _ in range(2):
        with feed.watch(), pytest.raises(Busy), feed.watch():
            pass
    happens(feed, "r")
