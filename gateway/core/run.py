"""What a run is: plain, frozen data. `loop.apply` is the only place where one changes."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from gateway.core.messages import Message
from gateway.core.pricing import ZERO, Price, Usage

DEFAULT_MAX_TURNS = 20
MAX_TURNS_MAX = 1_000_000

RUN_FIELDS = frozenset({"model", "messages", "tools", "stream", "stream_options"})
"""Fields of a request to the provider that a run fills in itself: nobody else may set them."""


class Status(StrEnum):
    """Running, or one of the five ways out."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    MAX_TURNS_EXCEEDED = "max_turns_exceeded"
    BUDGET_EXCEEDED = "budget_exceeded"
    INTERRUPTED = "interrupted"


# --- what a run is pinned to when it starts -------------------------------------------------------------------------


class ToolSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as the model and the loop see it; the code behind it is an adapter.

    `cacheable`: the same arguments give the same answer until something writes. `idempotent`: takes an idempotency key,
    so that running one call twice has one effect. `client_side`: the client runs it and posts the output. `subagent`: a
    run of that agent answers the call and may spend up to `budget_usd`. `strict`: the provider holds the model to the
    schema. `quick`: waits for nothing, so that a call is done in less time than it takes to write down that it begins;
    of one that only reads, the two are written together.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    read_only: bool = False
    needs_approval: bool = False
    idempotent: bool = False
    cacheable: bool = False
    client_side: bool = False
    subagent: str | None = None
    budget_usd: Decimal | None = None
    timeout_seconds: float | None = None
    strict: bool | None = None
    quick: bool = False


class Limits(Struct, frozen=True, kw_only=True, omit_defaults=False, forbid_unknown_fields=True):
    """The caps of a run; null is none. `deadline_seconds` counts the time in which the run is driven, not waits.

    budget_mode: `soft` checks before each call and goes over by at most one turn; `hard` never goes over, at the price
    of replies that may be cut short.
    """

    max_turns: Annotated[int, Meta(ge=1, le=MAX_TURNS_MAX)] | None = DEFAULT_MAX_TURNS
    max_budget_usd: Decimal | None = None
    budget_mode: Literal["soft", "hard"] = "soft"
    deadline_seconds: Annotated[float, Meta(gt=0)] | None = None


class Policies(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How tool calls are treated.

    dedupe: whether a repeated call is answered from the log. tool_errors: what the model reads of an error.
    on_permanent_error: what an error that no wording fixes does. approval: what a call that needs one gets.
    refusal: what the model reads of a refused call (`silent` exists to show why it is wrong).
    """

    dedupe: Literal["off", "read_only", "all"] = "read_only"
    tool_errors: Literal["worded", "vague", "fatal"] = "worded"
    on_permanent_error: Literal["tell_once", "stop", "tell_model"] = "tell_once"
    approval: Literal["ask", "auto", "deny"] = "ask"
    refusal: Literal["worded", "silent"] = "worded"


class StopRules(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Rules beyond the caps, all off by default. They count from the last resume, so a resumed run gets a new chance.

    repeated_calls: stop when the same call is asked for so many times; repeated_failures: when it has failed so many
    times; after_tools: once one of these has succeeded; predicates: names of the operator's own rules.
    """

    repeated_calls: Annotated[int, Meta(ge=2, le=1000)] | None = None
    repeated_failures: Annotated[int, Meta(ge=1, le=1000)] | None = None
    after_tools: tuple[str, ...] = ()
    predicates: tuple[str, ...] = ()


class Tally(Struct, frozen=True):
    """What the stop rules count, since the last resume. Kept only for rules that are on. The operator's own rules count
    for themselves, so after a resume they are asked again only once there is a turn beyond `resumed_at_turn`."""

    resumed_at_turn: int = -1
    asked: dict[str, int] = field(default_factory=dict[str, int])
    failed: dict[str, int] = field(default_factory=dict[str, int])
    succeeded: tuple[str, ...] = ()


# --- the calls of the current turn ----------------------------------------------------------------------------------

Source = Literal["tool", "cache", "refusal", "invalid", "settled", "client"]
"""Where an answer came from: an execution, the log, a refusal, a call that cannot run, a person, the client."""


class Verdict(Struct, frozen=True, omit_defaults=True):
    approved: bool
    reason: str | None = None


class Outcome(Struct, frozen=True):
    ok: bool
    permanent: bool
    source: Source


class Call(Struct, frozen=True, kw_only=True):
    """One tool call of the last turn, and how far it has come.

    `id` is `run:turn:index` and unique for ever; `provider_id` is whatever the provider said and may come again.
    `args` are the parsed arguments, or None where `problem` says in words why the call cannot run.
    """

    id: str
    provider_id: str
    tool: str
    arguments: str
    args: dict[str, Any] | None
    problem: str | None = None
    announced: bool = False
    started: bool = False
    reserved_usd: Decimal = ZERO
    verdict: Verdict | None = None
    outcome: Outcome | None = None


# --- why a run stopped ----------------------------------------------------------------------------------------------


class Approval(Struct, frozen=True, omit_defaults=True, tag="approval"):
    """A call waits for a person. `args` are parsed; `args_hash` lets a verdict name exactly what was seen. `path` leads
    from this run to the subagent's run whose call it is; empty for a call of this run."""

    call_id: str
    tool_name: str
    args: dict[str, Any]
    args_hash: str
    path: tuple[str, ...] = ()


class MaxTurns(Struct, frozen=True, tag="max_turns"):
    max_turns: int


class MaxBudget(Struct, frozen=True, tag="max_budget"):
    max_budget_usd: Decimal
    spent_usd: Decimal


class Cancelled(Struct, frozen=True, tag="cancelled"):
    reason: str


class ToolOutputs(Struct, frozen=True, tag="tool_outputs"):
    """The client runs these calls and posts what came back."""

    call_ids: tuple[str, ...]


class InDoubt(Struct, frozen=True, omit_defaults=True, tag="in_doubt"):
    """A call that writes had begun and its result was never recorded: it may have happened or not. `path` as above."""

    call_id: str
    tool_name: str
    args: dict[str, Any]
    path: tuple[str, ...] = ()


class Deadline(Struct, frozen=True, tag="deadline"):
    deadline_seconds: float


class StopRule(Struct, frozen=True, tag="stop_rule"):
    rule: str
    sentence: str


class ProviderDown(Struct, frozen=True, tag="provider_unavailable"):
    message: str


Interruption = Approval | MaxTurns | MaxBudget | Cancelled | ToolOutputs | InDoubt | Deadline | StopRule | ProviderDown


def reason_of(interruption: Interruption | None) -> str | None:
    """The type of an interruption: what traces and metrics call the reason."""
    return None if interruption is None else str(interruption.__struct_config__.tag)


# --- the run --------------------------------------------------------------------------------------------------------


class Parent(Struct, frozen=True):
    """The call of another run that this run answers, and how deep below a run of a person's it is."""

    run_id: str
    call_id: str
    depth: int = 1


class Run(Struct, frozen=True, kw_only=True):
    """The state of a run: the fold of its events.

    `params` are fields of the request to the provider beyond those that we know. `conversation`: the client keeps a
    loop of its own, and each of its requests is a turn: it runs all calls, and may go on after an answer. `resumed_by`
    is what made it go on last, recoveries aside. Of `cost_usd`, `delegated_cost_usd` was spent by subagents' runs.
    """

    id: str
    agent: str
    model: str
    provider: str = "default"
    tools: tuple[ToolSpec, ...]
    limits: Limits
    policies: Policies
    price: Price
    messages: tuple[Message, ...]
    created_at: datetime
    updated_at: datetime
    driven_since: datetime
    driven: timedelta = timedelta()
    stream: bool = False
    parent: Parent | None = None
    stop_rules: StopRules = StopRules()
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    params: dict[str, Any] = field(default_factory=dict[str, Any])
    conversation: str | None = None

    status: Status = Status.RUNNING
    interruption: Interruption | None = None
    output: str = ""
    error: str | None = None

    seq: int = 0
    turns: int = 0
    tool_runs: int = 0
    usage: Usage = Usage()
    last_usage: Usage = Usage()
    finish: str | None = None
    cost_usd: Decimal = ZERO
    delegated_cost_usd: Decimal = ZERO
    unconfirmed_cost_usd: Decimal = ZERO
    cut_at_usd: Decimal | None = None
    calls: tuple[Call, ...] = ()
    inner: tuple[Approval | InDoubt, ...] = ()
    approved: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    remembered: dict[str, str] = field(default_factory=dict[str, str])
    permanent_failures: dict[str, int] = field(default_factory=dict[str, int])
    tally: Tally = Tally()
    recoveries: int = 0
    resumed_by: str | None = None

    @property
    def reserved_usd(self) -> Decimal:
        """What the subagents under way may still spend."""
        return sum((call.reserved_usd for call in self.calls if call.outcome is None), ZERO)

    @property
    def spent_usd(self) -> Decimal:
        """What budgets are checked against: the confirmed cost, what may have been billed besides, and what subagents
        may spend."""
        return self.cost_usd + self.unconfirmed_cost_usd + self.reserved_usd

    @property
    def reason(self) -> str | None:
        return reason_of(self.interruption)

    def tool(self, name: str) -> ToolSpec | None:
        for tool in self.tools:
            if tool.name == name:
                return tool
        return None
