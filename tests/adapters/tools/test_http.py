"""Tools over HTTP: what is sent, what comes back, and every way in which it can go wrong, in words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from ipaddress import ip_address
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from msgspec.structs import replace

from gateway.adapters.dotted import CannotLoad
from gateway.adapters.tools.http import http_tool, is_public
from gateway.adapters.tools.settings import HttpSettings
from gateway.adapters.tools.toolbox import LocalToolbox
from gateway.app import serving
from gateway.config import Config, ConfigError, load
from gateway.core.errors import ToolFailed
from tests.adapters.tools.test_toolbox import Context, run_of


class Server:
    """Answers as it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answer = web.Response(text="sunny")
        self.asked: list[tuple[dict[str, str], Any]] = []
        self.wait_seconds = 0.0
        self.breaks_off = False
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((dict(request.headers), json.loads(await request.read())))
        await asyncio.sleep(self.wait_seconds)
        if self.breaks_off and request.transport is not None:
            request.transport.close()
        return self.answer


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_post("/weather", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/weather"
    yield server
    await runner.cleanup()


def settings(url: str, **changes: Any) -> HttpSettings:
    return HttpSettings(**{"url": url, "description": "The weather.", "allow_private": True, **changes})


async def use(settings: HttpSettings, args: dict[str, Any] | None = None, ctx: Context | None = None) -> str:
    tool = http_tool("weather", settings)
    return await LocalToolbox({"files": {"weather": tool}}).use(run_of(), tool.spec, args or {}, ctx or Context())


async def failure(settings: HttpSettings) -> ToolFailed:
    with pytest.raises(ToolFailed) as failed:
        await use(settings)
    return failed.value


async def test_the_arguments_are_posted_with_the_headers_and_the_calls_own_key(server: Server) -> None:
    context = Context()

    text = await use(settings(server.url, headers={"X-Key": "secret"}), {"city": "Zürich"}, context)

    assert text == "sunny"
    [(headers, args)] = server.asked
    assert args == {"city": "Zürich"}
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == context.idempotency_key
    assert headers["X-Key"] == "secret"


@pytest.mark.parametrize(("status", "permanent"), [(401, True), (403, True), (404, True), (400, False), (500, False)])
async def test_an_error_is_told_in_the_servers_words(server: Server, status: int, permanent: bool) -> None:
    server.answer = web.Response(status=status, text="no such\ncity.")

    failed = await failure(settings(server.url))

    assert (str(failed), failed.permanent) == (f"weather answered {status}: no such city.", permanent)


async def test_a_redirect_is_not_followed(server: Server) -> None:
    server.answer = web.Response(status=302, headers={"Location": "http://169.254.169.254/"})

    failed = await failure(settings(server.url))

    assert "302: a redirect to http://169.254.169.254/, which is not followed" in str(failed)
    assert len(server.asked) == 1


async def test_a_long_answer_is_cut_and_says_so(server: Server) -> None:
    server.answer = web.Response(text="é" * 1000)

    assert await use(settings(server.url, reply_bytes_max=5)) == "éé… [cut: only the first 5 bytes are read]"


async def test_a_slow_answer_is_given_up_in_words(server: Server) -> None:
    server.wait_seconds = 5

    assert str(await failure(settings(server.url, timeout_seconds=0.05))) == "weather took longer than 0.05 s."


async def test_nobody_there_and_an_answer_that_breaks_off_are_told_apart(server: Server) -> None:
    away = await failure(settings("http://127.0.0.1:9/weather"))
    server.breaks_off = True
    broken = await failure(settings(server.url))

    assert str(away).startswith("weather cannot be reached: ")
    assert str(broken).startswith("weather gave no whole answer, and may have done it: ")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "10.0.0.1", "169.254.169.254"])
async def test_no_private_address_is_connected_to_unless_it_is_allowed(server: Server, host: str) -> None:
    url = server.url.replace("127.0.0.1", host)

    failed = await failure(settings(url, allow_private=False))

    assert failed.permanent
    assert str(failed).endswith("which is private.")
    assert server.asked == []


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700:4700::1111", True),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::808:808", True),
        ("2002:7f00:1::", False),
    ],
)
def test_what_is_on_the_public_internet(address: str, public: bool) -> None:
    assert is_public(ip_address(address)) is public


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"url": "ftp://example.com/x"}, "must begin with http"),
        ({"url": "https:///x"}, "must begin with http"),
        ({"parameters": {"type": "string"}}, "must be the JSON Schema of an object"),
    ],
)
def test_what_cannot_be_called_is_refused_at_the_start(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CannotLoad, match=words):
        http_tool("weather", settings(**{"url": "https://example.com/x", **changes}))


def test_keys_in_headers_are_not_shown() -> None:
    assert "secret" not in repr(settings("https://example.com", headers={"Authorization": "Bearer secret"}))


def test_a_table_with_a_url_is_a_tool_over_http(tmp_path: Any) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(
        '[tools.weather]\nurl = "https://example.com/weather"\ndescription = "The weather."\n'
        'headers = { Authorization = "env:KEY" }\n'
        '[tools.add]\nfunction = "mytools:add"\n'
    )

    tools = load(str(file), {"KEY": "secret"}).tools

    assert isinstance(tools["weather"], HttpSettings)
    assert tools["weather"].headers == {"Authorization": "secret"}
    file.write_text('[tools.weather]\nurl = "https://example.com/weather"\n')
    with pytest.raises(ConfigError, match="description"):
        load(str(file), {})


@pytest.mark.parametrize("table", ["otel", "provider", "tools.weather"])
def test_headers_that_no_request_can_carry_are_refused_wherever_they_are_configured(table: str, tmp_path: Any) -> None:
    needed = {
        "otel": "",
        "provider": 'base_url = "http://localhost/v1"\n',
        "tools.weather": 'url = "http://localhost/weather"\ndescription = "The weather."\n',
    }
    file = tmp_path / "gateway.toml"
    file.write_text(f"[{table}]\n{needed[table]}" + 'headers = { X-One = "env:KEY" }\n')

    with pytest.raises(ConfigError, match="X-One has a line break or a null in it") as raised:
        load(str(file), {"KEY": "secret\n"})

    assert "secret" not in str(raised.value)


async def test_an_agent_uses_a_tool_over_http(server: Server, config: Config) -> None:
    act = settings(server.url, idempotent=True)
    agents = {"files": replace(config.agents["files"], tools=("act",))}
    async with serving(replace(config, tools={"act": act}, agents=agents)) as url, aiohttp.ClientSession() as session:
        order = {"input": "Act.", "model": "acts"}
        async with session.post(f"{url}/v1/runs?wait=10", json=order) as response:
            run = await response.json()

    assert run["status"] == "completed"
    assert [message["content"] for message in run["messages"] if message["role"] == "tool"] == ["sunny"]
    assert server.asked[0][0]["Idempotency-Key"] == f"{run['id']}:1:0"
