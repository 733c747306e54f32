"""The operator's own tools and stop rules, from a configuration file to HTTP."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from msgspec.structs import replace

from gateway.app import serving
from gateway.config import Config, ConfigError, load
from gateway.toolsets import agents_of, loaded_predicates, toolsets
from scripted.app import create_app as create_scripted
from scripted.app import serving as serving_scripted
from scripted.scripts import SCRIPTS, Call, Script, Step
from tests.serving import Gateway, calling, refused

MODULE = '''
from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta


def add(a: Annotated[float, Meta(description="The first.")], b: float = 1, *, ctx) -> float:
    """Add two numbers."""
    ctx.progress("adding")
    return a + b


async def divide(a: float, b: float) -> float:
    """Divide."""
    await asyncio.sleep(0)
    return a / b


def explain(error):
    return "nobody can do that." if isinstance(error, ZeroDivisionError) else str(error)


def hang(ctx) -> None:
    """Wait for Stop."""
    while not ctx.cancelled:
        pass


def too_long(run):
    return f"it took {run.turns} turns." if run.turns >= 3 else None


def broken(run):
    return run.no_such_field


def talkative(run):
    return run.turns >= 2


async def late(run):
    return None
'''

CONFIG = """
[store]
path = "runs.db"

[agents.sums]
model = "plan"
tools = ["add", "divide", "erase", "hang"]

[agents.files]
model = "runaway"
workspace = "files"
tools = ["list_files", "add", "read_file"]
limits = {{ max_turns = 30 }}
policies = {{ dedupe = "off" }}

[agents.watched]
model = "runaway"
workspace = "files"
policies = {{ dedupe = "off" }}
stop_rules = {{ repeated_calls = 2, predicates = ["too_long"] }}

[prices."*"]
input = 2.0
output = 12.0

[tools.add]
function = "{0}:add"
read_only = true

[tools.divide]
function = "{0}:divide"
description = "Divide the first number by the second."
error_words = "{0}:explain"

[tools.erase]
function = "{0}:add"
needs_approval = true

[tools.hang]
function = "{0}:hang"
timeout_seconds = 0.05

[predicates]
too_long = "{0}:too_long"
broken = "{0}:broken"
talkative = "{0}:talkative"
"""

OWN_SCRIPTS = {
    **SCRIPTS,
    "adds": calling(Call("c1", "add", {"a": 2}), Call("c2", "add", {"a": 2, "b": 0.5})),
    "adds_words": calling(Call("c1", "add", {"a": "two"}), Call("c2", "add", {"a": 1, "c": 1})),
    "divides": calling(Call("c1", "divide", {"a": 1, "b": 4}), Call("c2", "divide", {"a": 1, "b": 0})),
    "erases": calling(Call("c1", "erase", {"a": 1, "b": 1})),
    "hangs": calling(Call("c1", "hang")),
    "fails": Script(
        "Reads what is not there, for ever.", (Step(calls=(Call("c{turn}", "read_file", {"path": "x"}),)),)
    ),
}

Write = Callable[..., Config]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """A configuration file beside a module that nobody has imported yet."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(text: str = CONFIG, module: str = MODULE) -> Config:
        name = f"own_{uuid4().hex}"
        (tmp_path / f"{name}.py").write_text(module)
        (tmp_path / "gateway.toml").write_text(text.format(name))
        config = load(str(tmp_path / "gateway.toml"), {})
        return replace(config, server=replace(config.server, port=0))

    return write


@pytest.fixture
async def gateway(write: Write) -> AsyncIterator[Gateway]:
    async with served(write()) as gateway:
        yield gateway


@asynccontextmanager
async def _served(config: Config) -> AsyncIterator[Gateway]:
    async with serving_scripted(create_scripted(scripts=OWN_SCRIPTS)) as address:
        provider = load(None, {"LLM_BASE_URL": f"{address}/v1"}).provider
        async with serving(replace(config, provider=provider)) as url, aiohttp.ClientSession() as session:
            yield Gateway(url, session, config)


served: Callable[[Config], AbstractAsyncContextManager[Gateway]] = _served


def answers(run: dict[str, Any]) -> list[str]:
    return [message["content"] for message in run["messages"] if message["role"] == "tool"]


# --- tools ----------------------------------------------------------------------------------------------------------


async def test_a_function_is_a_tool_of_the_agents_that_name_it(gateway: Gateway) -> None:
    run = await gateway.run("adds", agent="sums")
    trace = await gateway.trace(run["id"])

    assert (run["status"], answers(run)) == ("completed", ["3.0", "2.5"])
    assert [tool["name"] for tool in trace[0]["tools"]] == ["add", "divide", "erase", "hang"]
    assert trace[0]["tools"][0]["parameters"] == {
        "type": "object",
        "properties": {
            "a": {"type": "number", "description": "The first."},
            "b": {"type": "number", "default": 1},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert [event["label"] for event in trace if event["type"] == "tool_progress"] == ["adding", "adding"]


async def test_own_tools_stand_beside_those_of_the_workspace(gateway: Gateway) -> None:
    run = await gateway.run("adds", agent="files")
    trace = await gateway.trace(run["id"])

    assert [tool["name"] for tool in trace[0]["tools"]] == ["list_files", "add", "read_file"]
    assert answers(run) == ["3.0", "2.5"]


async def test_arguments_that_do_not_fit_are_answered_in_words_and_nothing_is_run(gateway: Gateway) -> None:
    run = await gateway.run("adds_words", agent="sums")

    assert answers(run) == [
        'Error: invalid arguments for add: a: "two" is not of type "number".',
        "Error: invalid arguments for add: Additional properties are not allowed ('c' was unexpected).",
    ]
    assert run["tool_runs"] == 0


async def test_the_operators_words_are_what_the_model_reads_of_an_error(gateway: Gateway) -> None:
    run = await gateway.run("divides", agent="sums")

    assert answers(run) == ["0.25", "Error: nobody can do that."]


async def test_a_function_that_hangs_ends_at_its_timeout_and_is_told_so(gateway: Gateway) -> None:
    assert answers(await gateway.run("hangs", agent="sums")) == ["Error: hang took longer than 0.05 s."]


async def test_a_function_may_need_an_approval(gateway: Gateway) -> None:
    run = await gateway.run("erases", agent="sums")
    assert run["reason"] == "approval"

    got = await gateway.command(run["id"], "approve", {"call_id": run["pending_approvals"][0]["call_id"]})

    assert answers(got.json) == ["2.0"]


# --- stop rules -----------------------------------------------------------------------------------------------------


RULES = [
    ("runaway", {"repeated_calls": 3}, "repeated_calls", "list_files {} was asked for 3 times.", 3),
    ("fails", {"repeated_failures": 2}, "repeated_failures", 'read_file {"path":"x"} has failed 2 times.', 2),
    ("runaway", {"after_tools": ["list_files"]}, "after_tools", "list_files has succeeded.", 1),
    ("runaway", {"predicates": ["too_long"]}, "too_long", "it took 3 turns.", 3),
    (
        "runaway",
        {"predicates": ["broken"]},
        "broken",
        "it failed: AttributeError: 'Run' object has no attribute 'no_such_field'",
        0,
    ),
    (
        "runaway",
        {"predicates": ["talkative"]},
        "talkative",
        "it returned True where a sentence or None was expected.",
        2,
    ),
]


@pytest.mark.parametrize(("model", "rules", "rule", "sentence", "turns"), RULES)
async def test_a_stop_rule_stops_the_run_with_its_name_and_a_sentence(
    gateway: Gateway, model: str, rules: dict[str, Any], rule: str, sentence: str, turns: int
) -> None:
    run = await gateway.run(model, agent="files", stop_rules=rules)

    assert (run["status"], run["reason"], run["turns"]) == ("interrupted", "stop_rule", turns)
    assert run["interruption"] == {"type": "stop_rule", "rule": rule, "sentence": sentence}
    assert run["stop_rules"] == rules
    assert run["why"] == f"The stop rule {rule} fired: {sentence}"
    assert run["next"] == f"Go on: gateway resume {run['id']}"
    assert (await gateway.trace(run["id"]))[-1]["reason"] == "stop_rule"


@pytest.mark.parametrize("model", ["runaway", "fails"])
async def test_stop_rules_are_off_by_default(gateway: Gateway, model: str) -> None:
    run = await gateway.run(model, agent="files")

    assert (run["status"], run["turns"]) == ("max_turns_exceeded", 30)


@pytest.mark.parametrize(
    ("model", "rules", "turns"),
    [
        ("runaway", {"repeated_calls": 3}, [3, 6, 9]),
        ("fails", {"repeated_failures": 2}, [2, 4, 6]),
        ("runaway", {"after_tools": ["list_files"]}, [1, 2, 3]),
        ("runaway", {"predicates": ["too_long"]}, [3, 4, 5]),
    ],
)
async def test_a_resumed_run_gets_a_new_chance(
    gateway: Gateway, model: str, rules: dict[str, Any], turns: list[int]
) -> None:
    run = await gateway.run(model, agent="files", stop_rules=rules)
    seen = [run["turns"]]
    for _ in turns[1:]:
        got = await gateway.command(run["id"], "resume", {})
        assert got.json["reason"] == "stop_rule"
        seen.append(got.json["turns"])

    assert seen == turns


async def test_the_rules_of_the_agent_hold_unless_the_run_says_otherwise(gateway: Gateway) -> None:
    agents_own = await gateway.run("runaway", agent="watched")
    fewer = await gateway.run("runaway", agent="watched", stop_rules={"repeated_calls": None})
    none = await gateway.run("runaway", agent="watched", stop_rules={"repeated_calls": None, "predicates": []})

    assert [run["interruption"].get("rule") for run in (agents_own, fewer, none)] == [
        "repeated_calls",
        "too_long",
        None,
    ]
    assert none["status"] == "max_turns_exceeded"


@pytest.mark.parametrize(
    ("rules", "status", "param", "words"),
    [
        (
            {"predicates": ["too_long", "too_short"]},
            422,
            "stop_rules.predicates",
            "there is no stop rule too_short; there are: too_long, broken, talkative.",
        ),
        (
            {"after_tools": ["fly"]},
            422,
            "stop_rules.after_tools",
            "there is no tool fly; there are: list_files, add, read_file.",
        ),
        ({"repeated_calls": 1}, 400, "stop_rules.repeated_calls", ">= 2"),
        ({"repeated_failures": 0}, 400, "stop_rules.repeated_failures", ">= 1"),
        ({"predicates": "too_long"}, 400, "stop_rules.predicates", "Expected `array`"),
        ({"always": True}, 400, None, "unknown field `always`"),
    ],
)
async def test_rules_that_cannot_be_are_refused_and_nothing_is_created(
    gateway: Gateway, rules: dict[str, Any], status: int, param: str | None, words: str
) -> None:
    got = await gateway.start("runaway", agent="files", stop_rules=rules)

    refused(got, status, words=words, param=param)
    assert gateway.stored_runs() == 0


async def test_a_predicate_that_is_gone_stops_the_runs_that_are_pinned_to_it(write: Write) -> None:
    config = write()
    async with served(config) as gateway:
        run = await gateway.run("runaway", agent="files", stop_rules={"predicates": ["too_long"]})
    agents = {"files": config.agents["files"]}
    async with served(replace(config, predicates={}, agents=agents)) as gateway:
        got = await gateway.command(run["id"], "resume", {})

    assert got.json["interruption"]["sentence"] == "it is no longer configured."


# --- what cannot start ----------------------------------------------------------------------------------------------


BASE = 'include = []\n[agents.a]\ntools = ["t"]\n'
MISTAKES = [
    (BASE, "agents.a.tools: there is no tool t; the tools are: none, and without a workspace none over files."),
    (
        BASE.replace('"t"', '"read_file"'),
        "agents.a.tools: there is no tool read_file; the tools are: none, and without",
    ),
    (BASE + '[tools.t]\nfunction = "{0}:nothing"', "tools.t: {0}:nothing: {0} has no nothing."),
    (BASE + '[tools.t]\nfunction = "{0}:explain"', "tools.t: {0}:explain has no docstring: write one, or a descrip"),
    (BASE + '[tools.t]\nfunction = "{0}:add"\nerror_words = "{0}:no"', "tools.t: {0}:no: {0} has no no."),
    (
        BASE + '[tools.t]\nfunction = "{0}:add"\nparameters = {{ type = "object", required = 3 }}',
        "tools.t: parameters is no JSON Schema: 3 is not of type",
    ),
    (
        BASE
        + 'stop_rules = {{ after_tools = ["u"] }}\n[tools.t]\nfunction = "{0}:add"\n[tools.u]\nfunction = "{0}:add"',
        "agents.a.stop_rules.after_tools: there is no tool u; the tools are: t.",
    ),
    ('[predicates]\np = "{0}:no"', "predicates.p: {0}:no: {0} has no no."),
    ('[predicates]\np = "{0}:late"', "predicates.p: {0}:late is async"),
]


@pytest.mark.parametrize(("text", "words"), MISTAKES)
def test_a_mistake_in_the_configuration_is_said_before_anything_is_served(write: Write, text: str, words: str) -> None:
    config = write(text)
    with pytest.raises(ConfigError) as refused:
        wire(config)
    own = next((name for name in sys.modules if name.startswith("own_") and name in str(refused.value)), "")

    assert words.format(own) in str(refused.value)


def wire(config: Config) -> None:
    agents_of(config, toolsets(config))
    loaded_predicates(config)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[tools."add two"]\nfunction = "m:f"', "tools.add two: a tool's name has 1 to 64 letters, digits, _ or -."),
        ('[predicates]\nrepeated_calls = "m:f"', "predicates.repeated_calls: that is the name of a stop rule"),
        ('[agents.a]\nstop_rules = {{ predicates = ["p"] }}', "agents.a.stop_rules.predicates: [predicates] has no p."),
        ('[tools.t]\nfunction = "m:f"\ntimeout_seconds = 0.0', "timeout_seconds"),
        ("[tools.t]\nread_only = true", "missing required field `function`"),
    ],
)
def test_a_mistake_that_needs_no_code_to_be_seen_is_said_when_the_file_is_read(
    write: Write, text: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.toml") as refused:
        write(text)

    assert words in str(refused.value)


def test_modules_are_found_in_the_folders_of_python_path(write: Write, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "own_elsewhere.py").write_text(MODULE)
    config = write('python_path = ["lib"]\n[agents.a]\ntools = ["t"]\n[tools.t]\nfunction = "own_elsewhere:add"\n')

    assert list(toolsets(config)["a"]) == ["t"]
