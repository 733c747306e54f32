"""`scripted-provider`: serves the scripts, and lists them."""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
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
from scripted.scripts import SCRIPTS, Call, Step

cli = typer.Typer(no_args_is_help=True, add_completion=False, help="A deterministic model provider for tests.")

LatencyMs = Annotated[
    float, typer.Option("--latency-ms", min=0, max=faults.WAIT_MS_MAX, help="Waited before every reply.")
]
FaultText = Annotated[
    str, typer.Option("--fault", help="What goes wrong, as NAME[:ATTEMPTS] with ,turn=K ,retry_after=S ,stall_ms=MS.")
]


def main() -> None:
    cli()


@cli.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free port.")] = 8788,
    latency_ms: LatencyMs = 0,
    fault: FaultText = "none",
) -> None:
    """Serve the scripts over HTTP until SIGTERM or Ctrl-C."""
    app = create_app(_defaults(latency_ms, fault))
    try:
        _run(_serve_until_stopped(app, host, port))
    except OSError as error:
        typer.echo(f"Cannot listen on {host}:{port}: {_reason(error)}.", err=True)
        raise typer.Exit(1) from None


@cli.command()
def scripts(as_json: Annotated[bool, typer.Option("--json", help="The scripts as data.")] = False) -> None:
    """List the scripts, which are the names of the models."""
    if as_json:
        typer.echo(msgspec.json.encode(dict(SCRIPTS)))
    else:
        Console().print(_table())


def _defaults(latency_ms: float, fault: str) -> Behaviour:
    try:
        return Behaviour(latency_ms).over(faults.parse(f"fault={fault}"))
    except BadBehaviour as error:
        raise typer.BadParameter(str(error), param_hint="--fault") from None


def _reason(error: OSError) -> str:
    """asyncio repeats the address in its words. Failures of name look-up have negative numbers and good words."""
    number = error.errno or 0
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


def _table() -> Table:
    table = Table("model", "in turn", "replies")
    for name, script in SCRIPTS.items():
        table.add_row(Text(name, "bold"), "", Text(script.about, "italic"))
        for step in script.steps:
            table.add_row("", Text(_when(step)), Text(_what(step)))
        table.add_section()
    return table


def _when(step: Step) -> str:
    turn = "any" if step.turn is None else str(step.turn)
    return f"{turn}, told “{step.tool_text_contains}”" if step.tool_text_contains else turn


def _what(step: Step) -> str:
    return ", ".join(map(_call, step.calls)) or step.text or ""


def _call(call: Call) -> str:
    return f"{call.tool} {msgspec.json.encode(call.args).decode()} ({call.id})"
