"""Scripts from files, and how they are served."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scripted.app import create_app, serving
from scripted.loading import BadScripts, known_scripts, load_scripts
from scripted.scripts import SCRIPTS, Call, Step
from tests.scripted.conftest import asked_at
from tests.scripted.test_cli import ran

TOML = """
[two]
about = "Asks two things at once, and reads the answers."

[[two.steps]]
turn = 0
calls = [{ id = "a", tool = "x", args = { n = 1 } }, { id = "b", tool = "y", arguments = "{broken" }]

[[two.steps]]
text = "Done."
finish = "length"
usage = { prompt_tokens = 11, completion_tokens = 7, cached_tokens = 5, reasoning_tokens = 3 }
"""


def written(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content)
    return path


def test_a_toml_file_and_a_json_file_hold_the_same_scripts(tmp_path: Path) -> None:
    toml = load_scripts(written(tmp_path, "a.toml", TOML))
    again = load_scripts(written(tmp_path, "a.json", msgspec.json.encode(toml).decode()))

    assert toml == again
    assert toml["two"].steps[0].calls == (Call("a", "x", {"n": 1}), Call("b", "y", arguments="{broken"))


async def test_a_script_from_a_file_is_served_with_its_arguments_usage_and_finish_as_written(tmp_path: Path) -> None:
    app = create_app(scripts=known_scripts([written(tmp_path, "a.toml", TOML)]))
    async with serving(app) as address:
        first = (await asked_at(address, "two")).json
        last = (await asked_at(address, "two", messages=[{"role": "assistant"}])).json

    calls = first["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == ['{"n":1}', "{broken"]
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["usage"] == {
        "prompt_tokens": 11,
        "completion_tokens": 7,
        "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }


def script(**fields: Any) -> str:
    return json.dumps({"s": {"about": "", "steps": [{"text": "always", **fields}]}})


BAD = {
    "a.yaml": ("", "a.yaml is neither a .toml nor a .json file."),
    "a.toml": ("= 1", "a.toml is not valid TOML: Invalid statement (at line 1, column 1)."),
    "a.json": ("[]", "a.json has no scripts: it must be a table of them, by name."),
    "b.json": (script(txt=1), "b.json: s: Object contains unknown field `txt` - at `steps[0]`."),
    "c.json": (script(echo=True), "c.json: s: A step has a text or echoes one, not both - at `steps[0]`."),
    "d.json": (
        script(calls=[{"id": "a", "tool": "x", "args": {"n": 1}, "arguments": ""}]),
        "d.json: s: A call has args or arguments, not both - at `steps[0].calls[0]`.",
    ),
    "e.json": (
        script(usage={"prompt_tokens": -1, "completion_tokens": 1}),
        "e.json: s: Expected `int` >= 0 - at `steps[0].usage.prompt_tokens`.",
    ),
    "f.json": (
        '{"a@b": {"about": "", "steps": [{"text": ""}]}}',
        "f.json: a script cannot be named 'a@b': no name, and none with @, can be asked for.",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_used_is_one_sentence_with_its_name_and_the_field(tmp_path: Path, name: str) -> None:
    content, words = BAD[name]

    with pytest.raises(BadScripts) as error:
        load_scripts(written(tmp_path, name, content))

    assert str(error.value).removeprefix(f"{tmp_path}/") == words


def test_a_file_that_is_missing_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadScripts, match=r"no.json cannot be read: No such file or directory\.$"):
        load_scripts(tmp_path / "no.json")


def test_the_built_in_scripts_stay_and_none_takes_the_name_of_another(tmp_path: Path) -> None:
    path = written(tmp_path, "a.toml", TOML)

    assert known_scripts([path]).keys() == {*SCRIPTS, "two"}
    with pytest.raises(BadScripts, match="there is a script two already"):
        known_scripts([path, path])


def test_the_command_line_takes_files_of_scripts(tmp_path: Path) -> None:
    path = written(tmp_path, "a.toml", TOML)

    listed = json.loads(ran("scripts", "--json", "--scripts", str(path)).stdout)
    refused = ran("serve", "--scripts", str(path), "--scripts", str(tmp_path / "no.json"))

    assert list(listed) == [*SCRIPTS, "two"]
    assert refused.returncode == 2
    assert "cannot be read" in refused.stderr


def test_the_delegate_script_repeats_what_its_subagent_found() -> None:
    asks, answers = SCRIPTS["delegate"].steps

    assert asks.calls == (Call("c1", "research", {"question": "Which file mentions a timeout?"}),)
    assert answers == Step(echo=True)
