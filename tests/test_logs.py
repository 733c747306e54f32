"""The log: a line a request, as text or as JSON, without secrets."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from gateway.adapters.providers.settings import ProviderSettings
from gateway.adapters.tools.settings import FunctionSettings, HttpSettings, ToolSettings
from gateway.config import Config, secrets_of
from gateway.edge.access import log as requests_log
from gateway.edge.auth import ApiKey
from gateway.logs import JsonLines, Mask, TextLines
from tests.serving import Gateway, eventually


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """What the lines of requests say."""
    kept: list[dict[str, Any]] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(vars(record)["fields"])

    handler, level = Keeping(), requests_log.level
    requests_log.addHandler(handler)
    requests_log.setLevel(logging.INFO)
    yield kept
    requests_log.removeHandler(handler)
    requests_log.setLevel(level)


async def test_each_request_is_a_line_with_its_path_template_status_time_and_run(
    gateway: Gateway, lines: list[dict[str, Any]]
) -> None:
    run = await gateway.run("plan")
    await gateway.look(run["id"])
    await gateway.get("/metrics")

    assert [{name: value for name, value in line.items() if name != "ms"} for line in lines] == [
        {"method": "POST", "path": "/v1/runs", "status": 201, "run": run["id"]},
        {"method": "GET", "path": "/v1/runs/{run_id}", "status": 200, "run": run["id"]},
        {"method": "GET", "path": "/metrics", "status": 200},
    ]
    assert all(0 < line["ms"] < 20_000 for line in lines)


async def test_refusals_are_lines_and_nothing_that_came_from_outside_stands_in_them(
    gateway: Gateway, lines: list[dict[str, Any]]
) -> None:
    await gateway.get("/v1/runs/made-up-name")
    await gateway.get("/no/such/route-with-a-name")
    await gateway.post("/v1/runs", {"input": 1})

    assert [(line["path"], line["status"]) for line in lines] == [
        ("/v1/runs/{run_id}", 404),
        ("-", 404),
        ("/v1/runs", 400),
    ]
    assert "made-up" not in str(lines)


async def test_a_client_that_went_away_is_a_499(gateway: Gateway, lines: list[dict[str, Any]]) -> None:
    with pytest.raises(TimeoutError):
        await gateway.session.post(
            f"{gateway.url}/v1/runs?wait=20",
            json={"input": "x", "model": "plan@latency=3000"},
            timeout=aiohttp.ClientTimeout(total=0.2),
        )

    async def written() -> bool:
        return bool(lines)

    await eventually(written, "a line")

    assert [line["status"] for line in lines] == [499]


async def test_above_info_there_are_no_lines(gateway: Gateway, lines: list[dict[str, Any]]) -> None:
    requests_log.setLevel(logging.WARNING)

    await gateway.run("plan")

    assert lines == []


# --- formats --------------------------------------------------------------------------------------------------------


QUOTED = "qu'ote-" + "sesame"  # which JSON would write differently, and which no line of source holds


def record(message: str, *args: object, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("gateway.x", logging.WARNING, __file__, 1, message, args, None)
    vars(made).update(extra)
    return made


def test_a_line_of_json_is_one_object() -> None:
    line = JsonLines(Mask([])).format(record("two\nlines %d", 3, fields={"status": 200, "run": "r1"}))

    assert "\n" not in line
    said = json.loads(line)
    assert said.pop("time").endswith("Z")
    assert said == {"level": "warning", "logger": "gateway.x", "message": "two\nlines 3", "status": 200, "run": "r1"}


def test_a_line_of_text_names_its_fields() -> None:
    line = TextLines(Mask([])).format(record("request", fields={"method": "GET", "ms": 1.5}))

    assert line.endswith(" WARNING gateway.x: request method=GET ms=1.5")


@pytest.mark.parametrize("lines", [JsonLines, TextLines])
def test_a_traceback_is_in_the_line_and_masked(lines: Any) -> None:
    try:
        raise ValueError(f'the key is "{QUOTED}"')
    except ValueError:
        line = lines(Mask([QUOTED])).format(record("it failed", exc_info=sys.exc_info()))

    assert "ValueError: the key is" in line
    assert "sesame" not in line


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("the key sesame-open", "the key ***"),
        ("sesame-open, sesame-open-wide", "***, ***"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer ***"),
        ("Incorrect API key provided: sk-abcdefgh12345.", "Incorrect API key provided: sk-***"),
        ("a risk-averse desk-bound bearer of news", "a risk-averse desk-bound bearer of news"),
    ],
)
def test_secrets_and_what_looks_like_keys_are_masked(text: str, masked: str) -> None:
    assert Mask(["sesame-open", "sesame-open-wide", "a"])(text) == masked


def test_every_secret_of_the_configuration_is_known(config: Config) -> None:
    provider = ProviderSettings(base_url="http://x/v1", api_key="provider-key", headers={"X-Key": "header-key"})
    server = replace(config.server, keys=(ApiKey(key="server-key"),))

    tools: dict[str, ToolSettings] = {
        "ours": FunctionSettings(function="ours:act", description="Acts."),
        "theirs": HttpSettings(url="http://x/act", description="Acts.", headers={"Authorization": "Bearer tool-key"}),
    }

    found = secrets_of(replace(config, provider=provider, server=server, tools=tools))

    assert set(found) == {"provider-key", "header-key", "server-key", "Bearer tool-key"}


# --- the process ----------------------------------------------------------------------------------------------------


def test_the_command_writes_json_lines_and_no_key(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text('[server]\nport = 0\nkeys = [{ key = "open-sesame-7" }]\n')
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(config), "--log-format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        asked = urllib.request.Request(f"{url}/v1/runs?limit=1", headers={"Authorization": "Bearer open-sesame-7"})
        urllib.request.urlopen(asked).close()
        process.terminate()
        _, errors = process.communicate(timeout=20)

    said = [json.loads(line) for line in errors.splitlines()]
    requests = [line for line in said if line["logger"] == "gateway.requests"]
    assert [(line["method"], line["path"], line["status"]) for line in requests] == [("GET", "/v1/runs", 200)]
    assert "sesame" not in errors


def test_a_line_is_cheap() -> None:
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(JsonLines(Mask(["open-sesame-7", "another-key"])))
    made = record("request", fields={"method": "POST", "path": "/v1/runs", "status": 201, "ms": 3.1, "run": "run_1"})
    began = time.perf_counter()
    for _ in range(2000):
        handler.handle(made)

    assert (time.perf_counter() - began) / 2000 < 0.0003
