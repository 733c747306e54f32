"""The bodies of the HTTP API. Requests refuse unknown fields; responses only ever gain some."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.core.calls import waiting_for_verdict
from gateway.core.codec import args_hash
from gateway.core.commands import RaisedLimits, ToolOutput
from gateway.core.explain import what_next, why
from gateway.core.messages import Message
from gateway.core.ports import Entry
from gateway.core.pricing import Usage
from gateway.core.run import Approval, Call, Interruption, Limits, Parent, Policies, Run, Status, StopRules
from gateway.service.agents import ChangedPolicies, ChangedStopRules, FunctionDefinition, StartRun, ToolDefinition

__all__ = [
    "ChangedPolicies",
    "ChangedStopRules",
    "FunctionDefinition",
    "RaisedLimits",
    "StartRun",
    "ToolDefinition",
    "ToolOutput",
]

Reason = Annotated[str, Meta(max_length=2000)]


class GiveVerdict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A verdict on one call. `args_hash` says which arguments were seen; others are refused."""

    call_id: str
    reason: Reason | None = None
    args_hash: str | None = None


class Resume(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limits: RaisedLimits = RaisedLimits()


class Cancel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Reason = "cancelled by the client"


class PostOutputs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    outputs: Annotated[list[ToolOutput], Meta(min_length=1, max_length=256)]


class PendingApproval(Struct, frozen=True, kw_only=True):
    """A call that waits for a verdict, which this run takes. `path` leads to the subagent's run whose call it is; it is
    empty for a call of this run, and only then `provider_call_id` is there."""

    call_id: str
    provider_call_id: str | None = None
    tool_name: str
    args: dict[str, Any]
    args_hash: str
    path: tuple[str, ...] = ()


class RunBody(Struct, frozen=True, kw_only=True):
    """A whole run. `why` and `next` say in words why it stopped and what to do about it."""

    id: str
    status: Status
    reason: str | None
    why: str | None
    next: str | None
    agent: str
    model: str
    output: str
    error: str | None
    interruption: Interruption | None
    pending_approvals: list[PendingApproval]
    turns: int
    tool_runs: int
    usage: Usage
    cost_usd: Decimal
    unconfirmed_cost_usd: Decimal
    limits: Limits
    policies: Policies
    stop_rules: StopRules
    approved: tuple[str, ...]
    parent: Parent | None
    metadata: dict[str, str]
    created_at: datetime
    updated_at: datetime
    events: int
    messages: tuple[Message, ...]


class RunPage(Struct, frozen=True, kw_only=True):
    """Runs, newest first. `next_cursor` fetches the next page; null on the last."""

    runs: list[Entry]
    next_cursor: str | None


class AgentBody(Struct, frozen=True, kw_only=True):
    """An agent as configured, and what a run of it is held to unless its order says otherwise."""

    name: str
    about: str | None
    model: str | None
    tools: list[str]
    limits: Limits
    policies: Policies
    stop_rules: StopRules


class AgentList(Struct, frozen=True, kw_only=True):
    """The first agent is the default one."""

    agents: list[AgentBody]


def run_body(run: Run) -> RunBody:
    return RunBody(
        id=run.id,
        status=run.status,
        reason=run.reason,
        why=why(run),
        next=what_next(run),
        agent=run.agent,
        model=run.model,
        output=run.output,
        error=run.error,
        interruption=run.interruption,
        pending_approvals=pending(run),
        turns=run.turns,
        tool_runs=run.tool_runs,
        usage=run.usage,
        cost_usd=run.cost_usd,
        unconfirmed_cost_usd=run.unconfirmed_cost_usd,
        limits=run.limits,
        policies=run.policies,
        stop_rules=run.stop_rules,
        approved=run.approved,
        parent=run.parent,
        metadata=run.metadata,
        created_at=run.created_at,
        updated_at=run.updated_at,
        events=run.seq,
        messages=run.messages,
    )


def pending(run: Run) -> list[PendingApproval]:
    """Every call that waits for a verdict, of this run and of its subagents'; none while the run is driven."""
    if run.status is Status.RUNNING:
        return []
    return [
        *map(pending_here, waiting_for_verdict(run)),
        *(pending_below(waits) for waits in run.inner if isinstance(waits, Approval)),
    ]


def pending_here(call: Call) -> PendingApproval:
    args = call.args or {}
    return PendingApproval(
        call_id=call.id,
        provider_call_id=call.provider_id,
        tool_name=call.tool,
        args=args,
        args_hash=args_hash(call.tool, args),
    )


def pending_below(waits: Approval) -> PendingApproval:
    return PendingApproval(
        call_id=waits.call_id,
        tool_name=waits.tool_name,
        args=waits.args,
        args_hash=waits.args_hash,
        path=waits.path,
    )
