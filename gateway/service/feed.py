"""Passes on what happens in runs to whoever watches. A hint, not the truth: a watcher that misses something reads it
from the log, so a slow one costs a bounded queue and nothing else."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from gateway.core.codec import kind_of
from gateway.core.errors import Busy
from gateway.core.ports import EventLog, Record, Recorded
from gateway.core.run import Run, Status

UNREAD_MAX = 1000
MERGED_FROM = 100
CHARS_MAX = 4 * 1024 * 1024
SUBSCRIPTIONS_MAX = 4096
PAGE_EVENTS = 500


class Delta(Struct, frozen=True):
    """A piece of the reply's text: shown, never recorded, never replayed."""

    run_id: str
    text: str


Item = Record | Delta


class Pieces:
    """Text of one run, as it came."""

    def __init__(self, delta: Delta) -> None:
        self.run_id = delta.run_id
        self.texts = [delta.text]

    def joined(self) -> Delta:
        return Delta(self.run_id, "".join(self.texts))


class Subscription:
    """What one watcher has not read yet. Where it is far behind, text that follows text is put together, so that no
    reply loses its beginning however many pieces of it come at once. Beyond that the oldest goes."""

    def __init__(self) -> None:
        self._items: deque[Record | Pieces] = deque()
        self._chars = 0
        self._news = asyncio.Event()

    def put(self, item: Item) -> None:
        if isinstance(item, Delta):
            self._put_text(item)
        else:
            self._items.append(item)
        while len(self._items) > UNREAD_MAX or (self._chars > CHARS_MAX and len(self._items) > 1):
            self._take()  # a gap is read from the log, but only once something newer has come
        self._news.set()

    async def get(self) -> Item:
        while not self._items:
            self._news.clear()
            await self._news.wait()
        item = self._take()
        return item.joined() if isinstance(item, Pieces) else item

    def _put_text(self, delta: Delta) -> None:
        self._chars += len(delta.text)
        last = self._items[-1] if len(self._items) >= MERGED_FROM else None
        if isinstance(last, Pieces):
            last.texts.append(delta.text)
        else:
            self._items.append(Pieces(delta))

    def _take(self) -> Record | Pieces:
        item = self._items.popleft()
        if isinstance(item, Pieces):
            self._chars -= sum(map(len, item.texts))
        return item


class Feed:
    """An Observer that hands records and deltas to the subscribers of a run."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._count = 0

    def recorded(self, news: Sequence[Recorded]) -> None:
        if self._subscriptions:
            for run, _, record in news:
                self._publish(run.id, record)

    def said(self, run: Run, text: str) -> None:
        self._publish(run.id, Delta(run.id, text))

    def attempted(self, run: Run, outcome: str, *, again: bool) -> None:
        return

    def _publish(self, run_id: str, item: Item) -> None:
        for subscription in self._subscriptions.get(run_id, ()):
            subscription.put(item)

    @contextmanager
    def subscribe(self, run_id: str) -> Iterator[Subscription]:
        """Raises Busy when as many watch as the gateway tells: whoever is about to start a run asks before that."""
        if self._count >= SUBSCRIPTIONS_MAX:
            raise Busy(f"{SUBSCRIPTIONS_MAX} clients watch runs already: try again.", retry_after_seconds=5.0)
        subscription = Subscription()
        self._subscriptions.setdefault(run_id, set()).add(subscription)
        self._count += 1
        try:
            yield subscription
        finally:
            self._count -= 1
            watchers = self._subscriptions[run_id]
            watchers.discard(subscription)
            if not watchers:
                del self._subscriptions[run_id]


async def history(log: EventLog, run_id: str, after: int, until: int) -> AsyncGenerator[Record, None]:
    """The recorded events above `after`, up to `until`, a page at a time."""
    while after < until and (records := await log.read(run_id, after, min(PAGE_EVENTS, until - after))):
        for record in records:
            yield record
        after = records[-1].seq


async def watch(
    subscription: Subscription, log: EventLog, run: Run, after: int, *, follow: bool
) -> AsyncGenerator[Item, None]:
    """Records above `after` and, once caught up, what happens now. Ends when the run has stopped, unless `follow`.

    `run` is as it was just after the subscription began: what is newer comes through it, with the text between, and is
    not read ahead of it. Each record comes once and in order, whatever was dropped on the way: a gap is read from the
    log.
    """
    last, stopped = min(after, run.seq), run.status is not Status.RUNNING
    async for record in history(log, run.id, last, run.seq):
        last = record.seq
        yield record
    while follow or not stopped:
        item = await subscription.get()
        if isinstance(item, Delta):
            yield item
            continue
        async for record in caught_up(log, item, last):
            last, stopped = record.seq, is_stop(record)
            yield record


async def caught_up(log: EventLog, record: Record, last: int) -> AsyncGenerator[Record, None]:
    """The record, and before it those that the watcher has missed; nothing if it has been seen."""
    async for missed in history(log, record.run_id, last, record.seq - 1):
        yield missed
    if record.seq > last:
        yield record


def is_stop(record: Record) -> bool:
    return kind_of(record.body) == "run_stopped"
