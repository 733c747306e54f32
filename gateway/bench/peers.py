"""Other proxies, where `make peers` has installed them: how each is started in front of the scripted provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import psutil
from msgspec import Struct

from gateway.bench.process import DidNotStart, free_port, stopped

PEERS_FOLDER = Path(".peers")
START_SECONDS_MAX = 90.0


class Target(Struct, frozen=True):
    """A server that answers chat completions: where it is, its process, and what a request to it says besides."""

    name: str
    base_url: str
    pid: int
    headers: dict[str, str] = {}

    def cpu_seconds(self) -> float:
        """Of the process and of those that it has started."""
        process = psutil.Process(self.pid)
        times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
        return sum(each.user + each.system for each in times)


class Peer(Struct, frozen=True):
    """`command` takes the port, the provider's address, the model and a folder for what must be written."""

    name: str
    program: Path
    command: Callable[[int, str, str, Path], list[str]]
    headers: Callable[[str], dict[str, str]]

    def installed(self) -> bool:
        return self.program.exists()


LITELLM = PEERS_FOLDER / "venv/bin/litellm"
PORTKEY = PEERS_FOLDER / "node_modules/@portkey-ai/gateway/build/start-server.js"


def litellm_command(port: int, base_url: str, model: str, folder: Path) -> list[str]:
    settings = {"model": f"openai/{model}", "api_base": base_url, "api_key": "none"}
    config = folder / "litellm.yaml"  # JSON is YAML
    models = [{"model_name": model, "litellm_params": settings}]
    open_to_us = {"dangerously_permit_weak_or_unset_master_key": True}
    config.write_bytes(msgspec.json.encode({"model_list": models, "general_settings": open_to_us}))
    return [str(LITELLM), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]


def portkey_command(port: int, base_url: str, model: str, folder: Path) -> list[str]:
    return ["node", str(PORTKEY), f"--port={port}", "--headless"]


def portkey_headers(base_url: str) -> dict[str, str]:
    return {
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": base_url,
        "Authorization": "Bearer none",
    }


PEERS = (
    Peer("LiteLLM", LITELLM, litellm_command, lambda base_url: {"Authorization": "Bearer none"}),
    Peer("Portkey", PORTKEY, portkey_command, portkey_headers),
)


@asynccontextmanager
async def started(peer: Peer, base_url: str, model: str, folder: Path) -> AsyncIterator[Target]:
    """The proxy, once it takes connections; stopped at the end. Raises DidNotStart."""
    port = free_port()
    with (folder / f"{peer.name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *peer.command(port, base_url, model, folder), stdout=log, stderr=log
        )
    try:
        await listens(port, process)
        yield Target(peer.name, f"http://127.0.0.1:{port}/v1", process.pid, peer.headers(base_url))
    finally:
        await stopped(process)


async def listens(port: int, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(START_SECONDS_MAX):
        while process.returncode is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.2)
                continue
            writer.close()
            return
    raise DidNotStart(f"it ended at once, with {process.returncode}")
