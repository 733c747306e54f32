"""From the pieces of a reply to one message, without a network."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.providers.assembling import SseReply, plain_reply
from gateway.adapters.providers.failures import Failed
from gateway.core.messages import Assistant, Function, ToolCall
from gateway.core.pricing import Usage

DONE = b"data: [DONE]\n\n"


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(arguments: Any = None, *, name: str | None = None, **more: Any) -> dict[str, Any]:
    return chunk(tool_calls=[{"function": {"name": name, "arguments": arguments}, **more}])


def sse(*chunks: Any) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in chunks)


def streamed(*chunks: Any, done: bool = True) -> SseReply:
    reply = SseReply()
    reply.feed(sse(*chunks) + (DONE if done else b""))
    reply.end()
    return reply


def calls_of(*chunks: Any) -> list[tuple[str, str, str]]:
    """The calls that these deltas make: id, name, arguments."""
    calls = streamed(*chunks).assembling.message().tool_calls
    return [(call.id, call.function.name, call.function.arguments) for call in calls]


def plain(message: dict[str, Any], finish: str | None = "stop") -> Assistant:
    body = {"choices": [{"message": message, "finish_reason": finish}]}
    return plain_reply(msgspec.json.encode(body))[0].message()


# --- tool calls in pieces -------------------------------------------------------------------------------------------


def test_pieces_of_two_calls_are_told_apart_by_their_index() -> None:
    assert calls_of(
        call("", name="read", index=0, id="a"),
        call("", name="list", index=1, id="b"),
        call('{"x"', index=0),
        call("{}", index=1),
        call(":1}", index=0),
    ) == [("a", "read", '{"x":1}'), ("b", "list", "{}")]


def test_calls_are_in_the_order_of_their_indices() -> None:
    assert [name for _, name, _ in calls_of(call(name="b", index=1), call(name="a", index=0))] == ["a", "b"]


def test_without_an_index_a_new_id_begins_a_call_and_none_goes_on_with_the_last() -> None:
    assert calls_of(
        call("", name="read", id="a"), call('{"x":1}'), call("", name="list", id="b"), call("{"), call("}", id="")
    ) == [("a", "read", '{"x":1}'), ("b", "list", "{}")]


def test_without_an_index_an_id_that_comes_again_goes_on_with_its_call() -> None:
    assert calls_of(call('{"x"', name="read", id="a"), call(":1}", id="a")) == [("a", "read", '{"x":1}')]


def test_whole_calls_in_one_delta_need_neither_index_nor_id() -> None:
    whole = [{"function": {"name": name, "arguments": "{}"}} for name in ("read", "list")]

    assert calls_of(chunk(tool_calls=whole)) == [("call_0", "read", "{}"), ("call_1", "list", "{}")]


def test_an_index_that_comes_again_with_another_id_and_name_is_another_call() -> None:
    assert calls_of(call("{}", name="read", index=0, id="a"), call("{}", name="list", index=0, id="b")) == [
        ("a", "read", "{}"),
        ("b", "list", "{}"),
    ]


def test_an_id_made_up_for_every_piece_does_not_make_a_call_of_it() -> None:
    assert calls_of(call("{", name="read", index=0, id="a"), call("}", index=0, id="z")) == [("a", "read", "{}")]


@pytest.mark.parametrize("names", [("list_files", None), ("list_", "files"), ("list_files", "list_files")])
def test_a_name_may_come_once_in_pieces_or_again_and_again(names: tuple[str, str | None]) -> None:
    first, second = names

    assert calls_of(call(name=first, index=0, id="a"), call("{}", name=second, index=0)) == [("a", "list_files", "{}")]


@pytest.mark.parametrize(("arguments", "read"), [(None, "{}"), ("", "{}"), ({"a": 1}, '{"a":1}')])
def test_arguments_become_a_string_of_json_whatever_the_provider_makes_of_them(arguments: Any, read: str) -> None:
    assert calls_of(call(arguments, name="read", index=0, id="a")) == [("a", "read", read)]
    assert plain({"tool_calls": [{"id": "a", "function": {"name": "read", "arguments": arguments}}]}).tool_calls == (
        ToolCall("a", "function", Function("read", read)),
    )


def test_entries_without_a_name_and_arguments_are_no_calls() -> None:
    reply = streamed(chunk(content="Hi."), chunk("stop", tool_calls=[{}]))

    assert reply.assembling.message() == Assistant("Hi.")
    assert reply.assembling.finish == "stop"


def test_ids_within_one_reply_are_made_to_differ() -> None:
    entry = {"id": "c1", "function": {"name": "read", "arguments": "{}"}}
    nameless = {"id": None, "function": {"name": "read", "arguments": "{}"}}
    pretender = {"id": "c1_2", "function": {"name": "read", "arguments": "{}"}}

    calls = plain({"tool_calls": [entry, pretender, entry, nameless]}).tool_calls

    assert [call.id for call in calls] == ["c1", "c1_2", "c1_3", "call_3"]


# --- content --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, ""])
def test_a_message_of_calls_alone_has_no_content(content: str | None) -> None:
    message = {"content": content, "tool_calls": [{"id": "a", "function": {"name": "read", "arguments": "{}"}}]}

    assert plain(message).content is None
    assert streamed(chunk(content=content), chunk(**message)).assembling.message() == plain(message)


@pytest.mark.parametrize("content", [None, ""])
def test_a_message_of_nothing_is_an_empty_text(content: str | None) -> None:
    assert plain({"content": content}) == Assistant("")


def test_content_in_parts_is_a_string_where_all_of_it_is_text() -> None:
    parts = [{"type": "text", "text": "One "}, {"type": "text", "text": "two."}]

    assert plain({"content": parts}) == Assistant("One two.")


def test_content_in_parts_keeps_the_parts_that_are_no_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    parts = [{"type": "text", "text": "Look:"}, image, {"type": "text", "text": "Nice."}]

    assert plain({"content": parts}).content == parts
    assert streamed(*(chunk(content=[part]) for part in parts)).assembling.message().content == parts


def test_a_refusal_and_the_reasoning_are_kept() -> None:
    refused = Assistant(None, refusal="I will not.")
    reasoned = Assistant("4", reasoning_content="2 + 2")

    assert plain({"content": None, "refusal": "I will not."}) == refused
    assert streamed(chunk(refusal="I will "), chunk(refusal="not.")).assembling.message() == refused
    assert streamed(chunk(reasoning_content="2 +"), chunk(reasoning=" 2"), chunk(content="4")).assembling.message() == (
        reasoned
    )


def test_only_the_first_of_several_choices_is_read() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "No."}, "finish_reason": "stop"}]}

    assert streamed(chunk(content="Yes."), other).assembling.message() == Assistant("Yes.")


# --- how it ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "calls", "finish"),
    [
        ("stop", True, "tool_calls"),
        (None, True, "tool_calls"),
        ("length", True, "length"),
        (None, False, "stop"),
        ("length", False, "length"),
        ("tool_calls", False, "tool_calls"),
    ],
)
def test_the_finish_is_what_the_message_is_and_not_what_it_is_called(said: Any, calls: bool, finish: str) -> None:
    entry = [{"index": 0, "id": "a", "function": {"name": "read", "arguments": "{}"}}]
    delta = {"tool_calls": entry} if calls else {"content": "Hi."}

    assert streamed(chunk(**delta), chunk(said)).assembling.finish == finish


def test_a_stream_without_finish_reason_and_done_is_no_answer() -> None:
    with pytest.raises(Failed, match="the stream ended before the reply did") as caught:
        streamed(chunk(content="The answer is"), done=False)

    assert caught.value.lost
    assert caught.value.retry


@pytest.mark.parametrize("chunks", [[], [{"choices": []}]])
def test_a_stream_without_choices_is_no_answer(chunks: list[Any]) -> None:
    with pytest.raises(Failed, match="it has no choices"):
        streamed(*chunks)


def test_the_last_event_may_lack_its_blank_line_and_the_stream_its_done() -> None:
    reply = SseReply()
    texts = reply.feed(sse(chunk("stop", content="Hi."))[:-2])

    assert texts + reply.end() == ["Hi."]


def test_comments_and_empty_events_are_passed_over() -> None:
    reply = SseReply()
    reply.feed(b": keep-alive\n\n" + b"data:\n\n" + sse(chunk(content="Hi.")) + b":\n\n" + DONE)
    reply.end()

    assert reply.assembling.message() == Assistant("Hi.")


def test_what_follows_done_is_not_read() -> None:
    reply = SseReply()
    reply.feed(sse(chunk("stop", content="Hi.")) + DONE + b"data: rubbish\n\n")
    reply.end()

    assert reply.assembling.message() == Assistant("Hi.")


def test_a_report_of_usage_that_says_nothing_does_not_take_back_what_was_reported() -> None:
    said = {"prompt_tokens": 3, "completion_tokens": 1}
    nothing = {"prompt_tokens": 0, "completion_tokens": 0}

    reply = streamed(
        chunk(content="Hi."), *({"choices": [], "usage": usage} for usage in (said, nothing, None)), chunk("stop")
    )

    assert reply.assembling.usage == Usage(prompt_tokens=3, completion_tokens=1, total_tokens=4)


def test_half_a_character_of_one_stream_does_not_end_up_in_another() -> None:
    one, other = SseReply(), SseReply()
    data = sse(chunk(content="Füße"))
    cut = data.index("ü".encode()) + 1

    one.feed(data[:cut])
    texts = other.feed(sse(chunk(content="Hi.")))

    assert one.feed(data[cut:]) == ["Füße"]
    assert texts == ["Hi."]


# --- however it is cut ----------------------------------------------------------------------------------------------

PIECES = st.lists(
    st.one_of(
        st.builds(lambda text: chunk(content=text), st.text()),
        st.builds(
            lambda index, text: call(text, index=index, name=f"tool_{index}", id=f"c{index}"),
            st.integers(0, 3),
            st.text(),
        ),
        st.builds(lambda text: chunk(reasoning_content=text), st.text()),
        st.just({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}),
    ),
    min_size=1,
    max_size=8,
)


@given(PIECES, st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.integers(0, 2000), max_size=12))
def test_a_stream_makes_the_same_message_wherever_the_network_cuts_it(
    pieces: list[Any], newline: str, cuts: list[int]
) -> None:
    data = (b": hello\n\n" + sse(*pieces, chunk("stop")) + DONE).replace(b"\n", newline.encode())
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    whole = streamed(*pieces, chunk("stop"))

    cut = SseReply()
    texts = [text for start, end in pairwise(edges) for text in cut.feed(data[start:end])]
    cut.end()

    assert cut.assembling.message() == whole.assembling.message()
    assert cut.assembling.usage == whole.assembling.usage
    assert "".join(texts) == (whole.assembling.message().content or "")


@given(st.text(), st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)), max_size=3))
def test_a_message_is_the_same_plain_and_streamed(text: str, calls: list[tuple[str, str]]) -> None:
    entries = [{"id": f"c{i}", "function": {"name": n, "arguments": a}} for i, (n, a) in enumerate(calls)]
    pieces = [
        piece
        for i, (name, arguments) in enumerate(calls)
        for piece in (call("", name=name, index=i, id=f"c{i}"), *(call(char, index=i) for char in arguments))
    ]

    assembled = streamed(*(chunk(content=char) for char in text), *pieces, chunk("stop")).assembling.message()

    assert assembled == plain({"content": text, "tool_calls": entries})


def test_nothing_is_shared_between_replies_in_threads() -> None:
    data = sse(*(chunk(content="äöü") for _ in range(50))) + DONE
    texts: list[str] = []

    def read() -> None:
        reply = SseReply()
        texts.append("".join(text for byte in data for text in reply.feed(bytes([byte]))))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert texts == ["äöü" * 50] * 4


# --- whatever it is -------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    ["choices", "delta", "message", "content", "tool_calls", "function", "index", "id", "error", "usage"]
)
RUBBISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(RUBBISH | st.builds(lambda inner: {"choices": [{"delta": inner, "message": inner}]}, RUBBISH))
def test_what_is_no_reply_fails_in_words_and_in_no_other_way(value: Any) -> None:
    data = json.dumps(value).encode()
    reply = SseReply()

    for read in (lambda: plain_reply(data)[0], lambda: reply.feed(b"data: " + data + b"\n\n")):
        with suppress(Failed):
            read()


@given(st.lists(st.binary(), max_size=5))
def test_bytes_that_are_no_stream_fail_in_words_and_in_no_other_way(pieces: list[bytes]) -> None:
    reply = SseReply()

    with suppress(Failed):
        for piece in pieces:
            reply.feed(piece)
        reply.end()


@pytest.mark.parametrize(
    "data",
    [
        b'{"usage":{"prompt_tokens":1' + b"0" * 5000 + b"}}",
        b"[" * 100_000,
        b'{"choices":[{"message":{"content":"\\ud83d"}}]}',
        b'{"choices":[{"message":{"content":"\xff"}}]}',
        b"\xef\xbb\xbf{}",
    ],
)
def test_json_that_is_out_of_bounds_is_a_broken_answer(data: bytes) -> None:
    with pytest.raises(Failed, match="gave a broken answer"):
        plain_reply(data)
