"""One real gateway for all tests of the command line and the client, and the command as a process."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from gateway.bench.process import write_config

COMMAND = [sys.executable, "-m", "gateway"]
SCRIPTS = ("plan", "runaway", "once", "destructive", "double_delete", "slow")
FAULTY = {"refused": "plan@fault=401", "sleepy": "plan@latency=30000"}
INPUT = "Which file mentions a timeout?"
MASKED = ("LLM_", "GATEWAY_")


class Done(Struct, frozen=True):
    """A command that ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


def environment(url: str | None = None) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(MASKED)}
    return {**env, "COLUMNS": "200", **({"GATEWAY_URL": url} if url else {})}


@contextmanager
def a_gateway(config: Path, *options: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    with (
        config.with_suffix(".log").open("a") as log,
        subprocess.Popen(
            [*COMMAND, "serve", "--config", str(config), *options],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(),
        ) as process,
    ):
        assert process.stdout is not None
        found = re.fullmatch(r"gateway listening on (http://\S+)\n", process.stdout.readline())
        try:
            assert found, config.with_suffix(".log").read_text()
            yield process, found[1]
        finally:
            process.terminate()
            process.wait(15)


def models(names: Mapping[str, str]) -> dict[str, str]:
    """Agents for whoever deletes must not share a folder with the others: every test that needs one has its own."""
    return {**{script: script for script in SCRIPTS}, **FAULTY, **names}


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("gateway")
    more = {f"destructive_{number}": "destructive" for number in range(12)}
    with a_gateway(write_config(folder, models(more))) as (_, address):
        yield address


@pytest.fixture
def cli(url: str) -> Run:
    """Runs a command without a terminal."""

    def run(*args: str, stdin: str = "", url: str = url) -> Done:
        done = subprocess.run(
            [*COMMAND, *args], capture_output=True, text=True, timeout=20, input=stdin, env=environment(url)
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url) as response:
        return response.read()


def posted(url: str, body: object) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())) as response:
        return json.loads(response.read())


class Terminal:
    """A command on a terminal of its own: what it shows, and what is typed."""

    def __init__(self, url: str, *args: str) -> None:
        self._master, slave = pty.openpty()
        env = {**environment(url), "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            [*COMMAND, *args], stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
        )
        os.close(slave)
        self.shown = ""

    def expect(self, words: str, seconds: float = 15) -> None:
        """Reads until the words were shown."""
        until = time.monotonic() + seconds
        while words not in self.shown:
            assert time.monotonic() < until, f"{words!r} was not shown, but: {self.shown}"
            if not self._read():
                assert words in self.shown, f"it ended without {words!r}: {self.shown}"

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> int:
        """The exit code, once everything was shown."""
        while self._read():
            pass
        return self.process.wait(15)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def _read(self) -> bool:
        """Whether more may come."""
        if not select.select([self._master], [], [], 0.1)[0]:
            return self.process.poll() is None
        try:
            chunk = os.read(self._master, 65536)
        except OSError:  # how Linux says that nobody has the other end any more
            return False
        self.shown += chunk.decode(errors="replace")
        return bool(chunk)


@pytest.fixture
def terminal(url: str) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_terminal(*args: str) -> Terminal:
        opened.append(Terminal(url, *args))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()
