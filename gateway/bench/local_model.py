"""A model server of our own: `model-server serve` as a process, with weights that are cached already."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from gateway.bench.process import DidNotStart, Process, announced, last_words

ANNOUNCE_SECONDS_MAX = 60.0
LOAD_SECONDS_MAX = 300.0
LOOK_SECONDS = 0.1
ANNOUNCED = re.compile(rb"model server on (http://\S+)/v1,")


@asynccontextmanager
async def model_server(model: str | None, log: Path) -> AsyncIterator[str]:
    """Its address with /v1, once the weights are loaded and warm. Raises DidNotStart with the server's own words."""
    command = [sys.executable, "-m", "model_server", "serve", "--port", "0", *(["--model", model] if model else [])]
    async with announced("The model server", command, ANNOUNCED, log, seconds_max=ANNOUNCE_SECONDS_MAX) as process:
        await loaded(process, log)
        yield f"{process.url}/v1"


async def loaded(process: Process, log: Path) -> None:
    try:
        async with asyncio.timeout(LOAD_SECONDS_MAX), aiohttp.ClientSession() as session:
            while process.is_running:
                if await is_ready(session, process.url):
                    return
                await asyncio.sleep(LOOK_SECONDS)
    except (TimeoutError, aiohttp.ClientError):
        pass
    raise DidNotStart(f"The model server did not load its model: {last_words(log)}")


async def is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    async with session.get(f"{url}/readyz") as response:
        return response.status == 200
