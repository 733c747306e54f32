"""`gateway serve`: the configuration, with what the command line says instead."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gateway import app, config
from gateway.cli.exits import Exit, fail
from gateway.core.errors import GatewayError

S = TypeVar("S", bound=Struct)


def serve(path: str | None, *, host: str | None, port: int | None, store: str | None, log_format: str | None) -> None:
    try:
        loaded = config.load(path)
    except GatewayError as error:
        fail(str(error), Exit.USAGE)
    chosen = replace(
        loaded,
        server=instead(loaded.server, host=host, port=port),
        store=instead(loaded.store, path=store),
        log=instead(loaded.log, format=log_format),
    )
    try:
        app.main(chosen)
    except GatewayError as error:
        fail(str(error), Exit.FAILED)


def instead(struct: S, **given: object) -> S:
    """The struct with the fields that were given."""
    return replace(struct, **{name: value for name, value in given.items() if value is not None})
