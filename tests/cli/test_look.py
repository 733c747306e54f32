"""The commands that look, and those that need no gateway."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.adapters.providers.settings import ProviderSettings
from gateway.app import provider_line
from gateway.cli.render import age, printable
from tests.cli.conftest import COMMAND, INPUT, Run, a_gateway, environment, fetched


@pytest.fixture
def run_id(cli: Run) -> str:
    return json.loads(cli("run", INPUT, "--agent", "plan", "--json").out)["id"]


def test_the_list_shows_what_each_run_did_and_cost(cli: Run, run_id: str) -> None:
    shown = cli("runs", "--agent", "plan", "--limit", "1").out

    assert shown.split("\n")[0].split() == ["run", "agent", "model", "status", "turns", "cost", "age", "task"]
    assert re.search(
        rf"^{run_id} +plan +plan +completed +3 +\$0\.002470 +\d+ s +{re.escape(INPUT)} *$", shown, re.MULTILINE
    )


def test_runs_are_found_by_what_was_asked(cli: Run) -> None:
    run_id = cli("run", "Who feeds the llamas?", "--agent", "once", "--detach").out.strip()

    assert [run["id"] for run in json.loads(cli("runs", "--text", "LLAMAS who", "--json").out)["runs"]] == [run_id]
    assert cli("runs", "--text", "alpacas").err == "No runs.\n"


def test_the_list_as_json_is_a_page_of_the_api(cli: Run, url: str, run_id: str) -> None:
    shown = cli("runs", "--status", "completed", "--limit", "1", "--json").out

    assert shown.encode() == fetched(f"{url}/v1/runs?status=completed&limit=1") + b"\n"


def test_the_whole_list_goes_through_every_page(cli: Run, run_id: str) -> None:
    for _ in range(3):
        cli("run", INPUT, "--agent", "once", "--detach")

    everything = json.loads(cli("runs", "--limit", "1", "--all", "--agent", "once", "--json").out)

    assert len(everything["runs"]) >= 3
    assert everything["next_cursor"] is None


def test_an_empty_list_says_so(cli: Run) -> None:
    done = cli("runs", "--agent", "nobody")

    assert (done.code, done.out, done.err) == (0, "", "No runs.\n")


def test_a_run_is_shown_with_its_transcript(cli: Run, run_id: str) -> None:
    done = cli("show", run_id)

    assert done.code == 0
    assert re.search(r"^turns +3 \(max 20\), 2 tool runs", done.out, re.MULTILINE)
    assert 'assistant\n→ read_file {"path":"errors.log"}\n' in done.out
    assert "← read_file\nERROR timeout: worker 7 timed out after 30000 ms\n" in done.out


def test_a_run_as_json_is_the_body_of_the_api(cli: Run, url: str, run_id: str) -> None:
    assert cli("show", run_id, "--json").out.encode() == fetched(f"{url}/v1/runs/{run_id}") + b"\n"


def test_a_run_that_does_not_exist_is_refused_in_words(cli: Run) -> None:
    done = cli("show", "run_none")

    assert done.code == 8
    assert "run_none" in done.err


def test_the_trace_is_printed_verbatim(cli: Run, url: str, run_id: str) -> None:
    done = cli("events", run_id)

    assert done.out.encode() == fetched(f"{url}/v1/runs/{run_id}/events")
    assert json.loads(done.out.splitlines()[-1])["type"] == "run_stopped"


def test_a_followed_trace_goes_on_through_a_resume_until_ctrl_c(cli: Run, url: str) -> None:
    run_id = json.loads(cli("run", INPUT, "--agent", "runaway", "--max-turns", "1", "--json").out)["id"]
    with subprocess.Popen(
        [*COMMAND, "events", run_id, "--follow"], stdout=subprocess.PIPE, text=True, env=environment(url)
    ) as process:
        assert process.stdout is not None
        types = [json.loads(process.stdout.readline())["type"]]
        while types[-1] != "run_stopped":
            types.append(json.loads(process.stdout.readline())["type"])
        cli("resume", run_id, "--max-turns", "2")
        types.append(json.loads(process.stdout.readline())["type"])
        process.send_signal(signal.SIGINT)

    assert types[-1] == "run_resumed"
    assert process.returncode == 130


# --- without a gateway ----------------------------------------------------------------------------------------------


def test_every_command_says_in_a_sentence_what_it_does(cli: Run) -> None:
    helped = cli("--help").out

    for command in ("serve", "run", "runs", "show", "events", "approve", "reject", "settle", "resume", "cancel"):
        assert re.search(rf"^. {command} +\w[^│]+\. +.$", helped, re.MULTILINE), command
    assert "7 no gateway answers" in helped


def test_help_imports_neither_the_http_library_nor_the_tokenizer() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gateway", "--help"], capture_output=True, text=True, timeout=20
    )

    assert done.returncode == 0
    assert not re.search(r"\| +(aiohttp|tiktoken|asyncio)$", done.stderr, re.MULTILINE)


def test_the_version_is_printed(cli: Run) -> None:
    assert cli("version").out.strip() == json.loads(cli("version", "--json").out)["version"]


def test_serve_takes_the_port_and_the_store_of_the_command_line(cli: Run, tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text("[server]\nport = 1\n[agents.files]\nmodel = 'plan'\nworkspace = 'files'\n")
    with a_gateway(config, "--port", "0", "--store", str(tmp_path / "other.db")) as (_, url):
        assert cli("run", INPUT, url=url).code == 0

    assert (tmp_path / "other.db").exists()


def test_serve_says_what_is_wrong_with_a_configuration(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text("[server]\nporr = 1\n")
    done = subprocess.run([*COMMAND, "serve", "--config", str(config)], capture_output=True, text=True, timeout=20)

    assert done.returncode == 2
    assert "porr" in done.stderr
    assert "Traceback" not in done.stderr


def test_serve_says_what_it_serves_and_keeps_it_private(tmp_path: Path) -> None:
    """Without a configuration, as for whoever has just installed it."""
    command = [*COMMAND, "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = [process.stdout.readline().rstrip("\n") for _ in range(5)]
        made = list((tmp_path / ".gateway").rglob("*"))
        modes = {path: path.stat().st_mode & 0o777 for path in [tmp_path / ".gateway", *made]}
        process.terminate()

    address = printed[0].removeprefix("gateway listening on ")
    assert printed[1:] == [
        f"console    {address}/",
        "provider   scripted (bundled: no model, no key, no network)",
        "agents     files, research, lead",
        f"store      {tmp_path / '.gateway' / 'runs.db'}",
    ]
    assert len(made) >= 5
    assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in modes}


def test_an_address_of_a_provider_is_shown_without_what_is_secret_in_it() -> None:
    provider = ProviderSettings(name="hosted", base_url="https://me:secret@api.example.com/v1?key=secret")

    assert provider_line(provider) == "hosted at https://api.example.com/v1"


def test_serve_says_that_a_port_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [*COMMAND, "serve", "--port", port], capture_output=True, text=True, timeout=20, cwd=tmp_path
        )

    assert done.returncode == 1
    words = "the address is in use; choose another with --port."
    assert f"cannot listen on 127.0.0.1:{port}: {words}\n" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("url", ["foo", "127.0.0.1:8787", "ftp://127.0.0.1", "http://"])
def test_an_address_that_is_none_is_a_usage_error(cli: Run, url: str) -> None:
    done = cli("runs", "--url", url)

    assert done.code == 2
    assert "must begin with http:// or https://" in done.err


def test_without_a_key_the_words_say_where_it_goes(cli: Run, tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text('[server]\nport = 0\n[[server.keys]]\nkey = "a-long-key"\nrole = "full"\n')
    with a_gateway(config) as (_, keyed):
        done = cli("runs", url=keyed)
        told = cli("runs", "--api-key", "a-long-key", url=keyed)

    assert done.code == 8
    assert "Give the key with --api-key, or in $GATEWAY_API_KEY." in done.err
    assert told.code == 0


def test_a_provider_that_answers_404_is_asked_about_its_address(cli: Run, url: str, tmp_path: Path) -> None:
    """What it is given is a server that has the API, without the /v1 below which it is."""
    config = tmp_path / "gateway.toml"
    config.write_text(f'model = "plan"\n[server]\nport = 0\n[provider]\nbase_url = "{url}"\n')
    with a_gateway(config) as (_, lost):
        done = cli("run", INPUT, url=lost)
        with pytest.raises(urllib.error.HTTPError) as ready:
            fetched(f"{lost}/readyz")

    assert done.code == 1
    assert "Does base_url in [provider], or $LLM_BASE_URL, end in /v1?" in done.err
    with ready.value as answer:
        assert b"does base_url end in /v1?" in answer.read()


# --- words ----------------------------------------------------------------------------------------------------------


def test_words_of_a_model_cannot_forge_a_screen() -> None:
    assert printable("ok\n\x1b[2Jgone \u202eback") == "ok\n\\x1b[2Jgone \\u202eback"


@pytest.mark.parametrize(
    ("seconds", "words"), [(-1, "0 s"), (59, "59 s"), (60, "1 min"), (7300, "2 h"), (200_000, "2 d")]
)
def test_an_age_is_told_in_its_largest_unit(seconds: int, words: str) -> None:
    assert age(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize("what", ["overhead", "six-tasks"])
def test_a_picture_that_could_not_be_written_is_refused_before_anything_is_measured(cli: Run, what: str) -> None:
    asked = cli("bench", what, "--picture", "no/such/folder/picture.png")

    assert asked.code == 2
    assert "there is no folder no/such/folder: make it" in asked.err
