"""`gateway bench`: measurements, as tables and ratios taken in one run of the command."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.exits import Exit, fail

app = typer.Typer(name="bench", no_args_is_help=True, help="Measure what the gateway costs, beside something else.")


@app.command()
def overhead(
    runs: Annotated[int, typer.Option(min=50, help="Runs at each concurrency, of either kind.")] = 1000,
    picture: Annotated[str | None, typer.Option(metavar="FILE", help="Draw a picture into this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON instead of tables.")] = False,
) -> None:
    """The harness's own share of a three-turn run, under load, beside a bare client loop that makes the same calls."""
    try:
        from gateway.bench.overhead import overhead
    except ImportError as error:
        fail(f"{error.name} is missing: pip install 'agent-sidecar[bench]'.", Exit.FAILED)
    raise typer.Exit(overhead(runs=runs, as_json=as_json, picture=picture))
