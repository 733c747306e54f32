"""The commands that only look: the list, one run, its trace."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli import options as o
from gateway.cli.options import DEFAULT_URL, Connection
from gateway.core.run import Status


def runs(
    status: Annotated[Status | None, typer.Option(help="Only runs with this status.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    text: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Only runs whose line, or task, has all these words.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many, or how many a page with --all.")] = 20,
    everything: Annotated[bool, typer.Option("--all", help="Every page, not only the newest runs.")] = False,
    url: o.Url = DEFAULT_URL,
    api_key: o.ApiKey = None,
    as_json: o.AsJson = False,
) -> None:
    """List runs, newest first: what each did, what it cost, and why it stopped."""
    from gateway.cli.listing import list_runs

    list_runs(
        Connection(url, api_key, as_json), status=status, agent=agent, text=text, limit=limit, everything=everything
    )


def show(run_id: o.RunId, url: o.Url = DEFAULT_URL, api_key: o.ApiKey = None, as_json: o.AsJson = False) -> None:
    """Show one run: its figures, why it stopped, what to do next, and the whole transcript."""
    from gateway.cli.talk import talk

    told = talk(Connection(url, api_key, as_json), lambda gateway: gateway.get(run_id))
    if as_json:
        typer.echo(told.body)
    else:
        from gateway.cli.render import show_run

        show_run(told.value)


def stats(
    days: Annotated[int, typer.Option(min=1, max=366, help="How many days, the last of which is today (UTC).")] = 30,
    url: o.Url = DEFAULT_URL,
    api_key: o.ApiKey = None,
    as_json: o.AsJson = False,
) -> None:
    """Figures over many runs: cost, turns and ways out by day, agent and model, and the most expensive runs."""
    from gateway.cli.tallies import stats

    stats(Connection(url, api_key, as_json), days)


def events(
    run_id: o.RunId,
    follow: Annotated[bool, typer.Option("--follow", help="Go on through stops and resumes, until Ctrl-C.")] = False,
    url: o.Url = DEFAULT_URL,
    api_key: o.ApiKey = None,
    as_json: Annotated[bool, typer.Option("--json", help="The trace is JSON lines in any case.")] = False,
) -> None:
    """Print the trace of a run, one JSON object a line, verbatim; ends when the run stops."""
    from gateway.cli.listing import print_events

    print_events(Connection(url, api_key, as_json), run_id, follow=follow)
