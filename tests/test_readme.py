"""The README's blocks, run as they stand: every `sh` block in one shell, every `python` block by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
DEFAULT_ADDRESS = "http://127.0.0.1:8787"
BIN = Path(sys.executable).parent


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    command = [sys.executable, "-m", "gateway", "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
        process.terminate()


def run(command: list[str], script: str, address: str, folder: Path) -> str:
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "GATEWAY_URL": address}
    done = subprocess.run(
        [*command, script.replace(DEFAULT_ADDRESS, address)], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_shell_blocks_work_as_they_stand(address: str, tmp_path: Path) -> None:
    printed = run(["bash", "-euo", "pipefail", "-c"], "\n".join(blocks("sh")), address, tmp_path)

    assert "errors.log mentions a timeout: worker 7 timed out after 30000 ms." in printed
    assert "I did not delete anything: you declined the deletion." in printed
    assert "gateway_run_stops_total" in printed


def test_the_python_blocks_work_as_they_stand(address: str, tmp_path: Path) -> None:
    printed = [run([sys.executable, "-c"], block, address, tmp_path) for block in blocks("python")]

    assert printed == ["completed 3 0.00247 errors.log mentions a timeout: worker 7 timed out after 30000 ms.\n"]
