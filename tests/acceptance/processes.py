"""Gateways as real processes: started, killed, and their files looked at while they are dead."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec import Struct

from gateway.adapters.store.opening import open_files
from gateway.adapters.store.rows import Row, records_in
from gateway.adapters.store.statements import named_statements, sql_folder
from gateway.adapters.tools.sample import write_workspace
from tests.acceptance.scenarios import FILE_TOOLS

PROGRAM = Path(__file__).with_name("crashing_gateway.py")
END_SECONDS_MAX = 30
SYSTEM = "You answer questions about the files in one directory. Use the tools."
Record = tuple[str, int, bytes]
KILLED = -int(signal.SIGKILL)


class Crash(Struct, frozen=True):
    """Around which event of its life a gateway kills itself."""

    at: int
    when: str

    def __str__(self) -> str:
        return f"{self.when} event {self.at}"


class Site(Struct, frozen=True):
    """What outlives a gateway: its store, its workspace, and what its tools wrote elsewhere."""

    folder: Path
    provider: str
    tools: tuple[str, ...] = FILE_TOOLS
    grace_seconds: float = 10.0

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def effects(self) -> Path:
        return self.folder / "effects"

    @property
    def store(self) -> Path:
        return self.folder / "store" / "runs.db"

    def make(self) -> Site:
        write_workspace(self.workspace)
        self.effects.mkdir(parents=True)
        return self

    def configured(self) -> Path:
        """The configuration as a file."""
        file = self.folder / "gateway.toml"
        file.write_text(
            f"""
            [server]
            port = 0
            shutdown_grace_seconds = {self.grace_seconds}
            [store]
            path = {json.dumps(str(self.store))}
            [provider]
            base_url = "{self.provider}/v1"
            backoff_seconds = 0.01
            [agents.files]
            system = "{SYSTEM}"
            workspace = {json.dumps(str(self.workspace))}
            tools = {json.dumps(self.tools)}
            [agents.research]
            model = "plan"
            system = "{SYSTEM}"
            workspace = {json.dumps(str(self.workspace))}
            tools = ["list_files", "read_file"]
            limits = {{ max_turns = 6, max_budget_usd = 0.05 }}
            [agents.cleaner]
            model = "destructive"
            system = "{SYSTEM}"
            workspace = {json.dumps(str(self.workspace))}
            [agents.lead]
            subagents = ["research", "cleaner"]
            [prices."*"]
            input = 2.0
            output = 12.0
            """
        )
        return file

    def lines(self, name: str = "journal") -> list[str]:
        file = self.effects / name
        return file.read_text().splitlines() if file.exists() else []

    def files(self) -> list[str]:
        return sorted(path.name for path in self.workspace.iterdir())

    def records(self) -> list[Record]:
        """What is durable, read from a copy of the files: the next gateway must find them as the dead one left
        them."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        if not self.store.exists():
            return []
        copy.mkdir()
        for file in sorted(self.store.parent.glob(f"{self.store.name}*"), key=lambda file: file.suffix != ".tail"):
            shutil.copy(file, copy)  # the tail first: what is moved meanwhile is then in both
        rows = event_rows(copy / self.store.name)
        return [(record.run_id, record.seq, record.body) for record in records_in(rows, after=0)]

    def log(self) -> list[dict[str, Any]]:
        return [parsed(body) | {"runId": run_id, "seq": seq} for run_id, seq, body in self.records()]


def event_rows(store: Path) -> list[Row]:
    """Of a store that nobody has open, with what is still in its tail."""
    opened = open_files(store, "machine", named_statements(sql_folder() / "queries.sql"))
    rows = opened.writing.execute("SELECT run_id, seq, body FROM events ORDER BY run_id, seq").fetchall()
    opened.reading.close()
    opened.writing.close()
    opened.lock.release(in_order=False)
    return rows


def parsed(body: bytes) -> Any:
    return json.loads(body, parse_float=Decimal)


class Process(Struct):
    """A gateway that listens."""

    pid: int
    url: str
    ending: asyncio.Task[int]

    def send(self, sign: signal.Signals) -> None:
        if not self.ending.done():
            with suppress(ProcessLookupError):
                os.kill(self.pid, sign)

    async def ended(self) -> int:
        """Its exit code, once it has ended."""
        async with asyncio.timeout(END_SECONDS_MAX):
            return await asyncio.shield(self.ending)

    async def kill(self) -> int:
        self.send(signal.SIGKILL)
        return await self.ended()


class Host:
    """One process of crashing_gateway.py: one gateway at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders = process.stdin
        self._answers = process.stdout

    @asynccontextmanager
    async def gateway(
        self, site: Site, crash: Crash | None = None, *, scan_step_seconds: float = 0.01
    ) -> AsyncIterator[Process]:
        """A gateway at this site. If it still lives when the context is left, it is killed."""
        order = {"config": str(site.configured()), "effects": str(site.effects), "scan_step_seconds": scan_step_seconds}
        if crash is not None:
            order |= {"crash_at": crash.at, "when": crash.when}
        self._orders.write(json.dumps(order).encode() + b"\n")
        pid = int(await self._line("pid "))
        url = await self._line("gateway listening on ")
        process = Process(pid, url, asyncio.create_task(self._end()))
        try:
            yield process
        finally:
            await process.kill()

    async def _end(self) -> int:
        return int(await self._line("ended "))

    async def _line(self, beginning: str) -> str:
        line = (await self._answers.readline()).decode().rstrip()
        if not line.startswith(beginning):
            raise RuntimeError(f"instead of {beginning!r} the gateway's host said {line!r}: see its log")
        return line.removeprefix(beginning)


@asynccontextmanager
async def hosting(log: Path) -> AsyncIterator[Host]:
    pipe = asyncio.subprocess.PIPE
    with log.open("ab") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(PROGRAM), stdin=pipe, stdout=pipe, stderr=stderr
        )
    try:
        yield Host(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
