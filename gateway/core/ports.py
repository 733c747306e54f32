"""What the loop needs from outside, as small protocols. Each adapter in gateway/adapters satisfies one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Protocol

from msgspec import Struct

from gateway.core.events import Event
from gateway.core.messages import Assistant, task_of
from gateway.core.pricing import ZERO, Usage
from gateway.core.run import Parent, Run, Status, ToolSpec, reason_of

Clock = Callable[[], datetime]
"""The time, in UTC."""


# --- the model ------------------------------------------------------------------------------------------------------


class Sending(Struct, frozen=True):
    """An attempt is about to be sent.

    `lost`: the attempt before this one was accepted and its reply never arrived whole, so it may be billed.
    `after` says in words why the attempt before failed; None for the first.
    """

    attempt: int
    lost: bool = False
    after: str | None = None


class Reply(Struct, frozen=True, kw_only=True):
    """A whole reply. `ms` is the wait for it; `estimated`: the provider reported no usage, and the adapter counted."""

    message: Assistant
    usage: Usage
    finish: str | None
    ms: float
    estimated: bool = False
    first_token_ms: float | None = None
    provider_ms: dict[str, float] | None = None


Announce = Callable[[Sending], Awaitable[None]]
"""Records what it must of an attempt before that is sent. What it raises ends the asking."""


class Model(Protocol):
    async def ask(
        self, run: Run, announce: Announce, on_delta: Callable[[str], None] | None, max_tokens: int | None = None
    ) -> Reply:
        """Send the run's transcript and tools; each attempt is announced first. The reply has at most `max_tokens`,
        reasoning included.

        With `on_delta` the reply is streamed and each piece of its text is passed on as it arrives. Raises
        ProviderRefused, or ProviderUnavailable when the retries are used up.
        """
        ...


# --- tools ----------------------------------------------------------------------------------------------------------


class ToolContext(Protocol):
    """What a tool is given besides its arguments."""

    @property
    def idempotency_key(self) -> str:
        """Equal for every execution of one call, so that an effect can be recognised as done."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether Stop was pressed. A tool in a thread must look at this; an async one is cancelled."""
        ...

    def progress(self, label: str) -> None:
        """Tell how far the work is. May be called from any thread."""
        ...


class Toolbox(Protocol):
    async def use(self, run: Run, spec: ToolSpec, args: dict[str, Any], ctx: ToolContext) -> str:
        """Run one tool and return what the model shall read. Raises ToolFailed in words for the model."""
        ...


# --- the record -----------------------------------------------------------------------------------------------------


class Record(Struct, frozen=True):
    """One event as it is stored: `body` is the line that `codec.encode` made of it; `seq` counts from 1 in each run."""

    run_id: str
    seq: int
    body: bytes


Recorded = tuple[Run, Event, Record]
"""The run as it is behind an event, the event, and how it is stored."""


class Entry(Struct, frozen=True, kw_only=True):
    """The index row of a run: what lists show. `task` is the beginning of what the user asked; `delegated_cost_usd` is
    the part of the cost that subagents' runs have in rows of their own."""

    id: str
    agent: str
    model: str
    status: Status
    reason: str | None
    turns: int
    tool_runs: int
    cost_usd: Decimal
    unconfirmed_cost_usd: Decimal
    created_at: datetime
    updated_at: datetime
    parent: Parent | None = None
    delegated_cost_usd: Decimal = ZERO
    task: str = ""


def entry_of(run: Run) -> Entry:
    return Entry(
        id=run.id,
        agent=run.agent,
        model=run.model,
        status=run.status,
        reason=reason_of(run.interruption),
        turns=run.turns,
        tool_runs=run.tool_runs,
        cost_usd=run.cost_usd,
        unconfirmed_cost_usd=run.unconfirmed_cost_usd,
        created_at=run.created_at,
        updated_at=run.updated_at,
        parent=run.parent,
        delegated_cost_usd=run.delegated_cost_usd,
        task=task_of(run.messages),
    )


class Key(Struct, frozen=True):
    """A client's Idempotency-Key and the fingerprint of the request that it came with."""

    key: str
    fingerprint: str


class Claim(Struct, frozen=True):
    """What a key stands for already: the run, and the answer given then, once there is one."""

    fingerprint: str
    run_id: str
    status: int | None = None
    body: bytes | None = None


class EventLog(Protocol):
    async def append(self, records: Sequence[Record], entry: Entry | None, key: Key | None = None) -> None:
        """Make the records, the index row and (with a run's first record) the key durable, all or nothing.

        `entry` is None where the events change nothing that lists show. Raises Unavailable if the store cannot
        write, WrongState if (run, seq) is taken or the key was claimed by somebody else.
        """
        ...

    async def read(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Record]:
        """The records of a run with `seq` above `after`, in order. Empty for an unknown run."""
        ...


class Index(Protocol):
    async def page(
        self, *, status: Status | None, agent: str | None, text: str | None = None, before: str | None, limit: int
    ) -> tuple[list[Entry], str | None]:
        """Runs, newest first, and the cursor of the next page. Raises BadRequest for a cursor that is not ours.

        With a `text`, only those in whose id, agent, model, status, reason, parent or task each of its words occurs,
        whatever the case. So many runs are looked through at a time: a page may hold fewer than the limit, or none,
        and have a cursor all the same.
        """
        ...

    async def running(self) -> list[str]:
        """The ids of the runs whose status is `running`, oldest first."""
        ...

    def all_taken_up(self) -> None:
        """Whatever was running is driven again: when the store is closed now, it is left in good order."""
        ...

    async def count(self, reason: str) -> int:
        """How many runs have stopped for this reason and wait."""
        ...


class Answers(Protocol):
    """The answers given under an Idempotency-Key."""

    async def claimed(self, key: str) -> Claim | None: ...

    async def keep(self, key: str, status: int, body: bytes) -> None: ...


# --- figures over many runs -----------------------------------------------------------------------------------------


class Group(Struct, frozen=True, kw_only=True):
    """Runs that began on one day (UTC) and are alike in what is counted. `own_cost_usd` is what they spent themselves:
    what their subagents spent is in those runs' own groups, so that nothing is counted twice."""

    day: date
    agent: str
    model: str
    status: Status
    reason: str | None
    is_child: bool
    runs: int
    turns: int
    own_cost_usd: Decimal


class Spread(Struct, frozen=True):
    """How many runs took how many turns; and what runs cost, with their subagents: p50, p90, p99 by nearest rank and
    the most, or nothing where there are no runs. Subagents' runs are not among them."""

    turns: dict[int, int]
    costs: list[Decimal]


class Stats(Protocol):
    """Figures over the runs that began at `since` or later. Money is summed exactly."""

    async def groups(self, since: datetime) -> list[Group]: ...

    async def spread(self, since: datetime) -> Spread: ...

    async def most_expensive(self, since: datetime, limit: int) -> list[Entry]:
        """The runs that cost most, dearest first; not those of subagents."""
        ...
