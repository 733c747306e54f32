"""Debian's programs that these tests ask. `make test` installs them; elsewhere a test that needs one is skipped, and
says why."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CONFIGS = Path(__file__).parent.parent.parent / "configs"


def program(name: str) -> str:
    """Its path. In CI a program that is missing is a failure: nothing would have been checked."""
    path = shutil.which(name)
    if path is None:
        sentence = f"{name} is not installed: `make debian` as root installs it"
        assert not os.environ.get("CI"), sentence
        pytest.skip(sentence)
    return path


def run(name: str, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program(name), *map(str, args)], capture_output=True, text=True, timeout=60)
