"""Liveness, readiness, and the description of the API."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gateway import app as gateway_app
from gateway.adapters.store.sqlite import SqliteStore
from gateway.core.errors import Unavailable
from gateway.core.run import Status
from tests.serving import Gateway, Serve, refused


async def test_a_process_that_lives_says_so_and_its_version(gateway: Gateway) -> None:
    got = await gateway.get("/healthz")

    assert (got.status, got.json) == (200, {"status": "ok", "version": gateway_app.VERSION})


async def test_it_is_ready_when_store_and_provider_answer(gateway: Gateway) -> None:
    got = await gateway.get("/readyz")

    assert (got.status, got.json) == (200, {"status": "ready", "checks": {"store": "ok", "provider": "ok"}})


async def test_it_is_not_ready_without_its_provider(serve: Serve) -> None:
    async with serve(settings={"base_url": "http://127.0.0.1:9/v1"}) as gateway:
        got = await gateway.get("/readyz")

        assert got.status == 503
        assert got.json["status"] == "not ready"
        assert got.json["checks"]["store"] == "ok"
        assert got.json["checks"]["provider"].startswith("the provider gave no answer")
        assert (await gateway.get("/healthz")).status == 200


async def test_a_provider_that_never_answers_does_not_hold_the_probe_up(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_app, "PROBE_SECONDS_MAX", 0.05)

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(never, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        async with serve(settings={"base_url": f"http://127.0.0.1:{port}/v1"}) as gateway:
            got = await gateway.get("/readyz")

    assert got.status == 503
    assert got.json["checks"]["provider"] == "no answer within 0.05 s"


async def test_it_is_not_ready_without_its_store_and_its_metrics_are_still_shown(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: Any, *args: Any, **options: Any) -> Any:
        raise Unavailable("the store is down.")

    monkeypatch.setattr(SqliteStore, "count", fails)

    ready, metrics = await gateway.get("/readyz"), await gateway.get("/metrics")

    assert (ready.status, ready.json["checks"]["store"]) == (503, "the store is down.")
    assert metrics.status == 200
    assert b"gateway_approvals_pending NaN" in metrics.body


# --- /openapi.json --------------------------------------------------------------------------------------------------


@pytest.fixture
async def description(gateway: Gateway) -> Any:
    got = await gateway.get("/openapi.json")
    assert got.status == 200
    return got.json


def operations(description: Any) -> list[tuple[str, str, Any]]:
    return [
        (method, path, operation) for path, item in description["paths"].items() for method, operation in item.items()
    ]


async def test_every_route_is_described(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    apps: list[web.Application] = []
    make = gateway_app.application
    monkeypatch.setattr(gateway_app, "application", lambda *args: apps.append(made := make(*args)) or made)
    async with serve() as gateway:
        description = (await gateway.get("/openapi.json")).json

    served = {
        (route.method.lower(), route.resource.canonical)
        for route in apps[0].router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    described = {(method, path) for method, path, _ in operations(description)}
    assert {(method, path) for method, path in served if path.startswith(("/v1", "/metrics", "/healthz"))} <= described
    assert described <= served


async def test_the_description_is_openapi_and_its_references_lead_somewhere(description: Any) -> None:
    assert re.fullmatch(r"3\.1\.\d", description["openapi"])
    assert {"title", "version"} <= description["info"].keys()
    schemas = description["components"]["schemas"]
    refs = list(all_refs(description))
    assert refs
    assert {ref.removeprefix("#/components/schemas/") for ref in refs} <= schemas.keys()
    assert {"StartRun", "RunBody", "Problem"} <= schemas.keys()


def all_refs(node: Any) -> list[str]:
    if isinstance(node, list):
        return [ref for item in node for ref in all_refs(item)]
    if isinstance(node, dict):
        here = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return here + [ref for value in node.values() for ref in all_refs(value)]
    return []


async def test_every_operation_is_complete(description: Any) -> None:
    found = operations(description)
    assert len({operation["operationId"] for _, _, operation in found}) == len(found)
    for _, path, operation in found:
        names = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
        assert names == set(re.findall(r"{(\w+)}", path))
        assert all(parameter["required"] for parameter in operation["parameters"] if parameter["in"] == "path")
        assert all("schema" in parameter for parameter in operation["parameters"])
        assert operation["summary"].endswith(".")
        assert any(status.startswith("2") for status in operation["responses"])
        assert all(response["description"] for response in operation["responses"].values())
        assert {"401", "403"} <= operation["responses"].keys()
        for status, response in operation["responses"].items():
            assert (status[0] in "45") == ("application/problem+json" in response.get("content", {}))


def parameters(description: Any, method: str, path: str) -> dict[str, Any]:
    return {each["name"]: each for each in description["paths"][path][method]["parameters"]}


async def test_the_headers_by_which_openais_calls_steer_a_run_are_described(description: Any) -> None:
    steering = {"X-Gateway-Conversation", "X-Run-Id", "X-Gateway-Max-Turns", "X-Gateway-Max-Budget-Usd"}
    steering |= {"Idempotency-Key", "X-Gateway-Cancel-On-Disconnect"}

    chat = parameters(description, "post", "/v1/chat/completions")
    responses = parameters(description, "post", "/v1/responses")

    assert chat.keys() == {*steering, "X-Gateway-Progress"}
    assert responses.keys() == steering, "their streams have no place for progress"
    assert {each["in"] for each in (*chat.values(), *responses.values())} == {"header"}


async def test_bounds_are_described_as_they_are_checked(gateway: Gateway, description: Any) -> None:
    listing = parameters(description, "get", "/v1/runs")

    assert listing["status"]["schema"]["enum"] == [status.value for status in Status]
    limit, text = listing["limit"]["schema"]["maximum"], "x" * listing["text"]["schema"]["maxLength"]
    assert (await gateway.get("/v1/runs", limit=limit, text=text)).status == 200
    refused(await gateway.get("/v1/runs", limit=limit + 1), 400, param="limit")
    refused(await gateway.get("/v1/runs", text=text + "x"), 400, param="text")
    wait = parameters(description, "get", "/v1/runs/{run_id}")["wait"]["schema"]["maximum"]
    refused(await gateway.get("/v1/runs/run_0", wait=wait + 1), 400, param="wait")


async def test_what_the_description_leaves_out_is_refused_and_what_it_lists_is_taken(gateway: Gateway) -> None:
    description = (await gateway.get("/openapi.json")).json
    start = description["components"]["schemas"]["StartRun"]

    assert start["additionalProperties"] is False
    assert "input" in start["required"]
    refused(await gateway.post("/v1/runs", {"input": "x", "nonsense": 1}), 400, param="nonsense")


# --- the embedded provider ------------------------------------------------------------------------------------------


async def test_without_a_provider_the_scripted_one_is_embedded(serve: Serve, tmp_path: Path) -> None:
    async with serve(provider=None) as gateway:
        assert (await gateway.get("/readyz")).status == 200
        assert (await gateway.run("plan"))["status"] == "completed"
