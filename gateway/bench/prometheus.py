"""A Prometheus server of our own, in a process: for `make observe`, and for tests of what it will be asked."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from gateway.bench.process import START_SECONDS_MAX, free_port, last_words, stopped
from gateway.core.errors import GatewayError

ABSENT = "Prometheus is not installed: run `make debian` as root, or install your system's package `prometheus`."


class NoPrometheus(GatewayError):
    """There is none, or it did not start."""


class Prometheus:
    """Answers queries, at `url`."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session

    async def get(self, path: str, **params: str) -> Any:
        """The data of an answer of its API. Raises NoPrometheus with what it said instead."""
        async with self._session.get(f"{self.url}/api/v1/{path}", params=params) as response:
            answer = await response.json()
        if answer["status"] != "success":
            raise NoPrometheus(f"{path} {params}: {answer['error']}")
        return answer["data"]

    async def query(self, expression: str) -> list[Any]:
        """The series that the expression has now."""
        return (await self.get("query", query=expression))["result"]


def configured(configs: Path, targets: Mapping[str, str], intervals: Mapping[str, str], folder: Path) -> Path:
    """configs/prometheus.yml as a file in the folder, with these addresses, and every interval as it is said here."""
    text = (configs / "prometheus.yml").read_text()
    for job, address in targets.items():
        text = re.sub(rf'(job_name: {job}\n.*?targets: )\["[^"]*"\]', rf'\1["{address}"]', text, flags=re.DOTALL)
    for name, seconds in intervals.items():
        text = re.sub(rf"^  {name}: \S+$", f"  {name}: {seconds}", text, flags=re.MULTILINE)
    file = folder / "prometheus.yml"
    file.write_text(text.replace("- rules/", f"- {configs.resolve()}/rules/"))
    return file


@asynccontextmanager
async def serving(config: Path, port: int = 0) -> AsyncIterator[Prometheus]:
    """Serves until the context is left. What it stores lies beside its configuration. Raises NoPrometheus."""
    program = shutil.which("prometheus")
    if program is None:
        raise NoPrometheus(ABSENT)
    address = f"127.0.0.1:{port or free_port()}"
    with config.with_suffix(".log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={config.parent / 'series'}",
            f"--web.listen-address={address}",
            stdout=log,
            stderr=log,
        )
    try:
        async with aiohttp.ClientSession() as session:
            await ready(process, session, f"http://{address}", config.with_suffix(".log"))
            yield Prometheus(f"http://{address}", session)
    finally:
        await stopped(process)


async def ready(process: asyncio.subprocess.Process, session: aiohttp.ClientSession, url: str, log: Path) -> None:
    """Asks until it serves."""
    async with asyncio.timeout(START_SECONDS_MAX):
        while process.returncode is None:
            try:
                async with session.get(f"{url}/-/ready") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
    raise NoPrometheus(f"Prometheus did not start: {last_words(log)}")
