"""Exit codes. A script can tell the five ways out apart, and a gateway that is missing from one that says no."""

from __future__ import annotations

from enum import IntEnum
from typing import NoReturn

import typer

from gateway.core.run import Status
from gateway.edge.wire import RunBody


class Exit(IntEnum):
    COMPLETED = 0
    FAILED = 1
    USAGE = 2
    MAX_TURNS = 3
    BUDGET = 4
    APPROVAL = 5
    INTERRUPTED = 6
    UNREACHABLE = 7
    PROBLEM = 8
    CANCELLED = 130


OF_STATUS = {
    Status.RUNNING: Exit.COMPLETED,
    Status.COMPLETED: Exit.COMPLETED,
    Status.FAILED: Exit.FAILED,
    Status.MAX_TURNS_EXCEEDED: Exit.MAX_TURNS,
    Status.BUDGET_EXCEEDED: Exit.BUDGET,
    Status.INTERRUPTED: Exit.INTERRUPTED,
}
OF_REASON = {"approval": Exit.APPROVAL, "cancelled": Exit.CANCELLED}


def exit_of(run: RunBody) -> Exit:
    """The code of a run that was watched to its end. One that was left running is no failure."""
    return OF_REASON.get(run.reason or "", OF_STATUS[run.status])


def fail(words: str, code: Exit) -> NoReturn:
    typer.echo(words, err=True)
    raise typer.Exit(code)
