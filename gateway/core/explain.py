"""Why a run stopped and what to do next, in words. The same two sentences everywhere: HTTP, CLI, console."""

from __future__ import annotations

from typing import assert_never

from gateway.core.codec import encode
from gateway.core.run import (
    Approval,
    Cancelled,
    Deadline,
    InDoubt,
    MaxBudget,
    MaxTurns,
    ProviderDown,
    Run,
    Status,
    StopRule,
    ToolOutputs,
)


def why(run: Run) -> str | None:
    """One sentence that says why the run stopped; None while it runs."""
    match run.status:
        case Status.RUNNING:
            return None
        case Status.COMPLETED:
            return f"The model answered after {plural(run.turns, 'turn')}."
        case Status.FAILED:
            return f"It failed: {run.error}"
        case _:
            return why_interrupted(run)


def why_interrupted(run: Run) -> str | None:
    match interruption := run.interruption:
        case MaxTurns(max_turns):
            return f"It used {plural(run.turns, 'turn')}, and max_turns is {max_turns}."
        case MaxBudget(limit, spent):
            return f"It spent ${spent:f}, and max_budget_usd is {limit:f}."
        case Approval(_, tool, args, _):
            return f"{tool} {encode(args).decode()} waits for an approval."
        case Cancelled(reason):
            return f"It was cancelled: {reason}"
        case ToolOutputs(call_ids):
            return f"The client runs {plural(len(call_ids), 'call')} and has not posted what came back."
        case InDoubt(_, tool, args):
            return f"{tool} {encode(args).decode()} had begun, and whether it happened is not known."
        case Deadline(seconds):
            return f"It was driven for its deadline_seconds, {seconds:g}."
        case StopRule(rule, sentence):
            return f"The stop rule {rule} fired: {sentence}"
        case ProviderDown(message):
            return f"The model cannot be reached: {message}"
        case None:
            return None
        case _:
            assert_never(interruption)


def what_next(run: Run) -> str | None:
    """What to do about it, with the command; None where nothing is left to do."""
    match interruption := run.interruption:
        case None:
            return None
        case MaxTurns(max_turns):
            return f"Raise the cap: gateway resume {run.id} --max-turns {max_turns * 2}"
        case MaxBudget(limit, spent):
            return f"Raise the budget: gateway resume {run.id} --max-budget-usd {max(limit * 2, spent * 2):f}"
        case Approval(call_id, _, _, _):
            return f"Decide: gateway approve {run.id} {call_id}, or gateway reject {run.id} {call_id} --reason WORDS"
        case InDoubt(call_id, _, _):
            return (
                f"Look, then settle it: gateway approve {run.id} {call_id} runs it again, gateway reject {run.id} "
                f"{call_id} skips it, gateway settle {run.id} {call_id} OUTPUT says what came back"
            )
        case ToolOutputs():
            return f"Post them: POST /v1/runs/{run.id}/tool_outputs"
        case Deadline(seconds):
            return f"Raise the deadline: gateway resume {run.id} --deadline-seconds {seconds * 2:g}"
        case Cancelled() | StopRule() | ProviderDown():
            return f"Go on: gateway resume {run.id}"
        case _:
            assert_never(interruption)


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
