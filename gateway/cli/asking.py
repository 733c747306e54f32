"""Asks a person about one call. Raises KeyboardInterrupt for Ctrl-C and EOFError for Ctrl-D."""

from __future__ import annotations

import sys

import typer
from msgspec import json

from gateway.cli.render import printable
from gateway.core.codec import encode
from gateway.edge.wire import PendingApproval

APPROVE = ("a", "approve", "y", "yes")
REJECT = ("r", "reject", "n", "no")


def ask(pending: PendingApproval) -> tuple[bool, str | None]:
    """Whether it is approved, and if not, why. The whole arguments are shown, whatever their length."""
    typer.echo(f"\n{printable(pending.tool_name)} waits for your approval. Its arguments:", err=True)
    typer.echo(printable(json.format(encode(pending.args), indent=2).decode()), err=True)
    while True:
        said = read_line("Approve or reject? [a/r] ").lower()
        if said in APPROVE:
            return True, None
        if said in REJECT:
            return False, read_line("Why? The model reads this (Enter for no reason): ") or None
        typer.echo("Say a to approve or r to reject. Ctrl-D leaves it waiting, Ctrl-C cancels the run.", err=True)


def read_line(prompt: str) -> str:
    """Not `input`, which would show the prompt on stdout, where only the answer belongs."""
    typer.echo(prompt, nl=False, err=True)
    line = sys.stdin.readline()
    if not line:
        typer.echo(err=True)
        raise EOFError
    return line.strip()
