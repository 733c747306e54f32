"""A process for each client, which takes orders as JSON lines: see clients/lines.py."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tests.conformance.abilities import HERE, Client

ROOT = HERE.parent.parent
CLIENTS = ROOT / ".clients"
SECONDS_MAX = 60
"""An order takes well under a second; the first one also imports the client."""

OFFLINE = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # instead of fetching it
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
}


class Answer(Struct, frozen=True, kw_only=True):
    """What a client let its user see."""

    text: str | None = None
    finish: str | None = None
    usage: tuple[int, int] | None = None
    run_id: str | None = None
    deltas: list[str] = []
    executed: list[str] = []
    raised: str | None = None
    words: str = ""


def installed(name: str) -> bool:
    """As the Makefile notes it once all of a kind are there."""
    return (CLIENTS / (".node" if name.endswith(".mjs") else ".python")).exists()


class Driver:
    """One client. `log` takes what it prints."""

    def __init__(self, name: str, log: Path, env: Mapping[str, str]) -> None:
        program = CLIENTS / "bin" / ("node" if name.endswith(".mjs") else "python")
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [program, HERE / "clients" / name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                cwd=log.parent,
                env={"PATH": os.environ["PATH"], "HOME": str(log.parent), **OFFLINE, **env},
            )

    async def order(self, verb: str, **order: Any) -> Answer:
        line = json.dumps({"verb": verb, **order})
        try:
            async with asyncio.timeout(SECONDS_MAX):
                said = await asyncio.to_thread(self._exchange, line)
        except TimeoutError:
            self._process.kill()
            raise AssertionError(f"the client did not answer: {self._log.read_text()[-2000:]}") from None
        return decoded(said, self._log)

    def _exchange(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        return self._process.stdout.readline()

    def close(self) -> None:
        with self._process:
            self._process.kill()


def decoded(line: str, log: Path) -> Answer:
    assert line, f"the client is gone: {log.read_text()[-2000:]}"
    return msgspec.json.decode(line, type=Answer)


Driving = Callable[[Client], Driver]
