"""What the console is made of, as it is served: its files, its policy, the agents, and which runs have changed."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import aiohttp
import pytest

from gateway.edge.auth import ApiKey
from gateway.edge.console_files import console_files
from gateway.service import changes
from tests.serving import Gateway, Serve, refused

SSE = {"Accept": "text/event-stream"}
KEYS = {"keys": (ApiKey(key="full-key"),)}


async def test_the_console_is_one_page_under_a_strict_policy(gateway: Gateway) -> None:
    got = await gateway.get("/")

    assert got.status == 200
    assert got.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = got.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'self'")
    assert "unsafe" not in policy
    assert got.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", sorted(console_files()))
async def test_every_file_is_served_and_asks_nobody_else_for_anything(gateway: Gateway, name: str) -> None:
    got = await gateway.get(f"/console/{name}")

    assert got.status == 200
    assert got.headers["Cache-Control"] == "no-cache"
    foreign = re.findall(rb"https?://(?!www\.w3\.org/2000/svg)[^\s\"']+", got.body)
    assert foreign == []
    assert b"innerHTML" not in got.body
    assert len(got.body.splitlines()) < 400


async def test_every_file_that_a_file_names_is_there(gateway: Gateway) -> None:
    named = {name for name, file in console_files().items() for name in re.findall(rb"/console/[\w/.]+", file.content)}
    imported = {
        name for file in console_files().values() for name in re.findall(rb"from \"\./([\w.]+)\"", file.content)
    }

    for path in [*(name.decode() for name in named), *(f"/console/modules/{name.decode()}" for name in imported)]:
        assert (await gateway.get(path)).status == 200, path


async def test_a_browser_that_has_a_file_is_not_sent_it_again(gateway: Gateway) -> None:
    etag = (await gateway.get("/console/base.css")).headers["ETag"]

    again = await gateway.get("/console/base.css", headers={"If-None-Match": f'"other", W/{etag}'})
    other = await gateway.get("/console/base.css", headers={"If-None-Match": '"other"'})

    assert (again.status, again.body, again.headers["ETag"]) == (304, b"", etag)
    assert other.status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/console/",
        "/console/nothing.js",
        "/console/modules/",
        "/console/modules",
        "/console/../auth.py",
        "/console/..%2fauth.py",
        "/console/modules/..%2f..%2fauth.py",
        "/console/%2e%2e/auth.py",
        "/console//etc/passwd",
        "/console/%00",
    ],
)
async def test_a_path_names_a_file_of_the_console_or_nothing(gateway: Gateway, path: str) -> None:
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())  # as it stands
    answer = await reader.read()
    writer.close()

    assert answer.split(b" ", 2)[1] == b"404", answer


async def test_no_file_is_left_out_of_what_is_served() -> None:
    folder = Path(changes.__file__).parents[1] / "edge" / "console"
    files = {str(path.relative_to(folder)) for path in folder.rglob("*.*") if path.suffix != ".png"}
    assert set(console_files()) == files


async def test_the_page_needs_no_key_and_what_it_shows_does(serve: Serve) -> None:
    async with serve(server=KEYS) as gateway:
        assert (await gateway.get("/")).status == 200
        assert (await gateway.get("/console/modules/main.js")).status == 200
        refused(await gateway.get("/v1/agents"), 401)
        refused(await gateway.get("/v1/runs/changes", headers=SSE), 401)


async def test_agents_are_listed_with_what_their_runs_are_held_to(gateway: Gateway) -> None:
    body = (await gateway.get("/v1/agents")).json

    [agent] = body["agents"]
    assert (agent["name"], agent["model"]) == ("files", "plan")
    assert agent["tools"] == ["list_files", "read_file", "delete_file", "scan_archive"]
    assert agent["limits"]["max_turns"] == 20
    assert agent["policies"]["dedupe"] == "off"
    refused(await gateway.get("/v1/agents", x="y"), 400, param="x")


async def test_whoever_watches_is_told_of_every_change_and_of_the_end_at_last(gateway: Gateway) -> None:
    seen: dict[str, str] = {}
    async with gateway.session.get(f"{gateway.url}/v1/runs/changes", headers=SSE) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        runs = {(await gateway.run(model))["id"] for model in ("once", "destructive")}
        while set(seen) < runs or "running" in seen.values():
            seen |= await next_changes(response)

    assert sorted(seen.values()) == ["completed", "interrupted"]
    assert set(seen) == runs


async def next_changes(response: aiohttp.ClientResponse) -> dict[str, str]:
    """The statuses in the next event, by run."""
    async with asyncio.timeout(10):
        while not (line := await response.content.readline()).startswith(b"data:"):
            assert line
    return {run["id"]: run["status"] for run in json.loads(line[5:])["runs"]}


async def test_only_so_many_watch_at_once(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "WATCHERS_MAX", 1)
    async with gateway.session.get(f"{gateway.url}/v1/runs/changes", headers=SSE):
        refused(await gateway.get("/v1/runs/changes"), 429, words="watch the runs already")
