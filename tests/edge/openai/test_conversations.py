"""An app with a loop of its own: one header makes one run of all that it says."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from scripted.scripts import Call, Script, Step
from tests.edge.openai.talking import USER, WEATHER, answer_of, chat, outputs, provider_ids, stream
from tests.serving import TEST_SCRIPTS, Gateway, Serve, refused

NAME = {"X-Gateway-Conversation": "ticket-42"}


async def say(gateway: Gateway, messages: list[Any], model: str = "runaway", headers: Any = None, **fields: Any) -> Any:
    return await chat(gateway, model, messages, headers={**NAME, **(headers or {})}, tools=[WEATHER], **fields)


async def loop(gateway: Gateway, turns: int, headers: Any = None) -> tuple[list[Any], Any]:
    """The app's own loop: it sends all it has, runs what is asked for, and sends that too."""
    messages: list[Any] = [USER]
    got = await say(gateway, messages, headers=headers)
    for _ in range(turns - 1):
        messages += outputs(answer_of(got)["message"], '["a.log"]')
        got = await say(gateway, messages, headers=headers)
    return messages, got


async def test_the_whole_loop_of_an_app_is_one_run_with_one_cap(gateway: Gateway) -> None:
    messages, got = await loop(gateway, 3, {"X-Gateway-Max-Turns": "3"})

    choice = answer_of(got)
    assert choice["finish_reason"] == "length"
    assert "It used 3 turns, and max_turns is 3." in choice["message"]["content"]
    run = await gateway.look(got.headers["X-Run-Id"])
    assert (run["status"], run["turns"], run["agent"]) == ("max_turns_exceeded", 3, "conversation")
    assert run["cost_usd"] > 0
    assert provider_ids(run) == ["c0", "c1", "c2"]
    assert [event["type"] for event in await gateway.trace(run["id"])].count("turn") == 3
    assert gateway.stored_runs() == 1
    again = await say(gateway, messages)
    assert answer_of(again) == choice
    assert (await gateway.metrics())[
        'gateway_run_stops_total{agent="conversation",reason="max_turns",status="max_turns_exceeded"}'
    ] == 1


async def test_a_raised_cap_goes_on_where_the_conversation_was(gateway: Gateway) -> None:
    messages, _ = await loop(gateway, 2, {"X-Gateway-Max-Turns": "2"})

    got = await say(gateway, messages, headers={"X-Gateway-Max-Turns": "5"})

    assert answer_of(got)["finish_reason"] == "tool_calls"
    run = await gateway.look(got.headers["X-Run-Id"])
    assert (run["turns"], run["limits"]["max_turns"]) == (2, 5)


async def test_a_budget_ends_the_conversation_with_what_it_cost(gateway: Gateway) -> None:
    _, got = await loop(gateway, 1, {"X-Gateway-Max-Budget-Usd": "0.0001"})

    assert answer_of(got)["finish_reason"] == "length"
    assert got.json["gateway"]["status"] == "budget_exceeded"
    assert got.json["gateway"]["cost_usd"] > Decimal("0.0001")


async def test_after_an_answer_the_next_message_goes_on_with_the_same_run(gateway: Gateway) -> None:
    first = await say(gateway, [USER], "talks")
    messages = [USER, answer_of(first)["message"], {"role": "user", "content": "And now?"}]

    second = await say(gateway, messages, "talks")

    assert second.headers["X-Run-Id"] == first.headers["X-Run-Id"]
    run = await gateway.look(second.headers["X-Run-Id"])
    assert (run["turns"], run["status"]) == (2, "completed")
    assert [message["role"] for message in run["messages"]] == ["user", "assistant", "user", "assistant"]
    resumed = [event for event in await gateway.trace(run["id"]) if event["type"] == "run_resumed"]
    assert [(event["cause"], event["said"]["keep"], len(event["said"]["messages"])) for event in resumed] == [
        ("message", 2, 1)
    ]
    assert second.json["usage"]["total_tokens"] < run["usage"]["total_tokens"]


async def test_the_same_transcript_again_is_answered_again_and_not_paid_twice(gateway: Gateway) -> None:
    first, again = await say(gateway, [USER], "talks"), await say(gateway, [USER], "talks")

    assert answer_of(first) == answer_of(again)
    assert again.json["gateway"]["turns"] == 1


async def test_a_transcript_that_the_client_has_changed_is_what_the_model_reads(gateway: Gateway) -> None:
    await loop(gateway, 3)
    edited = [{"role": "system", "content": "Summary: nothing found."}, {"role": "user", "content": "Go on."}]

    got = await say(gateway, edited, "talks", temperature=0.5)

    run = await gateway.look(got.headers["X-Run-Id"])
    assert run["messages"][:2] == edited
    assert len(run["messages"]) == 3
    assert (run["turns"], run["model"], run["status"]) == (4, "talks", "completed")
    abandoned = [event for event in await gateway.trace(run["id"]) if event["type"] == "tool_result"][-1]
    assert (abandoned["ok"], abandoned["content"]) == (False, "The client went on without an output.")


async def test_a_call_that_no_schema_allows_is_the_apps_to_judge(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Script(
        "For tests.", (Step(turn=0, calls=(Call("c1", "made_up", arguments="{not json"),)), Step(text="Ok."))
    )
    monkeypatch.setitem(TEST_SCRIPTS, "broken", broken)  # type: ignore[arg-type]

    reply = answer_of(await say(gateway, [USER], "broken"))["message"]
    done = await say(gateway, [USER, *outputs(reply, "no such tool")], "broken")

    assert reply["tool_calls"][0]["function"] == {"name": "made_up", "arguments": "{not json"}
    assert answer_of(done)["message"]["content"] == "Ok."


async def test_the_ids_alone_lead_back_to_the_conversation(gateway: Gateway) -> None:
    reply = answer_of(await say(gateway, [USER], "asks_client"))["message"]

    got = await chat(gateway, "asks_client", [USER, *outputs(reply, "sun", "rain")], tools=[WEATHER])

    assert answer_of(got)["message"]["content"] == "Done."
    assert gateway.stored_runs() == 1


async def test_a_conversation_streams_text_and_calls(gateway: Gateway) -> None:
    asks = await stream(gateway, "asks_client", headers=NAME, tools=[WEATHER])
    reply = {"role": "assistant", "content": None, "tool_calls": asks.calls}
    done = await stream(gateway, "asks_client", [USER, *outputs(reply, "sun", "rain")], headers=NAME, tools=[WEATHER])
    talks = await stream(gateway, "talks", headers={"X-Gateway-Conversation": "other"})

    assert (asks.finish, asks.done) == ("tool_calls", True)
    assert (done.text, done.finish, done.done) == ("Done.", "stop", True)
    assert len([choice for choice in talks.choices if choice["delta"].get("content")]) > 2


async def test_two_requests_at_once_are_one_after_the_other_or_the_same(gateway: Gateway) -> None:
    slow = "talks@latency=1000"
    first = asyncio.create_task(say(gateway, [USER], slow))
    await gateway.begun()

    same, other = await asyncio.gather(
        say(gateway, [USER], slow), say(gateway, [{"role": "user", "content": "Something else"}], slow)
    )

    assert answer_of(same) == answer_of(await first)
    refused(other, 409, "conversation_busy")
    assert other.headers["Retry-After"] == "1"


async def test_a_provider_that_was_down_is_asked_again_by_the_next_request(gateway: Gateway) -> None:
    down = await say(gateway, [USER], "talks@fault=503")
    up = await say(gateway, [USER], "talks")

    assert down.json["gateway"]["reason"] == "provider_unavailable"
    assert answer_of(down)["finish_reason"] == "length"
    assert down.headers["X-Run-Id"] == up.headers["X-Run-Id"]


async def test_a_request_that_the_provider_refused_may_be_mended(gateway: Gateway) -> None:
    refused(await say(gateway, [USER], "talks@fault=400"), 502, "run_failed")

    mended = await say(gateway, [{"role": "user", "content": "Shorter"}], "talks")

    assert answer_of(mended)["finish_reason"] == "stop"
    assert gateway.stored_runs() == 1


async def test_a_person_who_stopped_a_conversation_is_not_overruled_by_its_client(gateway: Gateway) -> None:
    reply = await say(gateway, [USER], "asks_client")
    await gateway.command(reply.headers["X-Run-Id"], "cancel", {"reason": "enough"})

    got = await say(gateway, [USER, *outputs(answer_of(reply)["message"], "sun", "rain")], "asks_client")

    assert answer_of(got)["finish_reason"] == "length"
    assert "It was cancelled: enough" in answer_of(got)["message"]["content"]


async def test_a_conversation_goes_on_after_a_restart(serve: Serve) -> None:
    async with serve() as gateway:
        reply = answer_of(await say(gateway, [USER], "asks_client"))["message"]
    async with serve() as gateway:
        got = await say(gateway, [USER, *outputs(reply, "sun", "rain")], "asks_client")

        assert answer_of(got)["message"]["content"] == "Done."
        assert gateway.stored_runs() == 1
