"""One conversation with the gateway: what goes wrong in it becomes one sentence and an exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import typer
from msgspec import Struct

from gateway.cli.exits import Exit, fail
from gateway.cli.options import Connection
from gateway.client import Gateway, GatewayProblem, GatewayUnreachable

T = TypeVar("T")


class Told(Struct, Generic[T]):
    """What a conversation came to, and the last body as it came, for --json."""

    value: T
    body: bytes


class Remembering(Gateway):
    """Keeps the last body, so that --json can print it to the byte."""

    body = b""

    async def request(self, *args: Any, **options: Any) -> bytes:
        self.body = await super().request(*args, **options)
        return self.body


def talk(connection: Connection, about: Callable[[Gateway], Awaitable[T]]) -> Told[T]:
    async def conversation() -> Told[T]:
        async with Remembering(connection.url, connection.api_key) as gateway:
            value = await about(gateway)
            return Told(value, gateway.body)

    try:
        return asyncio.run(conversation())
    except GatewayUnreachable as error:
        fail(str(error), Exit.UNREACHABLE)
    except GatewayProblem as problem:
        if connection.as_json and problem.body is not None:
            typer.echo(problem.body)
        fail(words_of(problem), Exit.PROBLEM)
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(Exit.CANCELLED) from None


def words_of(problem: GatewayProblem) -> str:
    field = f"\nField: {problem.param}" if problem.param else ""
    key = "\nGive the key with --api-key, or in $GATEWAY_API_KEY." if problem.status == 401 else ""
    return f"{problem.title or 'Refused'} ({problem.status}): {problem.detail}{field}{key}"
