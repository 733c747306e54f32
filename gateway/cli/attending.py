"""Watching a run to its end: asks for approvals on a terminal, cancels on Ctrl-C, and leaves with the run's code."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import NoReturn

import typer

from gateway.cli.asking import ask
from gateway.cli.exits import Exit, exit_of
from gateway.cli.options import Connection
from gateway.cli.render import tell_answer, tell_stop
from gateway.cli.talk import Told, talk
from gateway.cli.watching import View, view_for
from gateway.client import Gateway, Seen
from gateway.core.errors import GatewayError
from gateway.core.run import Status
from gateway.edge.wire import PendingApproval, RunBody

CTRL_C = "user pressed Ctrl-C"

Act = Callable[[Gateway], Awaitable[RunBody]]
"""What is done to the run before it is watched."""


def attend(connection: Connection, act: Act, *, detach: bool) -> NoReturn:
    """Act, watch, ask and watch on until nothing waits that could be asked about here."""
    if detach:
        leave(talk(connection, act), as_json=connection.as_json)
    terminal = sys.stderr.isatty() and not connection.as_json
    view = view_for(as_json=connection.as_json, terminal=terminal)
    told = talk(connection, lambda gateway: watch_through(gateway, act, view))
    while terminal and sys.stdin.isatty() and told.value.reason == "approval":
        verdict = asked_for(told.value)
        if verdict is None:
            break
        told = talk(connection, lambda gateway, act=verdict: watch_through(gateway, act, view))
    report(told, as_json=connection.as_json)


def leave(told: Told[RunBody], *, as_json: bool) -> NoReturn:
    run = told.value
    typer.echo(told.body if as_json else run.id)
    if not as_json:
        typer.echo(f"It goes on by itself. Look: gateway show {run.id}", err=True)
    raise typer.Exit(Exit.COMPLETED)


def report(told: Told[RunBody], *, as_json: bool) -> NoReturn:
    if as_json:
        typer.echo(told.body)
    else:
        tell_answer(told.value)
        tell_stop(told.value)
    raise typer.Exit(exit_of(told.value))


# --- approvals ------------------------------------------------------------------------------------------------------


def asked_for(run: RunBody) -> Act | None:
    """What the person says about the first call that waits. None: they went away and left it waiting."""
    pending = run.pending_approvals[0]
    try:
        approved, reason = ask(pending)
    except KeyboardInterrupt:
        return lambda gateway: gateway.cancel(run.id, CTRL_C)
    except EOFError:
        return None
    return verdict(run, pending, approved=approved, reason=reason)


def verdict(run: RunBody, pending: PendingApproval, *, approved: bool, reason: str | None) -> Act:
    """Names the arguments that were shown, so that no others can be approved in their stead."""
    seen = pending.args_hash
    if approved:
        return lambda gateway: gateway.approve(run.id, pending.call_id, args_hash=seen)
    return lambda gateway: gateway.reject(run.id, pending.call_id, reason, args_hash=seen)


# --- watching -------------------------------------------------------------------------------------------------------


async def watch_through(gateway: Gateway, act: Act, view: View) -> RunBody:
    """Act on the run and watch it until it stops. The first Ctrl-C cancels it; the second leaves without waiting."""
    with ctrl_c() as pressed:
        run = await act(gateway)
        canceller = asyncio.create_task(cancel_when(pressed, gateway, run.id))
        try:
            if run.status is Status.RUNNING:
                await watch(gateway, run, view)
        finally:
            canceller.cancel()
        return await gateway.get(run.id)


async def watch(gateway: Gateway, run: RunBody, view: View) -> None:
    with view.watching(run):
        async with aclosing(gateway.events(run.id, after=run.events)) as events:
            async for seen in events:
                if isinstance(seen, Seen):
                    view.saw(seen.event)


async def cancel_when(pressed: asyncio.Event, gateway: Gateway, run_id: str) -> None:
    """A run that stopped first by itself, or a gateway that went away, is what the watcher sees in any case."""
    await pressed.wait()
    with suppress(GatewayError):
        await gateway.cancel(run_id, CTRL_C)


@contextmanager
def ctrl_c() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C sets. Pressed again, it cancels the task that called this."""
    loop, task, pressed = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()

    def press() -> None:
        if pressed.is_set() and task is not None:
            task.cancel()
        pressed.set()

    loop.add_signal_handler(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        loop.remove_signal_handler(signal.SIGINT)
