"""The commands that make a test of a run: `export` writes it down, `replay` plays it again and compares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli import options as o
from gateway.cli.options import DEFAULT_URL, Connection


def export(
    run_id: o.RunId,
    as_script: Annotated[
        bool,
        typer.Option(
            "--as-script", help="Only the model's replies, under the run's id, for `scripted-provider serve --scripts`."
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write it; else to stdout.")
    ] = None,
    url: o.Url = DEFAULT_URL,
    api_key: o.ApiKey = None,
) -> None:
    """Print a stopped run as a document that `gateway replay` plays again: all that came in, and what came of it."""
    from gateway.cli.recorded import export

    export(Connection(url, api_key), run_id, as_script=as_script, output=output)


def replay(
    source: Annotated[str, typer.Argument(metavar="RUN|FILE", help="The id of a run, or a file that `export` wrote.")],
    url: o.Url = DEFAULT_URL,
    api_key: o.ApiKey = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what came of it as JSON.")] = False,
) -> None:
    """Play a recorded run again, its tools answering from the record; exits 1 and shows the first difference if any."""
    from gateway.cli.recorded import replay

    replay(Connection(url, api_key), source, as_json=as_json)
