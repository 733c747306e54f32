"""The whole vocabulary of the record. The log of a run is a list of these, and the trace is the same log.

On the wire a line begins with `runId`, which the codec puts in front, then the published fields in their order, then
our own. A field is only ever added, with a default; a change of meaning raises `VERSION`, and a golden log of every
version replays for ever (tests/core/golden).
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, get_args

from msgspec import Struct, field

from gateway.core.messages import Assistant, Message
from gateway.core.pricing import ZERO, Price
from gateway.core.run import (
    Approval,
    InDoubt,
    Interruption,
    Limits,
    Parent,
    Policies,
    Source,
    Status,
    StopRules,
    ToolSpec,
)

VERSION = 1


class RunStarted(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="run_started"):
    """Pins everything that the run depends on, so that a configuration changed later does not change it."""

    agent: str
    model: str
    provider: str = "default"
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    limits: Limits
    policies: Policies
    price: Price
    stream: bool = False
    parent: Parent | None = None
    stop_rules: StopRules = StopRules()
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    params: dict[str, Any] = field(default_factory=dict[str, Any])
    conversation: str | None = None
    version: int
    time: datetime


class TurnStart(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="turn_start"):
    """A request is about to be sent. If no reply is ever recorded, the estimate stays in the unconfirmed cost.

    `attempt` is above 1 when the reply to an earlier attempt was lost after it may have been billed.
    """

    turn: int
    attempt: int = 1
    estimate_usd: Decimal = field(name="estimateUsd")
    unconfirmed_usd: Decimal = field(name="unconfirmedCostUsd")
    time: datetime


class Check(Struct, frozen=True):
    """What became of one requested call on arrival: its parsed arguments, or why it cannot run."""

    args: dict[str, Any] | None
    problem: str | None = None


class Turn(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="turn"):
    """A reply, its tokens and its cost. `estimated` says that the provider reported no usage and we counted.

    `max_tokens` is the cap that a hard budget put on the reply; `fault` says that the provider billed more than the
    most that it could.
    """

    turn: int
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cost_usd: Decimal = field(name="costUsd")
    finish: str | None
    turn_cost_usd: Decimal = field(name="turnCostUsd")
    unconfirmed_usd: Decimal = field(name="unconfirmedCostUsd", default=ZERO)
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False
    max_tokens: int | None = field(name="maxTokens", default=None)
    fault: str | None = None
    message: Assistant
    checks: tuple[Check, ...] = ()
    ms: float
    first_token_ms: float | None = field(name="firstTokenMs", default=None)
    provider_ms: dict[str, float] | None = field(name="providerMs", default=None)
    time: datetime


class ToolStart(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="tool_start"):
    """The intent: durable before a tool that writes is run. `reserved_usd` is what a subagent may spend."""

    tool_name: str = field(name="toolName")
    args: str
    provider_id: str = field(name="callId")
    call: str
    reserved_usd: Decimal = field(name="reservedUsd", default=ZERO)
    time: datetime


class ToolProgress(Struct, frozen=True, kw_only=True, tag="tool_progress"):
    tool_name: str = field(name="toolName")
    label: str
    call: str
    time: datetime


class ToolResult(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="tool_result"):
    """The answer to a call, in the words that the model reads. Only a `tool` or `settled` source was an execution.

    `child_cost_usd` is what the run of a subagent cost; it counts as this run's.
    """

    tool_name: str = field(name="toolName")
    ms: int
    ok: bool
    provider_id: str = field(name="callId")
    call: str
    content: str
    source: Source = "tool"
    error: str | None = None
    permanent: bool = False
    child_cost_usd: Decimal = field(name="childCostUsd", default=ZERO)
    child_unconfirmed_usd: Decimal = field(name="childUnconfirmedCostUsd", default=ZERO)
    time: datetime


class ApprovalRequired(Struct, frozen=True, kw_only=True, tag="approval_required"):
    tool_name: str = field(name="toolName")
    args: str
    provider_id: str = field(name="callId")
    call: str
    time: datetime


class VerdictGiven(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="verdict"):
    tool_name: str = field(name="toolName")
    approved: bool
    reason: str | None = None
    provider_id: str = field(name="callId")
    call: str
    time: datetime


class Said(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client sent to go on: the first `keep` messages of the transcript stay, and `messages` follow. None is no
    change."""

    keep: int
    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] | None = None
    params: dict[str, Any] | None = None
    model: str | None = None
    price: Price | None = None
    stream: bool | None = None


TakenUp = Literal["recovery", "handover"]
"""Why a run goes on in another process than the one that drove it: that one died, or it was closed in good order."""

TAKEN_UP: tuple[TakenUp, ...] = get_args(TakenUp)


class RunResumed(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="run_resumed"):
    """The run is driven again: a command, or another process that has taken it up. With a `message` the client went on
    with it."""

    cause: Literal["resume", "verdict", "settlement", "message"] | TakenUp
    limits: Limits | None = None
    said: Said | None = None
    time: datetime


class RunStopped(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="run_stopped"):
    """One of the five ways out, with what is needed to go on."""

    status: Status
    reason: str | None
    turns: int
    cost_usd: Decimal = field(name="costUsd")
    interruption: Interruption | None = None
    inner: tuple[Approval | InDoubt, ...] = ()
    error: str | None = None
    unconfirmed_usd: Decimal = field(name="unconfirmedCostUsd", default=ZERO)
    time: datetime


Event = (
    RunStarted
    | TurnStart
    | Turn
    | ToolStart
    | ToolProgress
    | ToolResult
    | ApprovalRequired
    | VerdictGiven
    | RunResumed
    | RunStopped
)
