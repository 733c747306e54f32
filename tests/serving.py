"""A gateway in this process, and a client of it: real HTTP, a real store, the scripted provider."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import assel
from msgspec import Struct
from msgspec.structs import replace

from gateway.adapters.store.ahead import appends_in, tail_of
from gateway.adapters.store.tail import left_in
from gateway.adapters.tools.tool import Tool
from gateway.config import Config
from gateway.core.pricing import Price
from scripted.scripts import SCRIPTS, Call, Script, Step

QUESTION = "Which file mentions a timeout?"
PRICES = {"*": Price(input=Decimal(2), output=Decimal(12))}
SECONDS_MAX = 20
"""Longer than anything takes here; nothing waits for it unless it is broken."""


def calling(*calls: Call, answer: str = "Done.") -> Script:
    """A script that makes these calls in its first turn and then answers."""
    return Script("For tests.", (Step(turn=0, calls=calls), Step(text=answer)))


LONG_ANSWER = "It is a long answer, and says little. " * 60

TEST_SCRIPTS: Mapping[str, Script] = {
    **SCRIPTS,
    "acts": calling(Call("c1", "act")),
    "acts_twice": calling(Call("c1", "act"), Call("c2", "act")),
    "talks": Script("For tests.", (Step(text="errors.log mentions a timeout, and nothing else does."),)),
    "asks_client": calling(Call("c1", "weather", {"city": "Oslo"}), Call("c2", "weather", {"city": "Bergen"})),
    "two_deletes": calling(
        Call("c1", "delete_file", {"path": "access.log"}), Call("c2", "delete_file", {"path": "notes.txt"})
    ),
    "wordy": Script("For tests.", (Step(text=LONG_ANSWER),)),
    "deaf": Script("For tests.", (Step(text=LONG_ANSWER, ignores_max_tokens=True),)),
    "nonsense": calling(Call("c1", "no_such_tool"), Call("c2", "read_file", {"file": 3})),
}


class Got(Struct, frozen=True):
    """What a client received."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Money as exact decimals, as it was written."""
        return json.loads(self.body, parse_float=Decimal)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line, parse_float=Decimal) for line in self.body.splitlines()]

    @property
    def sse(self) -> list[assel.Event]:
        return assel.parse_bytes(self.body)


class Gateway:
    """A client of one gateway, and what that works on."""

    def __init__(self, url: str, session: aiohttp.ClientSession, config: Config) -> None:
        self.url = url
        self.session = session
        self.config = config
        self.workspace = Path(config.agents["files"].workspace or "")

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **params: Any,
    ) -> Got:
        sent = json.dumps(body).encode() if body is not None else data
        query = {name: str(value) for name, value in params.items()}
        async with self.session.request(method, self.url + path, data=sent, headers=headers, params=query) as response:
            return Got(response.status, response.headers, await response.read())

    async def get(self, path: str, **options: Any) -> Got:
        return await self.request("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Got:
        return await self.request("POST", path, body, **options)

    async def start(
        self, model: str = "plan", *, headers: Mapping[str, str] | None = None, wait: float = SECONDS_MAX, **fields: Any
    ) -> Got:
        """Start a run and wait until it stops; `wait=0` does not wait."""
        waiting = {"wait": wait} if wait else {}
        return await self.post("/v1/runs", {"input": QUESTION, "model": model, **fields}, headers=headers, **waiting)

    async def run(self, model: str = "plan", *, wait: float = SECONDS_MAX, **fields: Any) -> dict[str, Any]:
        """The run that was started."""
        got = await self.start(model, wait=wait, **fields)
        assert got.status == 201, got.body
        return got.json

    async def command(self, run_id: str, name: str, body: Any = None, **params: Any) -> Got:
        """Approve, reject, resume, cancel or tool_outputs, and what the run is when it has stopped again."""
        return await self.post(f"/v1/runs/{run_id}/{name}", body, **{"wait": SECONDS_MAX, **params})

    async def look(self, run_id: str, **params: Any) -> dict[str, Any]:
        return (await self.get(f"/v1/runs/{run_id}", **params)).json

    async def trace(self, run_id: str, **params: Any) -> list[dict[str, Any]]:
        return (await self.get(f"/v1/runs/{run_id}/events", **params)).lines

    async def until(self, run_id: str, kind: str, times: int = 1) -> dict[str, Any]:
        """Watch the run until an event of this kind, or so many, and return it."""
        async with self.session.get(f"{self.url}/v1/runs/{run_id}/events", params={"follow": "1"}) as response:
            async for line in response.content:
                event = json.loads(line)
                times -= event["type"] == kind
                if not times:
                    return event
        raise AssertionError(f"no {kind} came")

    async def metrics(self) -> dict[str, float]:
        """Every series with its labels, as it is exposed."""
        text = (await self.get("/metrics")).body.decode()
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {series: float(value) for series, value in pairs}

    def stored_runs(self) -> int:
        """How many runs the store has, read beside the gateway: the tail first, since what is in it moves."""
        path = Path(self.config.store.path)
        in_tail = {append.events[0] for append in appends_in(left_in(tail_of(path)))}
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return len(in_tail.union(id_ for (id_,) in connection.execute("SELECT id FROM runs")))

    async def begun(self, runs: int = 1) -> None:
        """Wait until the store has so many runs."""

        async def there() -> bool:
            return self.stored_runs() >= runs

        await eventually(there, f"{runs} runs")


Serve = Callable[..., AbstractAsyncContextManager[Gateway]]


def with_tools(config: Config, tools: Mapping[str, Tool]) -> Config:
    """The agent uses these besides the tools over its files."""
    if not tools:
        return config
    files = ("list_files", "read_file", "delete_file", "scan_archive")
    return replace(config, agents={**config.agents, "files": replace(config.agents["files"], tools=(*files, *tools))})


async def eventually(look: Callable[[], Awaitable[bool]], what: str, seconds: float = SECONDS_MAX) -> None:
    """Look again until it is so."""
    async with asyncio.timeout(seconds):
        while not await look():  # noqa: ASYNC110  what is looked at is behind HTTP
            await asyncio.sleep(0.005)


def refused(got: Got, status: int, code: str | None = None, *, words: str = "", param: str | None = None) -> None:
    """A problem with RFC 9457's members and OpenAI's error object, in words and with advice for client libraries."""
    assert got.status == status, got.body
    body = got.json
    assert got.headers["Content-Type"] == "application/problem+json"
    assert body["status"] == status
    assert body["type"].startswith("urn:problem:")
    assert body["title"]
    assert body["instance"].startswith("/")
    assert body["detail"].endswith((".", "?")), body["detail"]
    assert body["error"]["message"] == body["detail"]
    assert body["error"]["type"] == ("invalid_request_error" if status < 500 else "server_error")
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert ("Retry-After" in got.headers) or got.headers.get("x-should-retry") == "false" or status in (429, 503)
    assert not ("Retry-After" in got.headers and "x-should-retry" in got.headers)
    if code is not None:
        assert body["error"]["code"] == code
        assert body["type"] == f"urn:problem:{code}"
    if param is not None:
        assert body["error"]["param"] == param
    assert words in body["detail"]
