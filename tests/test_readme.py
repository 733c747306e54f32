"""The README's blocks, run as they stand: every `sh` block in one shell, every `python` block by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
DEFAULT_ADDRESS = "http://127.0.0.1:8787"
BIN = Path(sys.executable).parent


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("served")) as address:
        yield address


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    command = [sys.executable, "-m", "gateway", "serve", "--port", "0", *options]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
        process.terminate()


def script_of(command: list[str], script: str, address: str, folder: Path) -> str:
    return run(command, [script.replace(DEFAULT_ADDRESS, address)], address, folder)


def run(command: list[str], args: list[str], address: str, folder: Path) -> str:
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "GATEWAY_URL": address}
    done = subprocess.run([*command, *args], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write_files(folder: Path) -> None:
    """The blocks that are files, under the names that stand before them."""
    named = re.findall(r"`(\w+\.\w+)`:\n\n```\w+\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    assert [name for name, _ in named] == ["mytools.py", "clerk.toml"]
    for name, text in named:
        (folder / name).write_text(text)


def test_the_shell_blocks_work_as_they_stand(address: str, tmp_path: Path) -> None:
    write_files(tmp_path)

    printed = script_of(["bash", "-euo", "pipefail", "-c"], "\n".join(blocks("sh")), address, tmp_path)

    assert "errors.log mentions a timeout: worker 7 timed out after 30000 ms." in printed
    assert "I did not delete anything: you declined the deletion." in printed
    assert "gateway_run_stops_total" in printed
    assert "Add two numbers." in printed
    assert "\n5\n" in printed
    assert '"model": "delegate"' in (tmp_path / "recorded.json").read_text()


def test_the_python_blocks_work_as_they_stand(address: str, tmp_path: Path) -> None:
    printed = [script_of([sys.executable, "-c"], block, address, tmp_path) for block in blocks("python")]

    answer = "errors.log mentions a timeout: worker 7 timed out after 30000 ms."
    assert printed == [f"completed 3 0.00247 {answer}\n", answer, ""]


def test_the_agents_of_ones_own_are_served(tmp_path: Path) -> None:
    write_files(tmp_path)

    with serving(tmp_path, "--config", "clerk.toml") as own:
        answer = run(["gateway"], ["run", "Which file mentions a timeout?", "--agent", "research"], own, tmp_path)

    assert answer == "errors.log mentions a timeout: worker 7 timed out after 30000 ms.\n"
