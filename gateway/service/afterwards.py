"""Observers that are told a moment later, when the event loop comes round: the request that follows upon a record goes
out first, and while the provider is at work there is time to tell. Whoever asks sees no difference, since the loop
serves them behind this. Not for an observer on which the request itself depends, as it does on tracing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.core.ports import Recorded
from gateway.core.run import Run
from gateway.service.ports import Observer


class Afterwards:
    """An Observer in front of others. Each is told everything in the order in which it happened."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._loop = asyncio.get_running_loop()
        self._observers = observers
        self._untold: list[Recorded] = []

    def recorded(self, news: Sequence[Recorded]) -> None:
        if not self._untold:
            self._loop.call_soon(self._tell)
        self._untold += news

    def attempted(self, run: Run, outcome: str, *, again: bool) -> None:
        self._tell()
        for observer in self._observers:
            observer.attempted(run, outcome, again=again)

    def said(self, run: Run, text: str) -> None:
        self._tell()
        for observer in self._observers:
            observer.said(run, text)

    def _tell(self) -> None:
        untold, self._untold = self._untold, []
        for observer in self._observers:
            observer.recorded(untold)
