"""The published figures, to the token, with the smallest harness that can run the scenarios: no gateway, no HTTP."""

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scripted import tokens
from scripted.scripts import reply
from scripted.wire import ChatRequest, ToolCall

FIGURES = json.loads((Path(__file__).parents[1] / "figures.json").read_text())
USD_PER_TOKEN_IN, USD_PER_TOKEN_OUT = Decimal("0.000002"), Decimal("0.000012")

Tool = Callable[[str, dict[str, str]], str]
Message = dict[str, Any]


class Stop(Exception):
    """The run ends before this call is answered."""


def definition(name: str, description: str, *, path: bool = False) -> Message:
    parameters: Message = {"type": "object", "properties": {}}
    if path:
        parameters["properties"]["path"] = {"type": "string", "description": "File name."}
        parameters["required"] = ["path"]
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    definition("list_files", "List the files in the directory."),
    definition("read_file", "Read one file in the directory and return its text.", path=True),
    definition("delete_file", "Delete one file. This cannot be undone.", path=True),
    definition("scan_archive", "Scan every file in the archive. Slow."),
]
OPENING = [
    {"role": "system", "content": "You answer questions about the files in one directory. Use the tools."},
    {"role": "user", "content": "Which file mentions a timeout?"},
]
FILES = {
    "access.log": "GET /health 200\nGET /login 200\n",
    "errors.log": "ERROR timeout: worker 7 timed out after 30000 ms\n",
    "notes.txt": "Remember to rotate your logs.\n",
}


def worded() -> Tool:
    """The three files, and errors told to the model in words."""
    files = dict(FILES)

    def tool(name: str, args: dict[str, str]) -> str:
        path = args.get("path", "")
        if name == "list_files":
            return json.dumps(sorted(files), separators=(",", ":"))
        if name == "delete_file":
            return f"Deleted {path}." if files.pop(path, None) else f"{path} was already gone."
        if path.startswith("/"):
            return f"Error: permission denied: {path}"
        return files.get(path) or f"Error: no such file: {path}. Call list_files to see what exists."

    return tool


def where(replaced: str, answer: str | None) -> Tool:
    """As `worded`, but one tool answers something else, or stops the run."""
    others = worded()

    def tool(name: str, args: dict[str, str]) -> str:
        if name != replaced:
            return others(name, args)
        if answer is None:
            raise Stop
        return answer

    return tool


class Run:
    """The published loop, as short as it can be."""

    def __init__(self, script: str, tool: Tool, max_turns: int = 20, budget: str = "1") -> None:
        self.script, self.tool, self.max_turns, self.budget = script, tool, max_turns, Decimal(budget)
        self.messages: list[Message] = list(OPENING)
        self.prompts: list[int] = []
        self.completions: list[int] = []
        self.output = ""

    @property
    def cost(self) -> Decimal:
        return sum(self.prompts) * USD_PER_TOKEN_IN + sum(self.completions) * USD_PER_TOKEN_OUT

    def finish(self) -> "Run":
        while calls := self.model():
            if len(self.prompts) >= self.max_turns or self.cost >= self.budget:
                return self
            try:
                self.messages += list(self.answers(calls))
            except Stop:
                return self
        return self

    def model(self) -> tuple[ToolCall, ...]:
        request = msgspec.convert({"model": self.script, "messages": self.messages}, ChatRequest)
        said = reply(self.script, request)
        self.prompts.append(tokens.prompt_tokens(self.messages, TOOLS))
        self.completions.append(tokens.completion_tokens(said.content, said.tool_calls))
        calls = {"tool_calls": msgspec.to_builtins(said.tool_calls)} if said.tool_calls else {}
        self.messages.append({"role": "assistant", "content": said.content, **calls})
        self.output = said.content or ""
        return said.tool_calls

    def answers(self, calls: tuple[ToolCall, ...]) -> Iterator[Message]:
        for call in calls:
            content = self.tool(call.function.name, json.loads(call.function.arguments))
            yield {"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": content}


DECLINED = "The user declined this call: keep the log."
NO_CAP = 10_000
SCENARIOS: dict[str, Callable[[], Run]] = {
    "plan": lambda: Run("plan", worded()),
    "runaway_cap_8": lambda: Run("runaway", worded(), 8),
    "runaway_cap_20": lambda: Run("runaway", worded(), 20),
    "runaway_cap_50": lambda: Run("runaway", worded(), 50),
    "runaway_cap_100": lambda: Run("runaway", worded(), 100),
    "runaway_budget_0.01": lambda: Run("runaway", worded(), NO_CAP, "0.01"),
    "runaway_budget_0.05": lambda: Run("runaway", worded(), NO_CAP, "0.05"),
    "runaway_budget_0.25": lambda: Run("runaway", worded(), NO_CAP, "0.25"),
    "recover_fatal": lambda: Run("recover", where("read_file", None)),
    "recover_vague": lambda: Run("recover", where("read_file", "Error: the tool failed.")),
    "recover_worded": lambda: Run("recover", worded()),
    "denied_cap_12": lambda: Run("denied", worded(), 12),
    "once": lambda: Run("once", worded()),
    "repeat": lambda: Run("repeat", worded()),
    "repeat_cached": lambda: Run("repeat", worded()),
    "destructive_stop": lambda: Run("destructive", where("delete_file", None)),
    "destructive_approved": lambda: Run("destructive", worded()),
    "destructive_rejected": lambda: Run("destructive", where("delete_file", DECLINED)),
    "destructive_rejected_silently": lambda: Run("destructive", where("delete_file", "")),
    "double_delete_cache_all": lambda: Run("double_delete", where("delete_file", "Deleted access.log.")),
    "double_delete_cache_reads": lambda: Run("double_delete", worded()),
    "kill_and_resume": lambda: Run("plan", worded()),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_costs_what_was_published_to_the_token(name: str) -> None:
    run, published = SCENARIOS[name]().finish(), FIGURES[name]

    assert sum(run.prompts) == published["prompt_tokens"]
    assert sum(run.completions) == published["completion_tokens"]
    assert len(run.prompts) == published["turns"]
    assert round(run.cost, 6) == Decimal(str(published["cost_usd"]))
    assert run.output == published["output"]
    assert published["per_turn_prompt_tokens"] in (None, run.prompts)


def test_every_published_scenario_with_tokens_is_run_here() -> None:
    assert SCENARIOS.keys() == {name for name, row in FIGURES.items() if "prompt_tokens" in row}


def test_the_run_killed_after_its_second_turn_has_six_messages_and_the_published_cost() -> None:
    run = Run("plan", worded())
    for _ in range(2):
        run.messages += list(run.answers(run.model()))

    assert len(run.messages) == FIGURES["kill_after_turn_2"]["messages"]
    assert run.cost == Decimal(str(FIGURES["kill_after_turn_2"]["cost_usd"]))
