"""A gateway of our own: its configuration in a temporary folder, its process, and its death. And what other servers
that are started here need just so."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from gateway.adapters.tools.sample import write_workspace
from gateway.bench.scenarios import SYSTEM, TOOLS
from gateway.core.errors import GatewayError

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 15.0
LAST_WORDS_CHARS_MAX = 2000
LISTENING = re.compile(rb"gateway listening on (http://\S+)")
OTHERS_SETTINGS = ("LLM_", "GATEWAY_")  # a provider or a key in our environment is not meant for this gateway


PUBLISHED_PRICE = {"input": 2.0, "output": 12.0}


class DidNotStart(GatewayError):
    """A process ended, or said nothing, instead of listening."""


class Process:
    """A running server."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process = process
        self.url = url

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def kill(self) -> None:
        """SIGKILL: it can neither finish nor clean up anything."""
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def serving(config: Path) -> AsyncIterator[Process]:
    """A gateway on a free port, stopped at the end. What it logs is kept beside its configuration."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS_SETTINGS)}
    command = (sys.executable, "-m", "gateway", "serve", "--config", str(config))
    async with announced("The gateway", command, LISTENING, config.with_suffix(".log"), env=env) as process:
        yield process


# --- processes of any kind ------------------------------------------------------------------------------------------


@asynccontextmanager
async def announced(
    name: str,
    command: Sequence[str],
    line: re.Pattern[bytes],
    log: Path,
    *,
    seconds_max: float = START_SECONDS_MAX,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Process]:
    """A server that prints its address in such a line once it listens. Raises DidNotStart with its last words."""
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=errors, env=env)
    try:
        found = line.match(await first_line(process, seconds_max))
        if not found:
            raise DidNotStart(f"{name} did not start: {last_words(log)}")
        yield Process(process, found[1].decode())
    finally:
        await stopped(process)


async def first_line(process: asyncio.subprocess.Process, seconds_max: float) -> bytes:
    assert process.stdout is not None
    try:
        return await asyncio.wait_for(process.stdout.readline(), seconds_max)
    except TimeoutError:
        return b""


async def stopped(process: asyncio.subprocess.Process) -> None:
    """Asked to end, and made to."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS_MAX)
    except TimeoutError:
        process.kill()
        await process.wait()


def last_words(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-LAST_WORDS_CHARS_MAX:] or "it said nothing"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- the configuration ----------------------------------------------------------------------------------------------


def write_config(
    folder: Path,
    models: Mapping[str, str | None],
    *,
    provider: Mapping[str, object] | None = None,
    price: Mapping[str, object] = PUBLISHED_PRICE,
    turns_max: int | None = None,
) -> Path:
    """A configuration with one agent a name, each on its own model and over its own copy of the files. Without a model,
    it is the first that the provider lists; without a provider, it is the scripted one inside."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in models:
        write_workspace(workspace_of(folder, name))
    agents = [agent_tables(name, model, workspace_of(folder, name), turns_max) for name, model in models.items()]
    config = folder / "gateway.toml"
    config.write_text("\n".join([header(folder, provider=provider, price=price), *agents]), encoding="utf-8")
    return config


def workspace_of(folder: Path, name: str) -> Path:
    return folder / "workspaces" / name


def header(
    folder: Path,
    *,
    port: int = 0,
    provider: Mapping[str, object] | None = None,
    price: Mapping[str, object] = PUBLISHED_PRICE,
) -> str:
    """All but the agents. Port 0 is any free one."""
    tables = [
        table("server", {"host": "127.0.0.1", "port": port}),
        table("store", {"path": str(folder / "runs.db")}),
        table("provider", provider) if provider else "",
        table('prices."*"', price),
    ]
    return "\n".join(filter(None, tables))


def agent_tables(name: str, model: str | None, workspace: Path, turns_max: int | None) -> str:
    named = {"model": model} if model else {}
    agent = table(f"agents.{quoted(name)}", {**named, "system": SYSTEM, "workspace": str(workspace), "tools": TOOLS})
    limits = table(f"agents.{quoted(name)}.limits", {"max_turns": turns_max}) if turns_max else ""
    return "\n".join(filter(None, [agent, limits]))


def table(name: str, values: Mapping[str, object]) -> str:
    return "".join([f"[{name}]\n", *(f"{key} = {quoted(value)}\n" for key, value in values.items())])


def quoted(value: object) -> str:
    """Strings, numbers and lists of them are written in TOML as they are in JSON; a table within a line is not."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {quoted(each)}" for key, each in value.items()) + " }"
    return msgspec.json.encode(value).decode()
