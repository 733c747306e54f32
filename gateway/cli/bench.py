"""`gateway bench`: measurements, as tables and ratios taken in one run of the command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from gateway.cli.exits import Exit, fail

app = typer.Typer(name="bench", no_args_is_help=True, help="Measure what the gateway costs, beside something else.")


def drawable(picture: str | None) -> str | None:
    """Said before anything is measured, which takes minutes."""
    if picture is not None and not Path(picture).absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {Path(picture).parent}: make it first.")
    return picture


def fail_without_the_extra(error: ImportError) -> NoReturn:
    fail(f"{error.name} is missing: pip install -e '.[bench]', in a clone of this repository.", Exit.FAILED)


Picture = Annotated[str | None, typer.Option(metavar="FILE", help="Draw a picture into this file.", callback=drawable)]


@app.command()
def overhead(
    runs: Annotated[int, typer.Option(min=50, help="Runs at each concurrency, of either kind.")] = 1000,
    picture: Picture = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON instead of tables.")] = False,
) -> None:
    """The harness's own share of a three-turn run, under load, beside a bare client loop that makes the same calls."""
    try:
        from gateway.bench.overhead import overhead
    except ImportError as error:
        fail_without_the_extra(error)
    raise typer.Exit(overhead(runs=runs, as_json=as_json, picture=picture))


@app.command()
def proxy(
    calls: Annotated[int, typer.Option(min=300, help="Calls at each concurrency, to each server.")] = 3000,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON instead of a table.")] = False,
) -> None:
    """What passing a chat completion through adds, beside the bare provider and the proxies of `make peers`."""
    try:
        from gateway.bench.proxy import proxy
    except ImportError as error:
        fail_without_the_extra(error)
    raise typer.Exit(proxy(calls=calls, as_json=as_json))


@app.command("six-tasks")
def six_tasks(
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", metavar="URL", help="A model server, with its /v1. Default: one of our own."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The model to ask, or, of our own server, to load. Default: its default."),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, max=100, help="How often the six tasks are run.")] = 1,
    concurrency: Annotated[
        int, typer.Option(min=1, max=6, help="Run them also by so many agents at once, and compare the times.")
    ] = 1,
    picture: Picture = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the requests that were made, for model-server bench.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON instead of tables.")] = False,
) -> None:
    """The six published tasks, by a local model through a gateway of our own, beside what was published."""
    from gateway.bench.six_tasks import Plan, six_tasks

    plan = Plan(base_url=base_url, model=model, repeat=repeat, concurrency=concurrency, record=record)
    try:
        code = six_tasks(plan, as_json=as_json, picture=picture)
    except ImportError as error:
        fail_without_the_extra(error)
    raise typer.Exit(code)
