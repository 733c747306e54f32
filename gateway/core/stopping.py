"""The stop rules: each looks at a run and the time and says whether the run stops, and how.

A rule is a function `(run, now) -> Stop | None`. `decide` asks them in the order of `RULES` before every step. Nothing
else stops a run that is driven for a limit, but for the timer that cuts a step off at its deadline. To add one: write
the function, put it into `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from msgspec import Struct

from gateway.core.codec import call_key
from gateway.core.estimates import REPLY_TOKENS_MIN, reply_cap
from gateway.core.run import Call, Deadline, Interruption, MaxBudget, MaxTurns, Run, Status, StopRule

RECOVERIES_MAX = 3


class Stop(Struct, frozen=True):
    """End the run in one of the five ways."""

    status: Status
    interruption: Interruption | None = None
    error: str | None = None


Rule = Callable[[Run, datetime], Stop | None]


def poison(run: Run, now: datetime) -> Stop | None:
    """A run that takes the process down with it must not do so for ever. One that waits for a subagent makes no
    progress of its own, and whether the subagent does is for that run to say."""
    if run.recoveries < RECOVERIES_MAX or waits_for_subagent(run):
        return None
    return Stop(Status.FAILED, error=f"the run was recovered {run.recoveries} times in a row without any progress.")


def waits_for_subagent(run: Run) -> bool:
    return any(is_subagent(run, call) for call in run.calls if call.started and not call.outcome)


def is_subagent(run: Run, call: Call) -> bool:
    spec = run.tool(call.tool)
    return spec is not None and spec.subagent is not None


def fatal_tool_error(run: Run, now: datetime) -> Stop | None:
    """`tool_errors: fatal`: the first failed execution ends the run."""
    if run.policies.tool_errors != "fatal":
        return None
    failed = next((call for call in run.calls if executed_and_failed(call)), None)
    return failed and Stop(Status.FAILED, error=f"{failed.tool} failed, and this run treats tool errors as fatal.")


def permanent_tool_error(run: Run, now: datetime) -> Stop | None:
    """`on_permanent_error`: stop at once, or when a call fails permanently again after the model was told."""
    if not run.permanent_failures or run.policies.on_permanent_error == "tell_model":
        return None
    told_max = 0 if run.policies.on_permanent_error == "stop" else 1
    for call in run.calls:
        if call.outcome is not None and call.outcome.permanent:
            times = run.permanent_failures.get(call_key(call.tool, call.args or {}), 0)
            if times > told_max:
                return Stop(Status.FAILED, error=permanent_words(call, times))
    return None


def permanent_words(call: Call, times: int) -> str:
    again = "" if times == 1 else f" {times} times with the same arguments"
    return f"{call.tool} {call.arguments} failed permanently{again}: asking again cannot help."


def executed_and_failed(call: Call) -> bool:
    return call.outcome is not None and call.outcome.source == "tool" and not call.outcome.ok


def turn_cap(run: Run, now: datetime) -> Stop | None:
    cap = run.limits.max_turns
    if cap is None or run.turns < cap:
        return None
    return Stop(Status.MAX_TURNS_EXCEEDED, MaxTurns(cap))


def budget(run: Run, now: datetime) -> Stop | None:
    """Checked before a call. In `soft` mode its cost is unknown, so the spend goes over by at most one turn. In `hard`
    mode no call is made whose worst case does not fit, and an answer that the budget cut short is no answer."""
    limit = run.limits.max_budget_usd
    if limit is None or not (run.spent_usd >= limit or run.cut_at_usd == limit or too_tight(run)):
        return None
    return Stop(Status.BUDGET_EXCEEDED, MaxBudget(limit, run.spent_usd))


def too_tight(run: Run) -> bool:
    """Whether a hard budget leaves no room for a reply of any use."""
    cap = reply_cap(run)
    return cap is not None and cap.max_tokens is not None and cap.max_tokens < REPLY_TOKENS_MIN


def deadline(run: Run, now: datetime) -> Stop | None:
    limit = run.limits.deadline_seconds
    if limit is None or driven_seconds(run, now) < limit:
        return None
    return Stop(Status.INTERRUPTED, Deadline(limit))


def driven_seconds(run: Run, now: datetime) -> float:
    """The time in which the run was driven, without its waits for people."""
    current = now - run.driven_since if run.status is Status.RUNNING else None
    return (run.driven + current if current else run.driven).total_seconds()


# --- beyond the caps, off by default --------------------------------------------------------------------------------


def repeated_call(run: Run, now: datetime) -> Stop | None:
    return over(run.tally.asked, run.stop_rules.repeated_calls, "repeated_calls", "was asked for")


def repeated_failure(run: Run, now: datetime) -> Stop | None:
    return over(run.tally.failed, run.stop_rules.repeated_failures, "repeated_failures", "has failed")


def over(counts: Mapping[str, int], limit: int | None, rule: str, verb: str) -> Stop | None:
    if limit is None:
        return None
    for key, count in counts.items():
        if count >= limit:
            return rule_stop(rule, f"{key} {verb} {count} times.")
    return None


def after_tool(run: Run, now: datetime) -> Stop | None:
    if not run.tally.succeeded:
        return None
    return rule_stop("after_tools", f"{run.tally.succeeded[0]} has succeeded.")


def rule_stop(rule: str, sentence: str) -> Stop:
    return Stop(Status.INTERRUPTED, StopRule(rule, sentence))


Predicate = Callable[[Run], str | None]
"""An operator's own rule: a sentence if the run shall stop, else None. Pure, and quick: asked before each step."""


def predicates(known: Mapping[str, Predicate]) -> Rule:
    """The rule that asks the operator's predicates which the run is pinned to. One that is gone stops the run rather
    than being skipped in silence. A resumed run takes one turn before it is asked about again, or it never would."""

    def ask_predicates(run: Run, now: datetime) -> Stop | None:
        if run.turns <= run.tally.resumed_at_turn:
            return None
        for name in run.stop_rules.predicates:
            predicate = known.get(name)
            sentence = predicate(run) if predicate else "it is no longer configured."
            if sentence:
                return rule_stop(name, sentence)
        return None

    return ask_predicates


RULES: tuple[Rule, ...] = (
    poison,
    fatal_tool_error,
    permanent_tool_error,
    turn_cap,
    budget,
    deadline,
    repeated_failure,
    repeated_call,
    after_tool,
)
