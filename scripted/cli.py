"""`scripted-provider`: serves the scripts, and lists them."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from aiohttp import web
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scripted import faults
from scripted.app import create_app, serving
from scripted.faults import BadBehaviour, Behaviour
from scripted.loading import BadScripts, known_scripts
from scripted.scripts import Call, Script, Step

cli = typer.Typer(no_args_is_help=True, add_completion=False, help="A deterministic model provider for tests.")

LatencyMs = Annotated[
    float, typer.Option("--latency-ms", min=0, max=faults.WAIT_MS_MAX, help="Waited before every reply.")
]
FaultText = Annotated[
    str, typer.Option("--fault", help="What goes wrong, as NAME[:ATTEMPTS] with ,turn=K ,retry_after=S ,stall_ms=MS.")
]

ScriptFiles = Annotated[
    list[Path] | None,
    typer.Option("--scripts", metavar="FILE", help="A TOML or JSON file of more scripts; may be given again."),
]


def main() -> None:
    cli()


@cli.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free port.")] = 8788,
    latency_ms: LatencyMs = 0,
    fault: FaultText = "none",
    files: ScriptFiles = None,
) -> None:
    """Serve the scripts over HTTP until SIGTERM or Ctrl-C."""
    app = create_app(_defaults(latency_ms, fault), scripts=_known(files))
    try:
        _run(_serve_until_stopped(app, host, port))
    except OSError as error:
        typer.echo(f"Cannot listen on {host}:{port}: {_reason(error)}.", err=True)
        raise typer.Exit(1) from None


@cli.command()
def scripts(
    as_json: Annotated[bool, typer.Option("--json", help="The scripts as data, as --scripts takes them.")] = False,
    files: ScriptFiles = None,
) -> None:
    """List the scripts, which are the names of the models."""
    known = _known(files)
    if as_json:
        typer.echo(msgspec.json.encode(dict(known)))
    else:
        Console().print(_table(known))


def _known(files: list[Path] | None) -> Mapping[str, Script]:
    try:
        return known_scripts(files or ())
    except BadScripts as error:
        raise typer.BadParameter(str(error), param_hint="--scripts") from None


def _defaults(latency_ms: float, fault: str) -> Behaviour:
    try:
        return Behaviour(latency_ms).over(faults.parse(f"fault={fault}"))
    except BadBehaviour as error:
        raise typer.BadParameter(str(error), param_hint="--fault") from None


def _reason(error: OSError) -> str:
    """asyncio repeats the address in its words. Failures of name look-up have negative numbers and good words."""
    number = error.errno or 0
    if number == errno.EADDRINUSE:
        return "the address is in use; choose another with --port"
    return os.strerror(number) if number > 0 else str(error.strerror or error)


async def _serve_until_stopped(app: web.Application, host: str, port: int) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with serving(app, host, port) as address:
        typer.echo(f"scripted provider on {address}/v1")
        sys.stdout.flush()
        await stopped.wait()


def _run(serving_: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(serving_)
    else:
        uvloop.run(serving_)


def _table(known: Mapping[str, Script]) -> Table:
    table = Table("model", "in turn", "replies")
    for name, script in known.items():
        table.add_row(Text(name, "bold"), "", Text(script.about, "italic"))
        for step in script.steps:
            table.add_row("", Text(_when(step)), Text(_what(step)))
        table.add_section()
    return table


def _when(step: Step) -> str:
    turn = "any" if step.turn is None else str(step.turn)
    return f"{turn}, told “{step.tool_text_contains}”" if step.tool_text_contains else turn


def _what(step: Step) -> str:
    if step.echo:
        return "what the last tool answered"
    said = step.text or step.refusal or ""
    return ", ".join(map(_call, step.calls)) or (said if isinstance(said, str) else msgspec.json.encode(said).decode())


def _call(call: Call) -> str:
    arguments = msgspec.json.encode(call.args).decode() if call.arguments is None else call.arguments
    return f"{call.tool} {arguments} ({call.id})"
