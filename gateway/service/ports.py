"""The service's dependencies, wired once in app.py and passed down by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from msgspec import Struct

from gateway.core.calls import Execute
from gateway.core.errors import ToolFailed
from gateway.core.ports import Clock, EventLog, Model, Recorded, Toolbox
from gateway.core.pricing import ZERO
from gateway.core.run import Approval, InDoubt, Run
from gateway.core.stopping import RULES, Rule


class Observer(Protocol):
    """Whoever wants to know what happened, after it is durable: the feed, the metrics. Must not block or raise."""

    def recorded(self, news: Sequence[Recorded]) -> None:
        """What was written, in order: what is told together may be of several writes, and of several runs."""
        ...

    def attempted(self, run: Run, outcome: str, *, again: bool) -> None:
        """One request to the provider ended: `ok`, `refused`, `unavailable` or `lost`. `again`: it is sent again."""
        ...

    def said(self, run: Run, text: str) -> None:
        """A piece of the reply's text, which is never recorded."""
        ...


class ToolAnswer(Struct, frozen=True, kw_only=True):
    """What came of a call: the words, or why it failed; and what it cost, where another run answered it."""

    content: str
    error: str | None = None
    permanent: bool = False
    cost_usd: Decimal = ZERO
    unconfirmed_cost_usd: Decimal = ZERO


class Suspended(Exception):
    """A subagent cannot go on without a person, and so neither can its parent. Empty: the gateway is shutting down."""

    def __init__(self, inner: tuple[Approval | InDoubt, ...]) -> None:
        super().__init__("waits for a person")
        self.inner = inner


class AnswersCalls(Protocol):
    async def answer(self, parent: Run, step: Execute) -> ToolAnswer:
        """What a subagent's run answered. Raises Suspended if it waits for a person, ToolFailed in words."""
        ...


class NoSubagents:
    """For a gateway, or a test, without agents that are tools."""

    async def answer(self, parent: Run, step: Execute) -> ToolAnswer:
        raise ToolFailed(f"the agent {step.spec.subagent} is no longer configured.", permanent=True)


NO_SUBAGENTS = NoSubagents()


@dataclass(frozen=True, slots=True)
class Ports:
    log: EventLog
    model: Model
    toolbox: Toolbox
    clock: Clock
    observers: Sequence[Observer] = ()
    rules: Sequence[Rule] = RULES
    subagents: AnswersCalls = NO_SUBAGENTS
