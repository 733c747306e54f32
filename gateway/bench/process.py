"""A gateway of our own: its configuration in a temporary folder, its process, and its death."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
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


class DidNotStart(GatewayError):
    """The gateway's process ended, or said nothing, instead of listening."""


class Process:
    """A running gateway."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process = process
        self.url = url

    @property
    def pid(self) -> int:
        return self._process.pid

    async def kill(self) -> None:
        """SIGKILL: it can neither finish nor clean up anything."""
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), STOP_SECONDS_MAX)
            except TimeoutError:
                await self.kill()


@asynccontextmanager
async def serving(config: Path) -> AsyncIterator[Process]:
    """A gateway on a free port, stopped at the end. What it logs is kept beside its configuration."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS_SETTINGS)}
    with config.with_suffix(".log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "serve", "--config", str(config)),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=env,
        )
    running = Process(process, "")
    try:
        running.url = await announced(process, config.with_suffix(".log"))
        yield running
    finally:
        await running.stop()


async def announced(process: asyncio.subprocess.Process, log: Path) -> str:
    """The address in the line that the gateway prints once it listens."""
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS_MAX)
    except TimeoutError:
        line = b""
    if found := LISTENING.match(line):
        return found[1].decode()
    raise DidNotStart(f"The gateway did not start: {last_words(log) or 'it said nothing'}")


def last_words(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-LAST_WORDS_CHARS_MAX:]


def write_config(folder: Path, models: Mapping[str, str]) -> Path:
    """A configuration with one agent a name, each on its own model and over its own copy of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in models:
        write_workspace(workspace_of(folder, name))
    tables = [agent_table(name, model, workspace_of(folder, name)) for name, model in models.items()]
    config = folder / "gateway.toml"
    config.write_text("\n".join([header(folder), *tables]), encoding="utf-8")
    return config


def workspace_of(folder: Path, name: str) -> Path:
    return folder / "workspaces" / name


def header(folder: Path) -> str:
    return f"""\
[server]
host = "127.0.0.1"
port = 0

[store]
path = {quoted(str(folder / "runs.db"))}

[prices."*"]
input = 2.0
output = 12.0
"""


def agent_table(name: str, model: str | None, workspace: Path) -> str:
    """Without a model, it is the first that the provider lists."""
    named = f"model = {quoted(model)}\n" if model else ""
    return f"""\
[agents.{quoted(name)}]
{named}\
system = {quoted(SYSTEM)}
workspace = {quoted(str(workspace))}
tools = {quoted(TOOLS)}
"""


def quoted(value: object) -> str:
    """Strings and lists of them are written in TOML as they are in JSON."""
    return msgspec.json.encode(value).decode()
