"""What is run: the published scenarios, and a few of our own that write or that the client has a part in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec import Struct

from scripted.scripts import SCRIPTS, Call, Script, Step
from tests.acceptance.client import Body, Person, approver, caller, decliner, nobody

FIGURES = json.loads((Path(__file__).parents[1] / "figures.json").read_text(), parse_float=Decimal)
QUESTION = "Which file mentions a timeout?"
FILE_TOOLS = ("list_files", "read_file", "delete_file", "scan_archive")
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def writes_once(tool: str) -> Script:
    return Script(
        "Writes one line, answers.",
        (Step(turn=0, calls=(Call("c1", tool, {"file": "journal"}),)), Step(text="The line is written.")),
    )


OWN_SCRIPTS: Mapping[str, Script] = {
    **SCRIPTS,
    "append": writes_once("append_line"),
    "put": writes_once("put_line"),
    "batch": Script(
        "Asks for two reads, a write and a read in one turn.",
        (
            Step(
                turn=0,
                calls=(
                    Call("c1", "list_files"),
                    Call("c2", "read_file", {"path": "errors.log"}),
                    Call("c3", "put_line", {"file": "journal"}),
                    Call("c4", "read_file", {"path": "notes.txt"}),
                ),
            ),
            Step(text="All four are done."),
        ),
    ),
    "mixed": Script(
        "Asks for two reads, two deletions, a write and a read in one turn.",
        (
            Step(
                turn=0,
                calls=(
                    Call("c1", "list_files"),
                    Call("c2", "read_file", {"path": "errors.log"}),
                    Call("c3", "delete_file", {"path": "access.log"}),
                    Call("c4", "put_line", {"file": "journal"}),
                    Call("c5", "delete_file", {"path": "notes.txt"}),
                    Call("c6", "read_file", {"path": "errors.log"}),
                ),
            ),
            Step(text="All six are done."),
        ),
    ),
    "asks_cleaner": Script(
        "Has a subagent delete a file, repeats what it said.",
        (Step(turn=0, calls=(Call("c1", "cleaner", {"question": "Free some space."}),)), Step(echo=True)),
    ),
    "weather": Script(
        "Asks the client twice in one turn, and once more for a tool of the gateway.",
        (
            Step(
                turn=0,
                calls=(
                    Call("c1", "weather", {"city": "Bern"}),
                    Call("c2", "list_files"),
                    Call("c3", "weather", {"city": "Rome"}),
                ),
            ),
            Step(text="It is sunny in both."),
        ),
    ),
}


class Scenario(Struct, frozen=True, kw_only=True):
    """`figures` names the published row that the run must end with."""

    model: str
    figures: str | None = None
    person: Person = nobody
    policies: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    agent: str = "files"
    tools: tuple[str, ...] | None = FILE_TOOLS
    client_tools: tuple[Body, ...] = ()
    stream: bool = False

    def order(self) -> Body:
        return {
            "input": QUESTION,
            "agent": self.agent,
            "model": self.model,
            "tools": None if self.tools is None else [*self.tools, *self.client_tools],
            "policies": {"dedupe": "off"} | self.policies,
            "limits": self.limits,
            "stream": self.stream,
        }


SCENARIOS: Mapping[str, Scenario] = {
    "plan": Scenario(model="plan", figures="plan"),
    "plan_streamed": Scenario(model="plan", figures="plan", stream=True),
    "recover_worded": Scenario(model="recover", figures="recover_worded"),
    "repeat": Scenario(model="repeat", figures="repeat"),
    "repeat_cached": Scenario(model="repeat", figures="repeat_cached", policies={"dedupe": "read_only"}),
    "destructive_approved": Scenario(model="destructive", figures="destructive_approved", person=approver),
    "destructive_rejected": Scenario(model="destructive", figures="destructive_rejected", person=decliner),
    "double_delete": Scenario(
        model="double_delete",
        figures="double_delete_cache_reads",
        policies={"approval": "auto", "dedupe": "read_only"},
    ),
    "runaway": Scenario(model="runaway", limits={"max_turns": 4}),
    "slow": Scenario(model="slow"),
    "batch": Scenario(model="batch", tools=("list_files", "read_file", "put_line")),
    "weather": Scenario(model="weather", person=caller, client_tools=(WEATHER,)),
}

APPEND = Scenario(model="append", tools=("append_line",))
PUT = Scenario(model="put", tools=("put_line",))


def figures_of(run: Body) -> Body:
    """What the published rows say of a run."""
    usage = run["usage"]
    return {
        "turns": run["turns"],
        "tool_runs": run["tool_runs"],
        "prompt_tokens": usage["prompt_tokens"],
        "completion_tokens": usage["completion_tokens"],
        "cost_usd": run["cost_usd"],
        "status": run["status"],
        "output": run["output"],
    }


def published(name: str) -> Body:
    return {key: value for key, value in FIGURES[name].items() if key != "per_turn_prompt_tokens"}
