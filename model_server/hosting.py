"""`model-server serve`: a model behind HTTP until a signal ends it, and what is said meanwhile."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import typer

from model_server import loading
from model_server.app import Card, create_app, serving
from model_server.chat import Host
from model_server.errors import LoadFailed
from model_server.loading import Settings
from model_server.metrics import Metrics
from model_server.models import Chosen
from model_server.scheduler import Limits
from model_server.service import Service


async def serve_until_stopped(chosen: Chosen, settings: Settings, host: str, port: int) -> None:
    metrics = Metrics(chosen.header.cell_bytes, settings.limits.cells)
    service = Service(partial(loading.load, chosen, settings), settings.limits, metrics.observe)
    stopped = _stop_signal()
    try:
        async with serving(create_app(service, card_of(chosen, settings.limits), metrics), host, port) as address:
            _announce(f"model server on {address}/v1, loading {chosen.name}")
            await _first(service.settled.wait, service.broken.wait, stopped.wait)
            if service.phase == "ready" and not stopped.is_set():
                _announce(_loaded(chosen, settings))
                await _first(service.broken.wait, stopped.wait)
    except OSError as error:
        raise LoadFailed(f"Cannot listen on {host}:{port}: {_reason(error)}.") from None
    if service.failure:
        raise service.failure


def card_of(chosen: Chosen, limits: Limits) -> Card:
    header, size = chosen.header, chosen.path.stat()
    host = Host(chosen.name, header.template, min(limits.cells, header.context_trained))
    return Card(host, chosen.path.name, size.st_size, header.quantisation, int(size.st_mtime))


def _loaded(chosen: Chosen, settings: Settings) -> str:
    cache = settings.limits.cells * chosen.header.cell_bytes / 1e6
    return (
        f"{chosen.name} ({chosen.header.quantisation}) is ready: {settings.threads} threads, "
        f"{settings.limits.cells} cells ({cache:,.0f} MB), {settings.limits.sequences} sequences"
    )


def _announce(words: str) -> None:
    typer.echo(words)
    sys.stdout.flush()


def _stop_signal() -> asyncio.Event:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


async def _first(*waits: Callable[[], Coroutine[Any, Any, object]]) -> None:
    tasks = [asyncio.create_task(wait()) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _reason(error: OSError) -> str:
    """asyncio repeats the address in its words. Failures of name look-up have negative numbers and good words."""
    number = error.errno or 0
    if number == errno.EADDRINUSE:
        return "the address is in use; choose another with --port"
    return os.strerror(number) if number > 0 else str(error.strerror or error)
