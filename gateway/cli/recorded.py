"""`gateway export` and `gateway replay`: where documents come from and go to, and what is said of a replay."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import typer
from msgspec import json

from gateway.cli.exits import Exit, fail
from gateway.cli.options import Connection
from gateway.cli.progress import headline, money
from gateway.cli.render import printable
from gateway.cli.talk import talk
from gateway.client import Gateway, Seen
from gateway.core.codec import encode
from gateway.core.explain import plural
from gateway.core.run import Status
from gateway.replay.exporting import recording_of
from gateway.replay.playing import Played, play
from gateway.replay.recording import BadRecording, Recording, decode_recording


def export(connection: Connection, run_id: str, *, as_script: bool, output: Path | None) -> None:
    recording = recorded(connection, run_id)
    text = formatted({run_id: recording.script} if as_script else recording)
    if output is None:
        typer.echo(text)
        return
    try:
        output.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        fail(f"{output} cannot be written: {error.strerror}.", Exit.USAGE)


def replay(connection: Connection, source: str, *, as_json: bool) -> None:
    path = Path(source)
    recording = read(path) if path.is_file() or path.suffix == ".json" else recorded(connection, source)
    try:
        played = asyncio.run(play(recording))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(Exit.CANCELLED) from None
    typer.echo(formatted(played) if as_json else printable(told(played)))
    if played.difference is not None:
        raise typer.Exit(Exit.FAILED)


def formatted(value: Any) -> str:
    return json.format(encode(value), indent=1).decode()


def read(path: Path) -> Recording:
    try:
        return decode_recording(path.read_bytes(), str(path))
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror}.", Exit.USAGE)
    except BadRecording as error:
        fail(str(error), Exit.USAGE)


def recorded(connection: Connection, run_id: str) -> Recording:
    try:
        return talk(connection, lambda gateway: fetched(gateway, run_id)).value
    except BadRecording as error:
        fail(str(error), Exit.FAILED)


async def fetched(gateway: Gateway, run_id: str) -> Recording:
    """The document of a run that has stopped. Raises BadRecording for one that is running."""
    if (await gateway.get(run_id)).status is Status.RUNNING:
        raise BadRecording(f"Run {run_id} is running: export it once it has stopped.")
    async with aclosing(gateway.events(run_id)) as events:
        return recording_of(run_id, [seen.event async for seen in events if isinstance(seen, Seen)])


def told(played: Played) -> str:
    """One line if it is the same run; else the first difference, recorded → replayed."""
    if played.difference is not None:
        return f"Not the same run. {played.difference}"
    came = played.recorded
    parts = (
        headline(came.status, came.reason),
        plural(played.events, "event"),
        plural(came.turns, "turn"),
        plural(came.tool_runs, "tool run"),
        plural(came.usage.total_tokens, "token"),
        money(came.cost_usd),
    )
    return f"The same run: {' · '.join(parts)}"
