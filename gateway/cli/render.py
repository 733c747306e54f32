"""What commands print: the stop, the list, a whole run. Colours only on a terminal."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli.progress import headline, money
from gateway.core.explain import plural
from gateway.core.messages import Assistant, Message, Tool, text_of
from gateway.core.ports import Entry
from gateway.core.run import Status
from gateway.edge.wire import RunBody, RunPage

PIPE_COLUMNS = 200
STYLE = {
    Status.RUNNING: "cyan",
    Status.COMPLETED: "green",
    Status.FAILED: "red",
    Status.MAX_TURNS_EXCEEDED: "yellow",
    Status.BUDGET_EXCEEDED: "yellow",
    Status.INTERRUPTED: "magenta",
}


def printable(text: str) -> str:
    """The text without what would move the cursor or hide a part: a model's words must not forge a screen."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def console(*, err: bool = False) -> Console:
    """A pipe has no width: tables are not folded for it."""
    stream = sys.stderr if err else sys.stdout
    folded = stream.isatty() or "COLUMNS" in os.environ
    return Console(stderr=err, width=None if folded else PIPE_COLUMNS, highlight=False)


# --- one run --------------------------------------------------------------------------------------------------------


def tell_answer(run: RunBody) -> None:
    """The answer alone, on stdout: verbatim into a pipe, harmless on a terminal."""
    if run.output:
        typer.echo(printable(run.output) if sys.stdout.isatty() else run.output)


def tell_stop(run: RunBody) -> None:
    """How the run stopped, on stderr; and unless it completed, why, and what to do next."""
    out = console(err=True)
    out.print(figures_line(run), soft_wrap=True)
    if run.status is not Status.COMPLETED:
        for sentence in filter(None, (run.why, hint(run), run.next)):
            out.print(Text(printable(sentence)), soft_wrap=True)


def hint(run: RunBody) -> str | None:
    """What is behind most of what a provider cannot find."""
    if "the provider answered 404" not in (run.error or ""):
        return None
    return "Does base_url in [provider], or $LLM_BASE_URL, end in /v1? If so, does the provider have the model?"


def figures_line(run: RunBody) -> Text:
    unconfirmed = f"{money(run.unconfirmed_cost_usd)} unconfirmed" if run.unconfirmed_cost_usd else ""
    parts = (
        plural(run.turns, "turn"),
        plural(run.tool_runs, "tool run"),
        money(run.cost_usd),
        unconfirmed,
        run.id,
    )
    return Text.assemble(
        (headline(run.status, run.reason), STYLE[run.status]), *(f" · {part}" for part in parts if part)
    )


def show_run(run: RunBody) -> None:
    out = console()
    out.print(summary(run))
    for message in run.messages:
        out.print()
        out.print(spoken(message), soft_wrap=True)


def summary(run: RunBody) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("run", Text(run.id, "bold"))
    for name, value in summary_rows(run):
        if value:
            table.add_row(name, Text(printable(value), overflow="fold"))
    table.add_row("status", Text(headline(run.status, run.reason), STYLE[run.status]))
    return table


def summary_rows(run: RunBody) -> list[tuple[str, str | None]]:
    usage, limits = run.usage, run.limits
    return [
        ("agent", f"{run.agent} on {run.model}"),
        ("started", run.created_at.isoformat(timespec="seconds")),
        ("turns", f"{run.turns} (max {limits.max_turns or 'none'}), {plural(run.tool_runs, 'tool run')}"),
        ("tokens", f"{usage.prompt_tokens} in, {usage.completion_tokens} out"),
        ("cost", f"{money(run.cost_usd)} (max {limits.max_budget_usd or 'none'})"),
        ("unconfirmed", money(run.unconfirmed_cost_usd) if run.unconfirmed_cost_usd else None),
        ("parent", run.parent and f"call {run.parent.call_id}"),
        *(("waits", f"{call.tool_name}, call {call.call_id}") for call in run.pending_approvals),
        ("why", run.why),
        ("next", run.next),
    ]


def spoken(message: Message) -> Text:
    """One message of the transcript: who, and what they said or asked for."""
    match message:
        case Assistant(content=content, tool_calls=calls):
            said = text_of(content)
            asked = [f"→ {call.function.name} {call.function.arguments}" for call in calls]
            return labelled("assistant", "green", "\n".join(filter(None, (said, *asked))))
        case Tool(name=name, content=content):
            return labelled(f"← {name or 'tool'}", "cyan", text_of(content))
        case _:
            role = str(message.__struct_config__.tag)
            return labelled(role, "bold", text_of(message.content))


def labelled(label: str, style: str, text: str) -> Text:
    return Text.assemble((printable(label), style), "\n", printable(text.rstrip("\n")))


# --- the list -------------------------------------------------------------------------------------------------------


def show_runs(page: RunPage) -> None:
    out = console()
    if not page.runs:
        typer.echo("No runs.", err=True)
        return
    out.print(runs_table(page.runs, datetime.now(UTC)))
    if page.next_cursor:
        typer.echo("There are more: --all shows them.", err=True)


def runs_table(runs: list[Entry], now: datetime) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("run", "agent", "model", "status"):
        table.add_column(heading, overflow="fold")
    for heading in ("turns", "cost", "age"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("task", no_wrap=True, overflow="ellipsis", min_width=8)
    for run in runs:
        table.add_row(
            run.id,
            Text(printable(run.agent)),
            Text(printable(run.model)),
            Text(headline(run.status, run.reason), STYLE[run.status]),
            str(run.turns),
            money(run.cost_usd),
            age(now - run.created_at),
            Text(printable(run.task)),
        )
    return table


def age(span: timedelta) -> str:
    seconds = max(0, int(span.total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
