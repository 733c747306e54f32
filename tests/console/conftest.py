"""Fixtures that drive the console in Debian's Chromium, against a gateway in this process."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace
from playwright.async_api import Browser, async_playwright

from gateway.adapters.tools.sample import write_workspace
from gateway.adapters.tools.tool import Tool
from gateway.app import serving
from gateway.config import AgentConfig, Config
from gateway.core.ports import ToolContext
from gateway.core.run import ToolSpec
from scripted.app import create_app as create_scripted
from scripted.app import serving as serving_scripted
from scripted.scripts import Call, Script, Step
from tests.console.driving import ARGUMENTS, Console, Open
from tests.serving import TEST_SCRIPTS, Gateway, Serve

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
MARKUP = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\"><b>bold</b>"
EVIL = Script(
    "Says and asks for markup.",
    (
        Step(
            turn=0,
            text=MARKUP,
            calls=(Call("c1", "read_file", {"path": MARKUP}), Call("c2", "act", {"note": MARKUP})),
        ),
        Step(text=MARKUP),
    ),
)


@pytest.fixture
async def provider() -> AsyncIterator[str]:
    """Scripts of these tests besides those of all."""
    async with serving_scripted(create_scripted(scripts={**TEST_SCRIPTS, "evil": EVIL})) as address:
        yield f"{address}/v1"


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        await browser.close()


@pytest.fixture
async def open_console(browser: Browser) -> AsyncIterator[Open]:
    """Opens the console of a gateway. Afterwards no page may have had an error or asked anybody else for anything."""
    opened: list[Console] = []

    async def open_console(
        gateway: Gateway, path: str = "", *, width: int = 1440, height: int = 900, theme: str = "light"
    ) -> Console:
        context = await browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
        )
        console = Console(await context.new_page(), gateway)
        opened.append(console)
        await console.go(path)
        return console

    yield open_console
    for console in opened:
        await console.close()
        console.require_clean()


@pytest.fixture
async def console(gateway: Gateway, open_console: Open) -> Console:
    """The list of runs of the plain gateway, closed before it ends."""
    return await open_console(gateway)


@pytest.fixture
async def patient(serve: Serve) -> AsyncIterator[Gateway]:
    """A gateway whose tool `act` tells how far it has come, and ends only when it is called the second time."""
    calls: list[str] = []

    async def act(args: dict[str, Any], ctx: ToolContext) -> str:
        calls.append(ctx.idempotency_key)
        ctx.progress("scanned 200 of 1200 files")
        await asyncio.sleep(3600 if len(calls) == 1 else 0)
        return "All 1200 files were scanned."

    spec = ToolSpec(name="act", description="Scans.", parameters={"type": "object"}, read_only=True)
    async with serve(tools={"act": Tool(spec, act)}) as gateway:
        yield gateway


@pytest.fixture
async def leading(config: Config) -> AsyncIterator[Gateway]:
    """A gateway whose agent `lead` asks `research`, which deletes a file if it may."""
    files = config.agents["files"]
    write_workspace(Path(files.workspace or ""))
    research = replace(files, about="Looks into one question.", model="destructive")
    agents: Mapping[str, Any] = {
        "files": files,
        "research": research,
        "lead": AgentConfig(model="delegate", system="Ask.", subagents=("research",)),
    }
    async with serving(replace(config, agents=agents)) as url, aiohttp.ClientSession() as session:
        yield Gateway(url, session, config)
