"""Tools and caches on real weights that were trained for tools. No text of the model is pinned, only its form."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import jsonschema_rs
import pytest
import pytest_asyncio

from model_server.registry import STAND_IN
from tests.model_server.conftest import Client, Got
from tests.model_server.real import chosen, hosted

SYSTEM = {
    "role": "system",
    "content": "You answer questions about the files of a workspace. Use the tools you are given.",
}
PARAMETERS: dict[str, dict[str, Any]] = {
    "list_files": {"type": "object", "properties": {}, "additionalProperties": False},
    "read_file": {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "Relative to the workspace."}},
        "required": ["path"],
        "additionalProperties": False,
    },
    "write_note": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "urgent": {"type": "boolean"}},
        "required": ["text"],
        "additionalProperties": False,
    },
}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"{name} of the workspace.", "parameters": schema}}
    for name, schema in PARAMETERS.items()
]
QUESTIONS = ["List the files.", "Read the file errors.log.", "Write a note that says: rotate the logs."]


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[Client]:
    """One server for all tests here: loading and the first prompt take their time."""
    async with hosted(chosen(STAND_IN)) as client:
        yield client


def asked(question: str) -> list[Any]:
    return [SYSTEM, {"role": "user", "content": question}]


def valid_calls(got: Got) -> list[Any]:
    """The calls of a reply, each of a declared tool with arguments that its schema allows."""
    assert got.status == 200
    calls = got.message.get("tool_calls", [])
    for call in calls:
        arguments = json.loads(call["function"]["arguments"])
        assert jsonschema_rs.is_valid(PARAMETERS[call["function"]["name"]], arguments)
    return calls


async def test_asked_for_what_a_tool_does_the_model_calls_tools_and_its_calls_are_valid(client: Client) -> None:
    replies = [await client.chat(asked(question), tools=TOOLS, max_tokens=64) for question in QUESTIONS]

    assert sum(bool(valid_calls(got)) for got in replies) >= 2
    assert all(got.json["choices"][0]["finish_reason"] == "tool_calls" for got in replies if valid_calls(got))
    assert not any("<tool_call>" in (got.message["content"] or "") for got in replies)


async def test_a_call_that_is_required_or_named_cannot_fail(client: Client) -> None:
    required = await client.chat(asked("Hello!"), tools=TOOLS, tool_choice="required", max_tokens=96)
    named = {"type": "function", "function": {"name": "write_note"}}
    one = await client.chat(asked("Hello!"), tools=TOOLS, tool_choice=named, max_tokens=96)

    assert valid_calls(required)
    assert [call["function"]["name"] for call in valid_calls(one)] == ["write_note"]


async def test_with_tools_that_must_not_be_called_the_prompt_stays_and_nothing_is_called(client: Client) -> None:
    called = await client.chat(asked(QUESTIONS[0]), tools=TOOLS, max_tokens=4)
    silent = await client.chat(asked(QUESTIONS[0]), tools=TOOLS, tool_choice="none", max_tokens=8)

    assert "tool_calls" not in silent.message
    assert cached(silent) == called.json["usage"]["prompt_tokens"] - 1


async def test_a_streamed_call_is_the_same_as_a_whole_one(client: Client) -> None:
    whole = await client.chat(asked(QUESTIONS[1]), tools=TOOLS, max_tokens=64)
    stream = await client.chat(asked(QUESTIONS[1]), tools=TOOLS, max_tokens=64, stream=True)

    deltas = [
        delta["function"]
        for chunk in stream.chunks
        for choice in chunk["choices"]
        for delta in choice["delta"].get("tool_calls", ())
    ]
    assert [call["function"]["name"] for call in valid_calls(whole)] == [d["name"] for d in deltas if "name" in d]
    assert "".join(delta["arguments"] for delta in deltas) == "".join(
        call["function"]["arguments"] for call in valid_calls(whole)
    )


# ── caches ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def cached(got: Got) -> int:
    return got.json["usage"]["prompt_tokens_details"]["cached_tokens"]


class Agent:
    """A loop that answers every call with a made-up result, and every prose with another question."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._messages: list[Any] = asked(f"I am {name}. {QUESTIONS[0]}")
        self._name = name
        self.known = 0  # tokens that the server has seen in the turns before
        self.turns: list[Got] = []

    async def turn(self) -> tuple[int, int]:
        """How many tokens were cached, and how many must at least have been."""
        got = await self._client.chat(self._messages, tools=TOOLS, max_tokens=24)
        usage = got.json["usage"]
        added = usage["prompt_tokens"] - self.known
        least = usage["prompt_tokens"] - added - 8
        self.known = usage["total_tokens"]
        self.turns.append(got)
        self._messages += [got.message, *self._answers(got)]
        return cached(got), least

    def _answers(self, got: Got) -> list[Any]:
        result = f"result {len(self.turns)} for {self._name}: access.log, errors.log, notes.txt"
        calls = got.message.get("tool_calls", [])
        answers = [{"role": "tool", "tool_call_id": call["id"], "content": result} for call in calls]
        return answers or [{"role": "user", "content": "And now read the next file."}]


async def test_over_ten_turns_an_agent_computes_only_what_each_turn_adds(client: Client) -> None:
    agent = Agent(client, "Ada")
    await agent.turn()
    for _ in range(9):
        found, least = await agent.turn()
        assert found >= least > 0


@pytest.mark.parametrize("names", [("Dee", "Bob"), ("Ann", "Ben", "Cat", "Dan", "Eva", "Finn", "Gil", "Hal")], ids=len)
async def test_agents_that_take_turns_keep_their_caches_and_share_the_beginning(
    client: Client, names: tuple[str, ...]
) -> None:
    first, *others = [Agent(client, name) for name in names]
    await first.turn()
    for agent in others:
        found, _ = await agent.turn()
        assert found >= agent.turns[0].json["usage"]["prompt_tokens"] - 24  # all but the user's own words
    for _ in range(3):
        for agent in (first, *others):
            found, least = await agent.turn()
            assert found >= least > 0


async def test_agents_at_once_keep_their_caches_too(client: Client) -> None:
    agents = [Agent(client, name) for name in ("Eve", "Fay", "Gus")]
    for turn in range(3):
        counts = await asyncio.gather(*(agent.turn() for agent in agents))
        assert turn == 0 or all(found >= least > 0 for found, least in counts)
    computed = sum(got.json["timings"]["prefill_tokens"] for agent in agents for got in agent.turns[:1])
    assert computed < max(agent.turns[0].json["usage"]["prompt_tokens"] for agent in agents) + 3 * 24
