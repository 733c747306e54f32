"""The published scenarios as data: which script, under which limits and policies, with which verdict."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gateway.core.commands import RaisedLimits
from gateway.edge.wire import ChangedPolicies

QUESTION = "Which file mentions a timeout?"
SYSTEM = "You answer questions about the files in one directory. Use the tools."
TOOLS = ("list_files", "read_file", "delete_file", "scan_archive")
KEEP = "keep the log."
SLOW_REPLY_MS = 700  # long enough for a SIGKILL to arrive before the third reply

BASE = ChangedPolicies(
    dedupe="off", tool_errors="worded", on_permanent_error="tell_once", approval="ask", refusal="worded"
)


class Scenario(Struct, frozen=True, kw_only=True):
    """`name` is the row of figures.json and also the agent, which has a workspace of its own.

    `deletes` says whether access.log is gone afterwards.
    """

    name: str
    script: str
    limits: RaisedLimits = RaisedLimits(max_turns=20)
    policies: ChangedPolicies = BASE
    verdict: Literal["approve", "reject"] | None = None
    reason: str | None = None
    deletes: bool = False


class Group(Struct, frozen=True):
    """Scenarios that stand in one table. `more` are rows that figures.json does not have."""

    title: str
    rows: tuple[str, ...]
    more: tuple[str, ...] = ()


def cap(turns: int) -> Scenario:
    return Scenario(name=f"runaway_cap_{turns}", script="runaway", limits=RaisedLimits(max_turns=turns))


def budget(usd: str) -> Scenario:
    limits = RaisedLimits(max_turns=None, max_budget_usd=Decimal(usd))
    return Scenario(name=f"runaway_budget_{usd}", script="runaway", limits=limits)


def under(name: str, script: str, *, deletes: bool = False, **policies: str) -> Scenario:
    return Scenario(name=name, script=script, policies=replace(BASE, **policies), deletes=deletes)


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(name="plan", script="plan"),
    *(cap(turns) for turns in (8, 20, 50, 100)),
    *(budget(usd) for usd in ("0.01", "0.05", "0.25")),
    under("recover_fatal", "recover", tool_errors="fatal"),
    under("recover_vague", "recover", tool_errors="vague"),
    under("recover_worded", "recover"),
    replace(under("denied_cap_12", "denied", on_permanent_error="tell_model"), limits=RaisedLimits(max_turns=12)),
    under("denied_default", "denied"),
    Scenario(name="once", script="once"),
    Scenario(name="repeat", script="repeat"),
    under("repeat_cached", "repeat", dedupe="read_only"),
    under("double_delete_cache_all", "double_delete", dedupe="all", approval="auto", deletes=True),
    under("double_delete_cache_reads", "double_delete", dedupe="read_only", approval="auto", deletes=True),
    Scenario(name="destructive_stop", script="destructive"),
    Scenario(name="destructive_approved", script="destructive", verdict="approve", deletes=True),
    Scenario(name="destructive_rejected", script="destructive", verdict="reject", reason=KEEP),
    replace(under("destructive_rejected_silently", "destructive", refusal="silent"), verdict="reject", reason=KEEP),
)

GROUPS: tuple[Group, ...] = (
    Group("Plan: three turns, two tools", ("plan",)),
    Group("Runaway, stopped by a cap on turns", tuple(f"runaway_cap_{turns}" for turns in (8, 20, 50, 100))),
    Group(
        "Runaway, stopped by a budget: always within one turn's cost over",
        tuple(f"runaway_budget_{usd}" for usd in ("0.01", "0.05", "0.25")),
    ),
    Group(
        "Errors: what the model reads of them",
        ("recover_fatal", "recover_vague", "recover_worded", "denied_cap_12"),
        ("denied_default",),
    ),
    Group(
        "Repeated calls, and what a cache saves",
        ("once", "repeat", "repeat_cached", "double_delete_cache_all", "double_delete_cache_reads"),
    ),
    Group(
        "Approval",
        ("destructive_stop", "destructive_approved", "destructive_rejected", "destructive_rejected_silently"),
    ),
    Group("Killed with SIGKILL after turn 2, then taken up", ("kill_after_turn_2", "kill_and_resume")),
)

TIMED_MODELS = {"timed_0": "plan", "timed_250": "plan@latency=250", "timed_1000": "plan@latency=1000"}
STOP_MODELS = {"stopped": "slow", "unstopped": "slow"}
KILLED = "killed"
