"""`model-server bench --recorded`: recorded requests against any server, for people and as JSON."""

import asyncio
from pathlib import Path

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from model_server.errors import ModelServerError
from model_server.recorded import Asked, Replayed, conversations, read, replay


def run(path: Path, base_url: str, at_once: int, copies: int, *, as_json: bool) -> None:
    try:
        replayed = asyncio.run(replay(base_url, conversations(read(path), copies), at_once))
    except ModelServerError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(msgspec.json.encode(replayed))
    else:
        _print(replayed)
    if any(each.error for each in replayed.requests):
        raise typer.Exit(1)


def _print(replayed: Replayed) -> None:
    out = Console(highlight=False)
    table = Table(box=None, pad_edge=False, title=f"{replayed.model} at {replayed.base_url}", title_justify="left")
    for title in ("conversation", "turn", "first ms", "ms", "prompt", "cached", "reply", "calls"):
        table.add_column(title, justify="right")
    for each in replayed.requests:
        table.add_row(*_cells(each))
    out.print(table)
    for each in replayed.requests:
        if each.error:
            out.print(f"Conversation {each.conversation}, turn {each.turn} failed: {each.error}", markup=False)
    out.print(
        f"{len(replayed.requests)} requests, {replayed.at_once} conversations at a time: {replayed.seconds:.2f} s, "
        f"slowest first token {replayed.slowest_first_ms:,.0f} ms, {replayed.reply_tokens} tokens written.",
        soft_wrap=True,
    )


def _cells(each: Asked) -> tuple[str, ...]:
    counts = (each.prompt_tokens, each.cached_tokens, each.reply_tokens, each.calls)
    told = ("" if count is None else str(count) for count in counts)
    return (str(each.conversation), str(each.turn), f"{each.first_ms:,.0f}", f"{each.ms:,.0f}", *told)
