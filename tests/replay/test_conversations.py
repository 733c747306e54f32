"""Export, then replay, is the identity on runs that clients of OpenAI's API have made and gone on with."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.cli.recorded import fetched
from gateway.client import Gateway as Client
from gateway.core.codec import encode
from gateway.core.messages import User
from gateway.replay.comparing import Difference
from gateway.replay.playing import play
from gateway.replay.recording import Recording, Words, decode_recording
from scripted.scripts import Call, Script, Step
from tests.edge.openai.talking import USER, WEATHER, answer_of, chat, outputs
from tests.serving import QUESTION, TEST_SCRIPTS, Gateway, Serve

NAME = {"X-Gateway-Conversation": "ticket-42"}
MORE = {"role": "user", "content": "And now?"}


async def recorded(gateway: Gateway, run_id: str) -> Recording:
    async with Client(gateway.url) as client:
        return decode_recording(encode(await fetched(client, run_id)), "the document")


async def the_same(recording: Recording) -> bool:
    played = await play(recording)
    assert played.difference is None, str(played.difference)
    return (played.replayed, played.events) == (recording.expected.figures, len(recording.expected.events))


def words_of(recording: Recording) -> list[Words]:
    return [action for action in recording.actions if isinstance(action, Words)]


async def conversation(gateway: Gateway) -> Recording:
    """Calls and their outputs, a cap that is raised, another model, and a transcript that the client cut short."""
    first = await chat(gateway, "asks_client", headers=NAME, tools=[WEATHER])
    messages = [USER, *outputs(answer_of(first)["message"], "sun", "rain")]
    cap = {**NAME, "X-Gateway-Max-Turns": "1"}
    capped = await chat(gateway, "asks_client", messages, headers=cap, tools=[WEATHER])
    assert answer_of(capped)["finish_reason"] == "length"
    await chat(gateway, "asks_client", messages, headers={**NAME, "X-Gateway-Max-Turns": "9"}, tools=[WEATHER])
    last = await chat(gateway, "talks", [{"role": "system", "content": "Summary."}, MORE], headers=NAME, seed=7)
    return await recorded(gateway, last.headers["X-Run-Id"])


async def test_a_conversation_played_again_is_the_same_run(gateway: Gateway) -> None:
    recording = await conversation(gateway)

    capped, shortened = words_of(recording)
    assert [output.output for output in capped.outputs] == ["sun", "rain"]
    assert (capped.limits and capped.limits.max_turns) == 1
    assert (shortened.said.keep, shortened.said.model, shortened.said.params) == (0, "talks", {"seed": 7})
    assert recording.expected.figures.turns == 3
    assert await the_same(recording)


async def test_a_conversation_that_its_responses_keep_is_the_same_run(gateway: Gateway) -> None:
    first = await gateway.post("/v1/responses", {"model": "talks", "input": QUESTION, "instructions": "Be brief."})
    body = {"model": "talks", "input": "And now?", "previous_response_id": first.json["id"]}
    second = await gateway.post("/v1/responses", body)

    recording = await recorded(gateway, second.headers["X-Run-Id"])

    assert [words.said.messages for words in words_of(recording)] == [(User("And now?"),)]
    assert await the_same(recording)


async def test_a_message_behind_the_outputs_of_a_run_is_said_again(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = (Call("c1", "weather", {"city": "Oslo"}), Call("c2", "list_files"))
    script = Script("For tests.", (Step(turn=0, calls=calls), Step(text="Done.")))
    monkeypatch.setitem(TEST_SCRIPTS, "mixed", script)  # type: ignore[arg-type]
    async with serve(agent={"model": "mixed"}) as gateway:
        reply = answer_of(await chat(gateway, tools=[WEATHER]))["message"]
        done = await chat(gateway, messages=[USER, *outputs(reply, "sun"), MORE])
        recording = await recorded(gateway, done.headers["X-Run-Id"])

        assert len(words_of(recording)) == 1
        assert await the_same(recording)


async def test_what_is_said_otherwise_is_shown(gateway: Gateway) -> None:
    text = encode(await conversation(gateway)).decode()
    words: Any = text.index('"actions"')
    changed = text[:words] + text[words:].replace('"And now?"', '"And then?"', 1)

    played = await play(decode_recording(changed.encode(), "the document"), stall_seconds=1)

    match played.difference:
        case Difference(field=field, recorded=recorded, replayed=replayed):
            assert (field, recorded, replayed) == ("said.messages[1].content", "And now?", "And then?")
        case None:
            pytest.fail("nothing differs")
