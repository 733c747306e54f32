"""What the next request will probably use."""

from __future__ import annotations

import pytest

from gateway.core.codec import encode
from gateway.core.estimates import BYTES_PER_TOKEN, bytes_since_last_reply, expected_usage
from gateway.core.messages import Assistant, User
from tests.core.world import MESSAGES, Came, Player, World, asks, calls, tokens, world_that_asked


def test_the_first_request_is_all_of_its_messages_and_tools() -> None:
    world = World()

    assert bytes_since_last_reply(world.run) == sum(len(encode(message)) for message in MESSAGES) + len(
        encode(world.run.tools)
    )
    assert expected_usage(world.run).completion_tokens == 0


def test_a_conversation_that_was_brought_along_is_counted_whole() -> None:
    brought = (*MESSAGES, Assistant("hello"), User("and now?"))

    assert bytes_since_last_reply(World(messages=brought).run) > bytes_since_last_reply(World().run)


@pytest.mark.parametrize("answer", ["", "short", "ü" * 4000])
def test_a_later_request_is_the_last_reply_and_what_was_added_since(answer: str) -> None:
    world = World()
    world.step(Player([calls(asks("read", path="a"), prompt=1000, completion=50)]))
    world.record(world.result(world.run.calls[0], Came(answer)))
    added = len(encode(world.run.messages[-1]))

    assert bytes_since_last_reply(world.run) == added
    assert expected_usage(world.run) == tokens(1050 + added // BYTES_PER_TOKEN, 50)


def test_bytes_are_counted_and_not_characters() -> None:
    plain, wide = world_that_asked(asks("list")), world_that_asked(asks("list"))
    plain.record(plain.result(plain.run.calls[0], Came("u" * 100)))
    wide.record(wide.result(wide.run.calls[0], Came("ü" * 100)))

    assert bytes_since_last_reply(wide.run) - bytes_since_last_reply(plain.run) == 100


def test_an_estimate_looks_at_the_last_reply_and_not_at_the_whole_run() -> None:
    world = World()
    for prompt in (1000, 10):
        world.step(Player([calls(asks("list"), prompt=prompt, completion=7)]))
        world.step(Player())

    assert expected_usage(world.run).prompt_tokens < 100


def test_each_run_is_counted_with_its_own_tools() -> None:
    with_tools, without = World().run, World(tools=()).run

    sizes = [bytes_since_last_reply(run) for run in (with_tools, without, with_tools, without)]

    assert sizes[0] - sizes[1] == len(encode(with_tools.tools)) - len(encode(()))
    assert sizes[2:] == sizes[:2]
