"""The program as a process: its one line, its signals, its exit codes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PROGRAM = [sys.executable, "-m", "scripted"]
ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}


def ran(*args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*PROGRAM, *args], capture_output=True, text=True, timeout=15, env=ENVIRONMENT)


@contextmanager
def served(*args: str) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    with subprocess.Popen(
        [*PROGRAM, "serve", "--port", "0", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_at_the_address_that_it_prints_until_it_is_told_to_stop(number: int) -> None:
    with served("--fault", "503", "--latency-ms", "1") as (process, line):
        found = re.fullmatch(r"scripted provider on (http://127\.0\.0\.1:\d+/v1)\n", line)
        assert found
        with urllib.request.urlopen(f"{found[1]}/models") as response:
            assert response.status == 200
        asked = urllib.request.Request(
            f"{found[1]}/chat/completions", b'{"model": "plan", "messages": [{"role": "user"}]}'
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked)
        refused.value.close()
        process.send_signal(number)
        output, errors = process.communicate(timeout=10)

    assert refused.value.code == 503
    assert (process.returncode, output, errors) == (0, "", "")


def test_a_port_that_is_taken_is_one_sentence_and_exit_code_1() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = ran("serve", "--port", str(port))

    assert done.returncode == 1
    assert done.stderr == f"Cannot listen on 127.0.0.1:{port}: the address is in use; choose another with --port.\n"


def test_a_fault_that_does_not_exist_is_refused_before_anything_is_served() -> None:
    done = ran("serve", "--fault", "explode")

    assert done.returncode == 2
    assert "Unknown fault 'explode'" in done.stderr


def test_the_scripts_are_listed_for_people_and_as_data() -> None:
    table, data = ran("scripts"), json.loads(ran("scripts", "--json").stdout)

    assert "double_delete" in table.stdout
    assert data["plan"]["steps"][1]["calls"][0] == {"id": "c2", "tool": "read_file", "args": {"path": "errors.log"}}
