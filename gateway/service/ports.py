"""The service's dependencies, wired once in app.py and passed down by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.core.events import Event
from gateway.core.ports import Clock, EventLog, Model, Record, Toolbox
from gateway.core.run import Run
from gateway.core.stopping import RULES, Rule


class Observer(Protocol):
    """Whoever wants to know what happened, after it is durable: the feed, the metrics. Must not block or raise."""

    def recorded(self, run: Run, event: Event, record: Record) -> None: ...

    def attempted(self, run: Run, outcome: str, *, again: bool) -> None:
        """One request to the provider ended: `ok`, `refused`, `unavailable` or `lost`. `again`: it is sent again."""
        ...

    def said(self, run: Run, text: str) -> None:
        """A piece of the reply's text, which is never recorded."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    log: EventLog
    model: Model
    toolbox: Toolbox
    clock: Clock
    observers: Sequence[Observer] = ()
    rules: Sequence[Rule] = RULES
