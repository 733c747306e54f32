"""`gateway tools`: what the agents may use, and one tool tried without a gateway."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, Done, Terminal, environment

MODULE = '''
import time


def add(a: int, b: int = 1, *, ctx) -> int:
    """Add two numbers."""
    ctx.progress("adding")
    return a + b


def fail() -> None:
    """Fail."""
    raise ValueError("boom")


def sleep(seconds: float) -> None:
    """Sleep."""
    time.sleep(seconds)


def beep() -> str:
    """Beep."""
    return "\\x1b[2Jbeep"
'''

CONFIG = """
[agents.files]
workspace = "files"

[agents.sums]
tools = ["add", "fail", "sleep", "beep"]
policies = { tool_errors = "vague" }

[agents.idle]

[agents.lead]
subagents = ["sums"]

[tools.add]
function = "own_tools_of_the_cli:add"
read_only = true
cacheable = true
timeout_seconds = 2.5

[tools]
fail.function = "own_tools_of_the_cli:fail"
beep.function = "own_tools_of_the_cli:beep"
sleep = { function = "own_tools_of_the_cli:sleep", timeout_seconds = 0.1 }
"""

Tools = Callable[..., Done]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own_tools_of_the_cli.py").write_text(MODULE)
    (tmp_path / "gateway.toml").write_text(CONFIG)
    return tmp_path


@pytest.fixture
def tools(folder: Path) -> Tools:
    def run(*args: str) -> Done:
        command = [*COMMAND, "tools", *args, "--config", str(folder / "gateway.toml")]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL, env=environment()
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def on_terminal(folder: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def run(*args: str) -> Terminal:
        opened.append(Terminal("", "tools", *args, "--config", str(folder / "gateway.toml")))
        return opened[-1]

    yield run
    for each in opened:
        each.close()


def test_the_list_shows_each_agents_tools_with_flags_and_parameters(tools: Tools) -> None:
    done = tools()

    assert done.code == 0
    assert [re.split(r" {2,}", line.strip()) for line in done.out.splitlines()] == [
        ["agent", "tool", "flags", "takes", "description"],
        ["files", "list_files", "read only, cacheable", "nothing", "List the files in the directory."],
        ["files", "read_file", "read only, cacheable", "path", "Read one file in the directory and return its text."],
        ["files", "delete_file", "needs approval, idempotent", "path", "Delete one file. This cannot be undone."],
        ["files", "scan_archive", "read only", "nothing", "Scan every file in the archive. Slow."],
        ["sums", "add", "read only, cacheable, 2.5 s", "a, b?", "Add two numbers."],
        ["sums", "fail", "-", "nothing", "Fail."],
        ["sums", "sleep", "0.1 s", "seconds", "Sleep."],
        ["sums", "beep", "-", "nothing", "Beep."],
        ["idle", "no tools"],
        ["lead", "sums", "idempotent, subagent", "question", "Ask the agent sums."],
    ]


def test_the_list_as_json_has_the_schemas(tools: Tools) -> None:
    listed = {each["agent"]: each["tools"] for each in json.loads(tools("--json").out)["agents"]}

    assert list(listed) == ["files", "sums", "idle", "lead"]
    assert listed["sums"][0]["read_only"] is True
    assert listed["sums"][0]["parameters"]["properties"] == {
        "a": {"type": "integer"},
        "b": {"type": "integer", "default": 1},
    }


def test_looking_at_the_tools_makes_no_workspace(tools: Tools, folder: Path) -> None:
    tools()

    assert not (folder / "files").exists()


def test_a_tool_is_tried_and_its_answer_alone_is_on_stdout(tools: Tools) -> None:
    done = tools("try", "add", '{"a": 2, "b": 3}')

    assert (done.code, done.out) == (0, "5\n")
    assert re.fullmatch(r"add: adding\nadd: done in \d+ ms\n", done.err)


def test_a_tool_over_files_acts_on_the_workspace_of_the_agent(tools: Tools, folder: Path) -> None:
    done = tools("try", "read_file", '{"path": "notes.txt"}', "--agent", "files")

    assert (done.code, done.out) == (0, "Remember to rotate your logs.\n\n")
    assert f"{folder / 'files'} is new: made with three sample files.\n" in done.err

    (folder / "files" / "notes.txt").write_text("mine")

    assert tools("try", "read_file", '{"path": "notes.txt"}').out == "mine\n"


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("add", '{"a": "two"}'), 1, 'Error: invalid arguments for add: a: "two" is not of type "integer".\n'),
        (("add", "{a"), 1, "Error: the arguments of add are not valid JSON"),
        (("add", "[]"), 1, "Error: the arguments of add must be one JSON object.\n"),
        (("sleep", '{"seconds": 9}'), 1, "Error: sleep took longer than 0.1 s.\n"),
        (
            ("fail",),
            1,
            "Error: ValueError: boom\nUnder tool_errors = 'vague' the model reads: Error: the tool f",
        ),
        (
            ("read_file", '{"path": "/etc/shadow"}'),
            1,
            "Error: permission denied: /etc/shadow\nIt is permanent: no",
        ),
        (("sums", '{"question": "?"}'), 2, "sums is an agent: try it with gateway run TASK --agent sums.\n"),
        (("fly",), 2, "No agent has a tool fly: the tools are list_files, read_file, delete_file, scan_archive, add, "),
        (("add", "{}", "--agent", "files"), 2, "Agent files has no tool add: the tools are list_files, read_file, "),
        (("add", "{}", "--agent", "bob"), 2, "There is no agent bob: the agents are files, sums, idle, lead.\n"),
        (
            ("delete_file", '{"path": "notes.txt"}'),
            5,
            'delete_file {"path":"notes.txt"} needs an approval: look',
        ),
    ],
)
def test_what_goes_wrong_is_said_in_words_with_an_exit_code(
    tools: Tools, args: tuple[str, ...], code: int, words: str
) -> None:
    done = tools("try", *args)

    assert (done.code, done.out) == (code, "")
    assert words in done.err


def test_a_tool_that_needs_an_approval_is_run_once_it_is_given(tools: Tools, folder: Path) -> None:
    done = tools("try", "delete_file", '{"path": "notes.txt"}', "--yes")

    assert (done.code, done.out) == (0, "Deleted notes.txt.\n")
    assert sorted(each.name for each in (folder / "files").iterdir()) == ["access.log", "errors.log"]


@pytest.mark.parametrize(
    ("said", "code", "words", "files"),
    [
        ("y\n", 0, "Deleted notes.txt.", 2),
        ("n\n", 1, "Not approved, so not run.", None),
        ("\x04", 130, "Run it?", None),
    ],
)
def test_a_terminal_is_asked_for_the_approval(
    on_terminal: Callable[..., Terminal], folder: Path, said: str, code: int, words: str, files: int | None
) -> None:
    terminal = on_terminal("try", "delete_file", '{"path": "notes.txt"}')
    terminal.expect('delete_file {"path":"notes.txt"} needs an approval. Run it? [y/n] ')
    terminal.type(said)

    assert terminal.end() == code
    assert words in terminal.shown
    assert (len(list((folder / "files").iterdir())) if (folder / "files").exists() else None) == files


def test_a_terminal_is_shown_no_codes_of_the_tools(on_terminal: Callable[..., Terminal]) -> None:
    terminal = on_terminal("try", "beep")

    assert terminal.end() == 0
    assert "\\x1b[2Jbeep" in terminal.shown


def test_a_configuration_that_cannot_be_used_is_said(tools: Tools, folder: Path) -> None:
    (folder / "gateway.toml").write_text('[agents.a]\ntools = ["t"]\n[tools.t]\nfunction = "no_such_module:t"\n')
    done = tools()

    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "tools.t: no_such_module:t: no module no_such_module in python_path or among what is installed.\n"
    )
