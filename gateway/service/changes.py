"""Says which runs have changed to whoever watches a list of them. A hint, not the truth: a watcher that was told that
something is missing, or that comes back, reads the list again.

A watcher that is slow costs one entry a run, and of at most so many runs: what is newer replaces what was not read yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from gateway.core.errors import Busy
from gateway.core.ports import Entry, Recorded, entry_of
from gateway.core.run import Run

UNREAD_MAX = 500
WATCHERS_MAX = 256
PAUSE_SECONDS = 0.15
"""Between two batches: a run under way changes many times a second, and nobody reads that fast."""


class ChangedRuns(Struct, frozen=True):
    """The newest state of each run that changed. `missed`: some are left out, so read the list again."""

    runs: list[Entry]
    missed: bool


class Watcher:
    """What one watcher has not read yet."""

    def __init__(self) -> None:
        self._unread: dict[str, Entry] = {}
        self._missed = False
        self._news = asyncio.Event()

    def put(self, entry: Entry) -> None:
        self._unread.pop(entry.id, None)
        if len(self._unread) >= UNREAD_MAX:
            self._unread.pop(next(iter(self._unread)))
            self._missed = True
        self._unread[entry.id] = entry
        self._news.set()

    async def take(self) -> ChangedRuns:
        """What is unread, once there is something; the runs that changed last are last."""
        await self._news.wait()
        taken = ChangedRuns(list(self._unread.values()), self._missed)
        self._unread, self._missed = {}, False
        self._news.clear()
        return taken


class Changes:
    """An Observer that tells every watcher of every run."""

    def __init__(self) -> None:
        self._watchers: set[Watcher] = set()

    def recorded(self, news: Sequence[Recorded]) -> None:
        if not self._watchers:
            return
        for entry in [entry_of(run) for run, _, _ in news]:
            for watcher in self._watchers:
                watcher.put(entry)

    def said(self, run: Run, text: str) -> None:
        return

    def attempted(self, run: Run, outcome: str, *, again: bool) -> None:
        return

    @contextmanager
    def watch(self) -> Iterator[Watcher]:
        """Raises Busy when as many watch as the gateway tells."""
        if len(self._watchers) >= WATCHERS_MAX:
            raise Busy(f"{WATCHERS_MAX} clients watch the runs already: try again.", retry_after_seconds=5.0)
        watcher = Watcher()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
