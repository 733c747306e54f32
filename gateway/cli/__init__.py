"""The `gateway` command. What talks to a gateway, or is one, is imported by the command that needs it, so that `--help`
costs nothing."""

from __future__ import annotations

import typer

from gateway.cli.bench import app as bench
from gateway.cli.driving import approve, cancel, reject, resume, run, settle
from gateway.cli.looking import events, runs, show, stats
from gateway.cli.replaying import export, replay
from gateway.cli.root import figures, serve, version
from gateway.cli.tools import tools

ABOUT = "Runs agent loops, ends each in one of five named ways, and keeps the record."
EXIT_CODES = (
    "Exit codes: 0 completed, 1 failed, 2 usage, 3 max turns, 4 budget, 5 waits for an approval, 6 interrupted "
    "otherwise, 7 no gateway answers, 8 the gateway refused, 130 cancelled."
)


def main() -> None:
    """Entry point of the console script."""
    cli = typer.Typer(
        no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=ABOUT, epilog=EXIT_CODES
    )
    for command in (serve, run, runs, show, stats, events, approve, reject, settle, resume, cancel):
        cli.command()(command)
    for command in (export, replay, figures, version):
        cli.command()(command)
    cli.add_typer(tools, name="tools")
    cli.add_typer(bench, name="bench")
    cli(prog_name="gateway")
