"""`gateway export` and `gateway replay`: a run of production as a document, a script, and a test."""

import json
from pathlib import Path

import pytest

from scripted.loading import load_scripts
from tests.cli.conftest import INPUT, Run


@pytest.fixture
def run_id(cli: Run) -> str:
    return json.loads(cli("run", INPUT, "--agent", "plan", "--json").out)["id"]


def test_a_run_is_exported_to_a_file_and_played_again_from_it_without_a_gateway(
    cli: Run, run_id: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"

    exported = cli("export", run_id, "-o", str(path))
    played = cli("replay", str(path), url="http://127.0.0.1:9")

    assert (exported.code, exported.out, exported.err) == (0, "", "")
    words = "The same run: completed · 12 events · 3 turns · 2 tool runs · 885 tokens · $0.002470\n"
    assert (played.code, played.out, played.err) == (0, words, "")


def test_a_run_is_played_again_by_its_id(cli: Run, run_id: str) -> None:
    done = cli("replay", run_id, "--json")

    said = json.loads(done.out)
    assert (done.code, said["difference"], said["events"]) == (0, None, 12)
    assert said["recorded"] == said["replayed"]
    assert said["replayed"]["cost_usd"] == 0.00247


def test_a_document_on_stdout_is_the_one_in_the_file(cli: Run, run_id: str, tmp_path: Path) -> None:
    cli("export", run_id, "-o", str(tmp_path / "run.json"))

    assert cli("export", run_id).out == (tmp_path / "run.json").read_text()


def test_as_a_script_it_is_what_the_scripted_provider_serves(cli: Run, run_id: str, tmp_path: Path) -> None:
    path = tmp_path / "scripts.json"

    cli("export", run_id, "--as-script", "-o", str(path))

    script = load_scripts(path)[run_id]
    first, _, answer, last = script.steps
    assert (first.turn, first.finish, first.usage and first.usage.prompt_tokens) == (0, "tool_calls", 204)
    assert answer.text == "errors.log mentions a timeout: worker 7 timed out after 30000 ms."
    assert last.text == "The record ends here."


def test_the_first_difference_is_shown_and_the_exit_code_is_1(cli: Run, run_id: str, tmp_path: Path) -> None:
    document = json.loads(cli("export", run_id).out)
    document["tools"][0]["text"] = "[]"
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))

    done, as_json = cli("replay", str(path)), cli("replay", str(path), "--json")

    words = r'Not the same run. Event 4 (tool_result), content: "[\"access.log\",\"errors.log\",\"notes.txt\"]" → "[]"'
    assert (done.code, done.out) == (1, f"{words}\n")
    assert as_json.code == 1
    assert json.loads(as_json.out)["difference"] == {
        "event": 4,
        "type": "tool_result",
        "field": "content",
        "recorded": '["access.log","errors.log","notes.txt"]',
        "replayed": "[]",
    }


def test_a_run_that_waits_for_an_approval_is_exported_with_its_verdict_once_it_has_one(cli: Run) -> None:
    run_id = json.loads(cli("run", INPUT, "--agent", "destructive_11", "--json").out)["id"]
    waiting = json.loads(cli("export", run_id).out)
    rejected = cli("reject", run_id, "c2", "--reason", "keep the log.")

    judged = json.loads(cli("export", run_id).out)

    assert rejected.code == 0, rejected.err
    assert "actions" not in waiting
    assert [(one["type"], one["reason"]) for one in judged["actions"]] == [("verdict", "keep the log.")]
    assert cli("replay", run_id).code == 0


def test_a_run_under_way_cannot_be_exported(cli: Run) -> None:
    run_id = json.loads(cli("run", INPUT, "--agent", "sleepy", "--detach", "--json").out)["id"]

    done = cli("export", run_id)
    cli("cancel", run_id)

    assert (done.code, done.err) == (1, f"Run {run_id} is running: export it once it has stopped.\n")
    assert cli("replay", run_id).code == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not valid JSON: Input data was truncated.\n"),
        ("{}", "is no recording: Object missing required field `version`.\n"),
        ('{"version": 2}', "is no recording: Invalid enum value 2 - at `version`.\n"),
    ],
)
def test_a_file_that_is_no_recording_is_one_sentence(cli: Run, tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)

    done = cli("replay", str(path))

    assert (done.code, done.out, done.err) == (2, "", f"{path} {words}")


def test_what_is_not_there_is_one_sentence(cli: Run, tmp_path: Path, run_id: str) -> None:
    missing, unknown = cli("replay", str(tmp_path / "no.json")), cli("replay", "run_nobody")
    nowhere = cli("export", run_id, "-o", str(tmp_path / "no" / "run.json"))

    assert (missing.code, missing.err) == (2, f"{tmp_path}/no.json cannot be read: No such file or directory.\n")
    assert (unknown.code, unknown.out) == (8, "")
    assert (nowhere.code, nowhere.err.endswith("cannot be written: No such file or directory.\n")) == (2, True)
