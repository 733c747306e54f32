"""The commands that need no gateway: `serve` is one, `figures` starts its own, `version` asks nobody."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from gateway.cli.exits import Exit, fail


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


def serve(
    config: Annotated[
        str | None, typer.Option("--config", metavar="PATH", help="The configuration; without one, a ready example.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port to listen on; 0 is any free.")] = None,
    store: Annotated[str | None, typer.Option(metavar="PATH", help="The file that records all runs.")] = None,
    log_format: Annotated[
        LogFormat | None, typer.Option("--log-format", help="How lines of the log are written.")
    ] = None,
) -> None:
    """Serve the gateway until SIGTERM or Ctrl-C; without a configuration it needs no model, key or network."""
    from gateway.cli.serving import serve

    serve(config, host=host, port=port, store=store, log_format=log_format and log_format.value)


def figures(
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of tables.")] = False,
) -> None:
    """Drive every published scenario through a gateway of its own, and compare each figure with the published one."""
    from gateway.bench.figures import figures

    raise typer.Exit(figures(as_json=as_json))


def version(
    as_json: Annotated[bool, typer.Option("--json", help="Print the version as JSON.")] = False,
) -> None:
    """Print the version of this program."""
    from importlib import metadata

    try:
        number = metadata.version("agent-sidecar")
    except metadata.PackageNotFoundError:
        fail("The package agent-sidecar is not installed.", Exit.FAILED)
    typer.echo(f'{{"version":"{number}"}}' if as_json else number)
