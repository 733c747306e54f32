"""How a client is driven: orders come in as JSON lines, and what the client made of them goes out as JSON lines.

The process around the client is ours and the client is as its package has it. An order has `verb`, `base_url`, `api`
(chat or responses), `model`, `headers`, `question` and `stream`. An answer has what the client lets its user see, and
`raised` where it raised instead. Whatever a client prints goes to stderr.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

Verb = Callable[[Any], Awaitable[dict[str, Any]]]

NEXT_QUESTION = "And now?"
WEATHER = {"Oslo": "sun", "Bergen": "rain", "Rome": "wind"}


class Weather:
    """The client's own tool, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def of(self, city: str) -> str:
        self.asked.append(city)
        return WEATHER[city]


def answer(text: str | None, finish: Any, usage: tuple[Any, Any] | None, **more: Any) -> dict[str, Any]:
    """`usage` are the tokens in and out. Among the rest are `run_id`, `deltas` and `executed`."""
    return {"text": text, "finish": finish, "usage": usage and list(usage), **more}


def serve(**verbs: Verb) -> None:
    out, sys.stdout = sys.stdout, sys.stderr
    asyncio.run(_serve(verbs, out))


async def _serve(verbs: dict[str, Verb], out: Any) -> None:
    """Between orders the loop runs on, since some clients close their connections in the background."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await _answer(verbs, SimpleNamespace(**json.loads(line)))), file=out, flush=True)


async def _answer(verbs: dict[str, Verb], order: SimpleNamespace) -> dict[str, Any]:
    try:
        return await verbs[order.verb](order)
    except Exception as error:  # noqa: BLE001  whatever a client raises is its answer
        return {"raised": type(error).__name__, "words": str(error)}
