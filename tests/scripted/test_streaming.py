from typing import Any

import pytest

from scripted.scripts import SCRIPTS
from scripted.wire import Answer, Function, Reply, ToolCall, Usage, chunks

OPTIONS = {"include_usage": True}
SPOKEN = {"messages": [{"role": "user", "content": "hello"}, *({"role": "assistant"},) * 5]}


def reassembled(parts: list[Any]) -> dict[str, Any]:
    """The message that the deltas add up to, as a client adds them."""
    message: dict[str, Any] = {}
    for part in parts:
        for choice in part["choices"]:
            add(message, choice["delta"])
    return message


def add(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for call in delta.pop("tool_calls", []):
        known = message.setdefault("tool_calls", [])
        if call["index"] == len(known):
            known.append({"id": call["id"], "type": call["type"], "function": {"name": "", "arguments": ""}})
        for name, text in call["function"].items():
            known[call["index"]]["function"][name] += text
    for name, value in delta.items():
        message[name] = value if message.get(name) is None else message[name] + value


@pytest.mark.parametrize("fields", [{}, SPOKEN], ids=["first turn", "later turn"])
@pytest.mark.parametrize("script", SCRIPTS)
async def test_the_deltas_add_up_to_the_plain_reply(ask: Any, script: str, fields: Any) -> None:
    plain = (await ask(script, **fields)).json
    streamed = (await ask(script, stream=True, stream_options=OPTIONS, **fields)).chunks

    assert reassembled(streamed) == plain["choices"][0]["message"]
    assert streamed[-2]["choices"][0]["finish_reason"] == plain["choices"][0]["finish_reason"]
    assert streamed[-1]["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"]


async def test_a_stream_begins_with_the_role_and_ends_with_done(ask: Any) -> None:
    got = await ask("plan", stream=True)

    assert got.headers["Content-Type"].startswith("text/event-stream")
    assert got.chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert got.events[-1] == "[DONE]"
    assert {chunk["id"] for chunk in got.chunks} == {got.chunks[0]["id"]}
    assert {chunk["object"] for chunk in got.chunks} == {"chat.completion.chunk"}


async def test_prose_and_arguments_come_in_pieces(ask: Any) -> None:
    calls = (await ask("once", stream=True)).chunks
    prose = (await ask("once", stream=True, **SPOKEN)).chunks

    deltas = [chunk["choices"][0]["delta"] for chunk in calls + prose]
    assert sum("tool_calls" in delta for delta in deltas) == 3
    assert sum(bool(delta.get("content")) for delta in deltas) == 3


async def test_usage_comes_in_a_last_chunk_without_choices_if_it_is_asked_for(ask: Any) -> None:
    asked = (await ask("plan", stream=True, stream_options=OPTIONS)).chunks
    not_asked = (await ask("plan", stream=True)).chunks

    assert asked[-1]["choices"] == []
    assert asked[-1]["usage"]["total_tokens"] > 0
    assert all(chunk["usage"] is None for chunk in asked[:-1])
    assert all("usage" not in chunk for chunk in not_asked)


def test_parallel_calls_have_an_index_each() -> None:
    calls = tuple(ToolCall(id=id, function=Function("list_files", "{}")) for id in ("c1", "c2"))
    answer = Answer("chatcmpl-1", "plan", Reply(tool_calls=calls), Usage(1, 1, 2), "tool_calls")

    deltas = [chunk.choices[0].delta.tool_calls for chunk in chunks(answer, include_usage=False)]

    assert [call[0].index for call in deltas if call] == [0, 0, 0, 1, 1, 1]
