"""Two ways to do the three-turn run, under the same load: through the gateway, and as a bare client loop that records
nothing, checks nothing and stops for nothing. What the gateway costs is the difference.

Both are written as anybody would who has aiohttp and half an hour: its session, its JSON, asyncio's own event loop.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from msgspec import Struct

from gateway.bench.scenarios import QUESTION, SYSTEM

ANSWER = "errors.log mentions a timeout: worker 7 timed out after 30000 ms."

OneRun = Callable[[aiohttp.ClientSession], Awaitable[None]]


class WrongAnswer(Exception):
    """A run under load did not end as it should, so its timing means nothing."""


class Timing(Struct, frozen=True):
    """The seconds of each run, and of all of them together."""

    each: list[float]
    seconds: float

    def ms(self, quantile: float) -> float:
        ordered = sorted(self.each)
        return 1000 * ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]

    @property
    def runs_per_second(self) -> float:
        return len(self.each) / self.seconds


def merged(timings: Sequence[Timing]) -> Timing:
    return Timing([each for timing in timings for each in timing.each], sum(timing.seconds for timing in timings))


async def timed(one_run: OneRun, *, runs: int, concurrency: int) -> Timing:
    """So many runs by so many workers. Each worker has done one before, which does not count."""
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(one_run(session) for _ in range(concurrency)))
        each: list[float] = []
        left = iter(range(runs))

        async def worker() -> None:
            for _ in left:
                began = time.perf_counter()
                await one_run(session)
                each.append(time.perf_counter() - began)

        began = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(concurrency)))
        return Timing(each, time.perf_counter() - began)


class GatewayRun:
    """The run as a client of the gateway has it: one request, one answer."""

    def __init__(self, url: str, agent: str, **order: Any) -> None:
        self._url = f"{url}/v1/runs?wait=600"
        self._order = {"agent": agent, "input": QUESTION, **order}

    async def __call__(self, session: aiohttp.ClientSession) -> None:
        async with session.post(self._url, json=self._order) as response:
            run = await response.json()
        if run.get("output") != ANSWER:
            raise WrongAnswer(f"the gateway answered {response.status}: {run}")


class BareRun:
    """The same calls by a loop of a few lines."""

    def __init__(self, base_url: str, workspace: Path, tools: list[dict[str, Any]]) -> None:
        self._url = f"{base_url}/chat/completions"
        self._workspace = workspace
        self._tools = tools

    async def __call__(self, session: aiohttp.ClientSession) -> None:
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": QUESTION},
        ]
        while True:
            body = {"model": "plan", "messages": messages, "tools": self._tools}
            async with session.post(self._url, json=body) as response:
                reply = await response.json()
            message = reply["choices"][0]["message"]
            messages.append(message)
            calls = message.get("tool_calls")
            if not calls:
                break
            messages += [self._answer(call) for call in calls]
        if message["content"] != ANSWER:
            raise WrongAnswer(f"the bare loop came to {message}")

    def _answer(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        args = json.loads(function["arguments"])
        text = self._read(args["path"]) if function["name"] == "read_file" else self._list()
        return {"role": "tool", "tool_call_id": call["id"], "name": function["name"], "content": text}

    def _list(self) -> str:
        return json.dumps(sorted(path.name for path in self._workspace.iterdir()))

    def _read(self, name: str) -> str:
        return (self._workspace / name).read_text()
