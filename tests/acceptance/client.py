"""A patient client of the gateway: it repeats what it did not see answered, and knows no more than HTTP tells it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from decimal import Decimal
from typing import Any

import aiohttp

Body = dict[str, Any]
Person = Callable[[Body], tuple[str, Body] | None]
"""What somebody does about a run that has stopped: a call below it and its body, or nothing."""

GONE = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError)
"""How a gateway that dies looks from outside."""

WAIT_SECONDS = 30


class Client:
    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url

    async def call(self, method: str, path: str, body: Body | None = None, **headers: str) -> Body:
        """Raises one of GONE if the gateway dies meanwhile, AssertionError for a refusal."""
        async with self._http.request(method, f"{self._url}/v1/runs{path}", json=body, headers=headers) as response:
            text = await response.text()
        assert response.status < 300, f"{method} {path}: {response.status} {text}"
        return json.loads(text, parse_float=Decimal)

    async def start(self, order: Body, key: str) -> str:
        """Start the run, or join it if it was started under this key before."""
        return (await self.call("POST", "", order, **{"Idempotency-Key": key}))["id"]

    async def get(self, run_id: str) -> Body:
        return await self.call("GET", f"/{run_id}")

    async def stopped(self, run_id: str) -> Body:
        return await self.call("GET", f"/{run_id}?wait={WAIT_SECONDS}")

    async def act(self, run_id: str, call: str, body: Body) -> Body:
        return await self.call("POST", f"/{run_id}/{call}?wait={WAIT_SECONDS}", body)

    async def carry_through(self, order: Body, key: str, person: Person) -> Body:
        """From the start to an end about which the person does nothing more."""
        run = await self.stopped(await self.start(order, key))
        while deed := person(run):
            run = await self.act(run["id"], *deed)
        return run

    async def watch(self, run_id: str) -> AsyncGenerator[Body, None]:
        """Its events as they are recorded."""
        async with self._http.get(f"{self._url}/v1/runs/{run_id}/events") as response:
            async for line in response.content:
                yield json.loads(line, parse_float=Decimal)

    async def trace(self, run_id: str) -> list[Body]:
        """The events of a run that has stopped."""
        async with self._http.get(f"{self._url}/v1/runs/{run_id}/events") as response:
            lines = (await response.text()).splitlines()
        return [json.loads(line, parse_float=Decimal) for line in lines]


def nobody(run: Body) -> None:
    """Leaves every stop as it is."""


def approver(run: Body) -> tuple[str, Body] | None:
    if run["reason"] != "approval":
        return None
    call = run["pending_approvals"][0]
    return "approve", {"call_id": call["call_id"], "args_hash": call["args_hash"]}


def decliner(run: Body) -> tuple[str, Body] | None:
    if run["reason"] != "approval":
        return None
    return "reject", {"call_id": run["interruption"]["call_id"], "reason": "keep the log."}


def caller(run: Body) -> tuple[str, Body] | None:
    """Runs the client's own tools."""
    if run["reason"] != "tool_outputs":
        return None
    outputs = [{"call_id": call_id, "output": "sunny, 21 °C"} for call_id in run["interruption"]["call_ids"]]
    return "tool_outputs", {"outputs": outputs}
