"""`gateway runs` and `gateway events`: what is fetched page by page or line by line."""

from __future__ import annotations

from contextlib import aclosing

import typer

from gateway.cli.options import Connection
from gateway.cli.render import show_runs
from gateway.cli.talk import talk
from gateway.client import Gateway, Seen
from gateway.core.codec import encode
from gateway.core.run import Status
from gateway.edge.wire import RunPage


def list_runs(
    connection: Connection, *, status: Status | None, agent: str | None, text: str | None, limit: int, everything: bool
) -> None:
    async def fetch(gateway: Gateway) -> RunPage:
        page = await gateway.runs(status=status, agent=agent, text=text, limit=limit)
        runs, cursor = page.runs, page.next_cursor
        while everything and cursor:
            more = await gateway.runs(status=status, agent=agent, text=text, limit=limit, cursor=cursor)
            runs, cursor = [*runs, *more.runs], more.next_cursor
        return RunPage(runs=runs, next_cursor=cursor)

    told = talk(connection, fetch)
    if connection.as_json:
        typer.echo(encode(told.value) if everything else told.body)
    else:
        show_runs(told.value)


def print_events(connection: Connection, run_id: str, *, follow: bool) -> None:
    async def lines(gateway: Gateway) -> None:
        async with aclosing(gateway.events(run_id, follow=follow)) as events:
            async for seen in events:
                if isinstance(seen, Seen):
                    typer.echo(seen.line)

    talk(connection, lines)
