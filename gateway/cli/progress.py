"""What a person sees of a run under way: a pure fold of its events, and its words."""

from __future__ import annotations

from decimal import Decimal

from msgspec import Struct
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.pricing import ZERO
from gateway.core.run import Status

THINKING = "the model thinks"


class Progress(Struct, frozen=True):
    """Where a run is: the turn, what is going on in it, the last thing that a tool said, the cost until now."""

    turn: int = 0
    doing: str = "starting"
    label: str = ""
    cost_usd: Decimal = ZERO


def advance(progress: Progress, event: e.Event) -> Progress:
    match event:
        case e.TurnStart(turn=turn):
            return replace(progress, turn=turn, doing=THINKING, label="")
        case e.Turn(cost_usd=cost):
            return replace(progress, cost_usd=cost)
        case e.ToolStart(tool_name=tool):
            return replace(progress, doing=tool, label="")
        case e.ToolProgress(tool_name=tool, label=label):
            return replace(progress, doing=tool, label=label)
        case e.RunStopped(status=status):
            return replace(progress, doing=str(status), label="")
        case _:
            return progress


def line(progress: Progress, seconds: float) -> str:
    """The one line that a terminal shows while the run goes on."""
    parts = [f"turn {progress.turn}", progress.doing, progress.label, money(progress.cost_usd), f"{seconds:.1f} s"]
    return " · ".join(part for part in parts if part)


def words(event: e.Event) -> str | None:
    """The line that stands in a log for this event; None for what would only be noise."""
    match event:
        case e.Turn(turn=turn, cost_usd=cost, message=message):
            calls = ", ".join(f"{call.function.name} {call.function.arguments}" for call in message.tool_calls)
            return f"turn {turn}: {calls or 'the answer'} ({money(cost)})"
        case e.ToolProgress(tool_name=tool, label=label):
            return f"{tool}: {label}"
        case e.ToolResult(tool_name=tool, ok=ok, ms=ms, source=source):
            how = "done" if ok else "failed"
            return f"{tool}: {how} in {ms} ms" if source == "tool" else f"{tool}: answered without running ({source})"
        case e.RunResumed(cause=cause):
            return f"resumed ({cause})"
        case _:
            return None


def headline(status: Status, reason: str | None) -> str:
    """`interrupted / approval`. Where the reason says only what the status says, the status alone."""
    return f"{status} / {reason}" if status is Status.INTERRUPTED and reason else str(status)


def money(usd: Decimal) -> str:
    return f"${usd:.6f}"
