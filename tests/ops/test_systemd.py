"""The systemd unit: taken by systemd's own checker, and shut in."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config import Config, load
from tests.ops.programs import CONFIGS, run

UNIT = CONFIGS / "systemd" / "agent-gateway.service"
EXPOSURE_MAX = 2.0
"""Of 10: below it systemd calls a service OK."""


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is there: the checker wants it to be."""
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", UNIT.read_text(), flags=re.MULTILINE)
    (tmp_path / UNIT.name).write_text(text)
    return tmp_path / UNIT.name


def test_systemd_takes_the_unit_without_a_word(unit: Path) -> None:
    done = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_service_is_shut_in(unit: Path) -> None:
    done = run("systemd-analyze", "security", "--offline=yes", unit)

    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert exposure, done.stdout + done.stderr
    assert float(exposure[1]) <= EXPOSURE_MAX, done.stdout


def test_installed_as_its_first_lines_say_it_writes_only_where_it_may(tmp_path: Path) -> None:
    """Their `cp` and `sed`, for folders of our own."""
    lines = re.findall(r"^#   ((?:cp configs/gateway|sed ).*)$", UNIT.read_text(), re.MULTILINE)
    script = "\n".join(lines).replace("/etc/agent-gateway", str(tmp_path))
    subprocess.run(["bash", "-euc", script], cwd=CONFIGS.parent, check=True)
    allowed = re.findall(r"^WorkingDirectory=(.*)$", UNIT.read_text(), re.MULTILINE)

    config = load(str(tmp_path / "gateway.toml"), env={})

    written = [config.store.path, *(agent.workspace for agent in config.agents.values() if agent.workspace)]
    assert len(written) == 3
    assert {str(Path(path).parent) for path in written} == set(allowed)


def test_its_command_is_one_that_the_gateway_takes(tmp_path: Path) -> None:
    command = re.search(r"^ExecStart=\S+/gateway (.*)$", UNIT.read_text(), re.MULTILINE)
    assert command
    _, *options = command[1].split()
    missing = tmp_path / "missing.toml"
    given = [str(missing) if option.startswith("/etc/") else option for option in options]

    done = subprocess.run(
        [sys.executable, "-m", "gateway", "serve", *given], capture_output=True, text=True, timeout=30
    )

    assert f"{missing} cannot be read" in done.stdout + done.stderr


def test_it_is_given_longer_to_stop_than_the_gateway_takes(config: Config) -> None:
    seconds = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)

    assert seconds
    assert int(seconds[1]) > type(config.server)().shutdown_grace_seconds
