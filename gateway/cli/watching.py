"""How a run under way is shown: plain lines as it goes, below them a live one on a terminal; nothing beside --json.

All of it goes to stderr: stdout is for the answer, so that `answer=$(gateway run …)` holds just that.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import typer
from rich import live
from rich.console import Console
from rich.spinner import Spinner
from rich.text import Text

from gateway.cli.progress import Progress, advance, line, words
from gateway.cli.render import printable
from gateway.core.events import Event, ToolProgress
from gateway.edge.wire import RunBody


class View(Protocol):
    def watching(self, run: RunBody) -> AbstractContextManager[object]:
        """Holds the terminal while the run is watched."""
        ...

    def saw(self, event: Event) -> None: ...


class Silent:
    def watching(self, run: RunBody) -> AbstractContextManager[object]:
        return nullcontext()

    def saw(self, event: Event) -> None:
        return


class Lines:
    """One plain line an event, for logs and pipes."""

    def watching(self, run: RunBody) -> AbstractContextManager[object]:
        announce(run)
        return nullcontext()

    def saw(self, event: Event) -> None:
        if said := words(event):
            typer.echo(printable(said), err=True)


class Live:
    """The lines of a log that stay, and below them one that changes in place and is gone at the end."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._began = time.monotonic()
        self._progress = Progress()
        self._spinner = Spinner("dots")

    def watching(self, run: RunBody) -> AbstractContextManager[object]:
        announce(run)
        self._progress = Progress(turn=run.turns, cost_usd=run.cost_usd)
        return live.Live(console=self._console, transient=True, refresh_per_second=10, get_renderable=self._render)

    def saw(self, event: Event) -> None:
        self._progress = advance(self._progress, event)
        if (said := words(event)) and not isinstance(event, ToolProgress):
            self._console.print(one_line(said))

    def _render(self) -> Spinner:
        said = line(self._progress, time.monotonic() - self._began)
        self._spinner.update(text=one_line(said))
        return self._spinner


def one_line(said: str) -> Text:
    return Text(printable(said), no_wrap=True, overflow="ellipsis")


def announce(run: RunBody) -> None:
    """At once, so that whoever loses sight of the run knows its name."""
    typer.echo(printable(f"{run.id}: {run.agent} on {run.model}"), err=True)


def view_for(*, as_json: bool, terminal: bool) -> View:
    if as_json:
        return Silent()
    return Live() if terminal else Lines()
