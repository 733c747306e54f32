"""Recorded requests, replayed against a server with a model without weights."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from model_server.cli import cli
from model_server.recorded import Recorded, ReplayFailed, _Reply, conversations, read, replay
from tests.model_server.conftest import Serve

SHIPPED = Path(__file__).parents[2] / "model_server" / "data" / "six_tasks.jsonl"


def line(conversation: int, turn: int, words: str = "hello", **fields: Any) -> Recorded:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": words}]
    return Recorded(conversation, turn, {"messages": messages, "max_tokens": 4, **fields})


RECORDED = [line(1, 1), line(1, 2, "and now?"), line(2, 1, "bye")]


def test_the_requests_of_a_conversation_stay_together_and_in_order() -> None:
    assert [[(each.conversation, each.turn) for each in group] for group in conversations(RECORDED)] == [
        [(1, 1), (1, 2)],
        [(2, 1)],
    ]


def test_copies_differ_in_the_users_words_and_nowhere_else() -> None:
    first, _, copy, _ = conversations(RECORDED, copies=2)

    assert first == RECORDED[:2]
    assert [message["content"] for message in copy[0].request["messages"]] == ["Be brief.", "(2) hello"]


async def test_every_request_is_asked_and_what_came_of_it_is_told(serve: Serve) -> None:
    client = await serve()

    replayed = await replay(f"{client.address}/v1", conversations(RECORDED), at_once=2)

    assert [(each.conversation, each.turn, each.error) for each in replayed.requests] == [
        (1, 1, None),
        (1, 2, None),
        (2, 1, None),
    ]
    assert all(each.reply_tokens and each.prompt_tokens for each in replayed.requests)
    assert all(0 < each.first_ms <= each.ms for each in replayed.requests)
    assert replayed.slowest_first_ms == max(each.first_ms for each in replayed.requests)
    assert replayed.model == "fake"


async def test_a_request_that_is_refused_is_told_as_such_and_the_others_go_on(serve: Serve) -> None:
    client = await serve()

    replayed = await replay(f"{client.address}/v1", conversations([line(1, 1, n=3), line(2, 1)]), at_once=1)

    refused, answered = replayed.requests
    assert refused.error
    assert refused.error.startswith("400: ")
    assert answered.error is None


async def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(ReplayFailed, match=r"http://127\.0\.0\.1:9/v1"):
        await replay("http://127.0.0.1:9/v1", conversations(RECORDED), at_once=1)


async def test_a_stream_that_breaks_off_within_a_character_spoils_no_other() -> None:
    chunk = 'data: {"choices": [{"delta": {"content": "hé"}}]}\n\n'.encode()
    broken, whole = _Reply(), _Reply()

    await broken.read(coming(chunk[: chunk.index(b"\xc3") + 1]))
    await whole.read(coming(chunk))

    assert (broken.pieces, whole.pieces) == (0, 1)


async def coming(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@pytest.mark.parametrize("text", ["{", '{"conversation": 1}', "no JSON"])
def test_a_file_that_is_no_recording_is_said_to_be_none(text: str, tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text(text)

    done = CliRunner().invoke(cli, ["bench", "--recorded", str(file)])

    assert done.exit_code == 1
    assert "is not a recording" in done.output


def test_the_six_tasks_are_recorded_with_the_tools_and_what_was_read() -> None:
    recorded = read(SHIPPED)

    assert [(each.conversation, each.turn) for each in recorded] == [
        (number, turn) for number in range(1, 7) for turn in (1, 2)
    ]
    assert all(len(each.request["tools"]) == 4 and each.request["max_tokens"] > 0 for each in recorded)
    assert "tool" in {
        message["role"] for message in json.loads(SHIPPED.read_bytes().splitlines()[1])["request"]["messages"]
    }
