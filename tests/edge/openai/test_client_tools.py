"""Tools that the client runs: calls go out by our ids, outputs come back by them, and nothing is run twice."""

from __future__ import annotations

import re
from typing import Any

import pytest

from scripted.scripts import Call
from tests.edge.openai.talking import USER, WEATHER, answer_of, chat, outputs, provider_ids, stream
from tests.serving import TEST_SCRIPTS, Serve, calling, refused


@pytest.fixture
def mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that asks for tools of both sides."""
    script = calling(
        Call("c1", "weather", {"city": "Oslo"}), Call("c2", "list_files"), Call("c3", "weather", {"city": "Bergen"})
    )
    monkeypatch.setitem(TEST_SCRIPTS, "mixed", script)  # type: ignore[arg-type]


async def test_calls_of_the_client_go_out_by_our_ids_and_the_provider_sees_its_own(serve: Serve) -> None:
    async with serve(agent={"model": "asks_client"}) as gateway:
        first = await chat(gateway, tools=[WEATHER])
        choice = answer_of(first)
        assert choice["finish_reason"] == "tool_calls"
        reply = choice["message"]
        assert all(re.fullmatch(r"run_[0-9a-f]{16,32}\.1\.[01]", call["id"]) for call in reply["tool_calls"])
        assert first.json["gateway"]["reason"] == "tool_outputs"

        second = await chat(gateway, messages=[USER, *outputs(reply, "sun", "rain")], tools=[WEATHER])

        assert answer_of(second)["message"]["content"] == "Done."
        run = await gateway.look(first.headers["X-Run-Id"])
        assert second.headers["X-Run-Id"] == run["id"]
        assert provider_ids(run) == ["c1", "c2"]
        told = [(m["tool_call_id"], m["content"]) for m in run["messages"] if m["role"] == "tool"]
        assert told == [("c1", "sun"), ("c2", "rain")]


async def test_the_outputs_are_enough_without_the_conversation_before_them(serve: Serve) -> None:
    async with serve(agent={"model": "asks_client"}) as gateway:
        reply = answer_of(await chat(gateway, tools=[WEATHER]))["message"]

        second = await chat(gateway, messages=outputs(reply, "sun", "rain"))

        assert answer_of(second)["message"]["content"] == "Done."


@pytest.mark.parametrize("streamed", [False, True])
async def test_tools_of_both_sides_in_one_turn_each_run_once(mixed: None, serve: Serve, streamed: bool) -> None:
    async with serve(agent={"model": "mixed"}) as gateway:
        if streamed:
            got = await stream(gateway, tools=[WEATHER])
            calls: list[dict[str, Any]] = got.calls
            assert (got.finish, got.done) == ("tool_calls", True)
            reply: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": calls}
        else:
            reply = answer_of(await chat(gateway, tools=[WEATHER]))["message"]
        assert [call["function"]["arguments"] for call in reply["tool_calls"]] == [
            '{"city":"Oslo"}',
            '{"city":"Bergen"}',
        ]

        backwards = [reply, *reversed(outputs(reply, "sun", "rain")[1:])]
        second = await chat(gateway, messages=[USER, *backwards])

        run = await gateway.look(second.headers["X-Run-Id"])
        assert (run["status"], run["tool_runs"]) == ("completed", 1)
        assert [m["tool_call_id"] for m in run["messages"] if m["role"] == "tool"] == ["c1", "c2", "c3"]
        started = [event["toolName"] for event in await gateway.trace(run["id"]) if event["type"] == "tool_start"]
        assert started == ["list_files"]


async def test_some_outputs_leave_the_run_waiting_for_the_others(serve: Serve) -> None:
    async with serve(agent={"model": "asks_client"}) as gateway:
        reply = answer_of(await chat(gateway, tools=[WEATHER]))["message"]
        both = outputs(reply, "sun", "rain")

        half = answer_of(await chat(gateway, messages=[USER, both[0], both[2]]))

        assert half["finish_reason"] == "tool_calls"
        assert [call["id"] for call in half["message"]["tool_calls"]] == [reply["tool_calls"][0]["id"]]
        whole = await chat(gateway, messages=[USER, *both])
        assert answer_of(whole)["message"]["content"] == "Done."


async def test_outputs_that_are_sent_again_get_the_same_answer_and_change_nothing(serve: Serve) -> None:
    async with serve(agent={"model": "asks_client"}) as gateway:
        reply = answer_of(await chat(gateway, tools=[WEATHER]))["message"]
        messages = [USER, *outputs(reply, "sun", "rain")]

        first, again = await chat(gateway, messages=messages), await chat(gateway, messages=messages)

        assert answer_of(first) == answer_of(again)
        assert again.json["gateway"]["turns"] == 2


async def test_a_message_behind_the_outputs_is_part_of_what_the_model_reads(serve: Serve) -> None:
    async with serve(agent={"model": "asks_client"}) as gateway:
        reply = answer_of(await chat(gateway, tools=[WEATHER]))["message"]
        more = {"role": "user", "content": "And be quick."}

        got = await chat(gateway, messages=[USER, *outputs(reply, "sun", "rain"), more])

        run = await gateway.look(got.headers["X-Run-Id"])
        assert [message["role"] for message in run["messages"][-3:]] == ["tool", "user", "assistant"]
        missing = await chat(gateway, tools=[WEATHER])
        half = outputs(answer_of(missing)["message"], "sun", "rain")[:2]
        refused(await chat(gateway, messages=[USER, *half, more]), 400, words="have no output")


async def test_outputs_of_a_run_that_is_gone_begin_a_new_one_or_are_refused_in_words(serve: Serve) -> None:
    async with serve(agent={"model": "talks"}) as gateway:
        call = {
            "id": "run_0123456789abcdef.1.0",
            "type": "function",
            "function": {"name": "weather", "arguments": "{}"},
        }
        answer = {"role": "tool", "tool_call_id": call["id"], "content": "sun"}
        reply = {"role": "assistant", "content": None, "tool_calls": [call]}

        whole = await chat(gateway, messages=[USER, reply, answer])
        orphan = await chat(gateway, messages=[USER, answer])

        assert answer_of(whole)["finish_reason"] == "stop"
        assert all(
            ":" not in id and "." not in id for id in provider_ids(await gateway.look(whole.headers["X-Run-Id"]))
        )
        refused(orphan, 404, "not_found", words="there is no run run_0123456789abcdef")


async def test_a_tool_of_the_agents_own_is_run_here_though_the_client_names_it(serve: Serve) -> None:
    listing = {"type": "function", "function": {"name": "list_files", "parameters": {"type": "object"}}}
    async with serve() as gateway:
        got = await chat(gateway, tools=[listing, WEATHER])

        assert got.json["gateway"]["status"] == "completed"


async def test_an_approval_and_a_call_of_the_clients_in_one_turn(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    script = calling(Call("c1", "weather", {"city": "Oslo"}), Call("c2", "delete_file", {"path": "access.log"}))
    monkeypatch.setitem(TEST_SCRIPTS, "both", script)  # type: ignore[arg-type]
    async with serve(agent={"model": "both"}) as gateway:
        waits = await chat(gateway, tools=[WEATHER])
        run_id = waits.headers["X-Run-Id"]
        assert answer_of(waits)["finish_reason"] == "length"
        await gateway.command(run_id, "approve", {"call_id": f"{run_id}:1:1"})

        calls = answer_of(await chat(gateway, headers={"X-Run-Id": run_id}))
        done = await chat(gateway, messages=[USER, *outputs(calls["message"], "sun")])

        assert calls["finish_reason"] == "tool_calls"
        assert answer_of(done)["message"]["content"] == "Done."
