"""A model server of our own: `model-server serve` as a process, with weights that are cached already."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from gateway.bench.process import DidNotStart, Process, last_words

ANNOUNCE_SECONDS_MAX = 60.0
LOAD_SECONDS_MAX = 300.0
LOOK_SECONDS = 0.1
ANNOUNCED = re.compile(rb"model server on (http://\S+)/v1,")


@asynccontextmanager
async def model_server(model: str | None, log: Path) -> AsyncIterator[str]:
    """Its address with /v1, once the weights are loaded and warm. Raises DidNotStart with the server's own words."""
    command = [sys.executable, "-m", "model_server", "serve", "--port", "0", *(["--model", model] if model else [])]
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=errors)
    running = Process(process, "")
    try:
        running.url = await announced(process, log)
        await loaded(process, running.url, log)
        yield f"{running.url}/v1"
    finally:
        await running.stop()


async def announced(process: asyncio.subprocess.Process, log: Path) -> str:
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), ANNOUNCE_SECONDS_MAX)
    except TimeoutError:
        line = b""
    if found := ANNOUNCED.match(line):
        return found[1].decode()
    raise DidNotStart(f"The model server did not start: {last_words(log) or 'it said nothing'}")


async def loaded(process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    try:
        async with asyncio.timeout(LOAD_SECONDS_MAX), aiohttp.ClientSession() as session:
            while process.returncode is None:
                if await is_ready(session, url):
                    return
                await asyncio.sleep(LOOK_SECONDS)
    except (TimeoutError, aiohttp.ClientError):
        pass
    raise DidNotStart(f"The model server did not load its model: {last_words(log) or 'it said nothing'}")


async def is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    async with session.get(f"{url}/readyz") as response:
        return response.status == 200
