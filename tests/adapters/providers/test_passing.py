"""Streams that are passed on: whole events come out as they went in, however they arrive, and within bounds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.providers import passing
from gateway.adapters.providers.forwarding import Forwarded, Forwarder
from gateway.adapters.providers.openai import server_of
from gateway.adapters.providers.passing import PassingStream, look_at_plain
from gateway.adapters.providers.settings import ProviderSettings
from gateway.core.errors import ProviderRefused

DONE = b"data: [DONE]\n\n"
LARGE = 10**6


def chunk(text: str, finish: str | None = None) -> bytes:
    return b"data: " + msgspec.json.encode({"choices": [{"delta": {"content": text}, "finish_reason": finish}]})


def a_stream(*, event_bytes_max: int = LARGE, hide_usage: bool = False) -> PassingStream:
    return PassingStream(hide_usage=hide_usage, event_bytes_max=event_bytes_max)


def fed(stream: PassingStream, pieces: list[bytes]) -> list[bytes]:
    """What comes out for each piece."""
    out: list[bytes] = []
    for piece in pieces:
        passed, failure = stream.feed(piece)
        assert failure is None
        out.append(passed)
    return out


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place % len(data) for place in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


BOUNDARIES = st.sampled_from([b"\n\n", b"\r\n\r\n", b"\n\r\n", b"\r\n\n"])


@given(st.lists(BOUNDARIES, min_size=1, max_size=5), st.lists(st.integers(0, 10**6), max_size=30))
def test_however_a_stream_arrives_whole_events_come_out_and_nothing_is_lost(ends: list[bytes], cuts: list[int]) -> None:
    events = [*(chunk(f"größer {number}") + end for number, end in enumerate(ends)), DONE]
    data = b"".join(events)
    stream = a_stream()

    out = list(accumulate(fed(stream, cut(data, cuts))))

    assert set(out) <= {b"", *accumulate(events)}
    assert out[-1] == data
    assert stream.end() == (b"", None)


class Counting:
    """Searches, and counts how much."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self._pattern = pattern
        self.searched_bytes = 0

    def finditer(self, data: bytes, start: int = 0) -> Iterator[re.Match[bytes]]:
        self.searched_bytes += len(data) - start
        return self._pattern.finditer(data, start)


def test_an_event_in_many_pieces_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searching = Counting(passing.BOUNDARY)
    monkeypatch.setattr(passing, "BOUNDARY", searching)
    event = chunk("x" * 10_000) + b"\n\n"

    out = fed(a_stream(), [event[at : at + 10] for at in range(0, len(event), 10)])

    assert b"".join(out) == event
    assert searching.searched_bytes < 2 * len(event)


def test_an_event_without_an_end_is_broken_off_behind_what_came_before() -> None:
    stream = a_stream(event_bytes_max=1000)
    whole = chunk("Hi.") + b"\n\n"
    assert stream.feed(whole + chunk("x" * 800)) == (whole, None)

    passed, failure = stream.feed(b"\n\n" + whole + b"x" * 1001)

    assert passed == chunk("x" * 800) + b"\n\n" + whole
    assert failure is not None
    assert str(failure) == "the provider gave too large an answer: more than the 1000 bytes that are read"
    assert not failure.retry


def test_many_events_together_may_be_longer_than_one() -> None:
    stream = a_stream(event_bytes_max=100)
    events = [chunk("Hi.") + b"\n\n"] * 50

    assert fed(stream, [*events, b"".join(events)]) == [*events, b"".join(events)]


async def read_all(reply: Forwarded, into: bytearray) -> None:
    async for data in reply.events(hide_usage=False):
        into += data


async def test_a_providers_stream_is_bounded_by_what_is_read_of_a_reply(upstream: Any) -> None:
    event = chunk("Hi.") + b"\n\n"
    upstream.will(upstream.stream(event, b"data: " + b"x" * 5000, b"x" * 5000, hang=True))
    settings = ProviderSettings(name="test", base_url=upstream.base_url, reply_bytes_max=6000)
    passed = bytearray()

    async with server_of(settings) as server:
        reply = await Forwarder(server, settings).send("chat/completions", b"{}", {})
        with pytest.raises(ProviderRefused, match="more than the 6000 bytes that are read"):
            await read_all(reply, passed)
        reply.close()

    assert bytes(passed) == event


@pytest.mark.parametrize(
    "said",
    [
        {"content": "größer"},
        {"reasoning_content": "größer"},
        {"refusal": "größer"},
        {"tool_calls": [{"function": {"name": "find", "arguments": "größer"}}]},
        {"content": "grö", "tool_calls": [{"function": {"arguments": "ßer"}}, {"function": None}]},
    ],
)
def test_what_was_said_is_measured_in_bytes_and_not_in_characters(said: Any) -> None:
    seen = look_at_plain(msgspec.json.encode({"choices": [{"message": said}]}))

    assert seen.text_bytes == len("größer".encode()) == 8


@pytest.mark.parametrize("text", [rb"\udc00", rb"\ud800 ", rb"\ud800\u0041"])
def test_half_a_character_is_no_reply_and_no_fault_of_ours(text: bytes) -> None:
    _, failure = a_stream().feed(b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % text)

    assert failure is None or "broken answer" in str(failure)


@pytest.mark.parametrize("said", [{"prompt_tokens": 0, "completion_tokens": 5}, {"prompt_tokens": 9}, {}, None])
def test_a_report_that_says_nothing_is_no_usage(said: dict[str, int] | None) -> None:
    """No prompt is empty, and what is not reported was not free."""
    seen = look_at_plain(msgspec.json.encode({"choices": [{"message": {"content": "x" * 40}}], "usage": said}))

    used = seen.usage(request_bytes=400)

    assert (used.prompt_tokens, used.completion_tokens) == (100, 10)


def test_a_report_that_says_nothing_does_not_take_back_what_was_reported() -> None:
    stream = a_stream()
    for said in ({"prompt_tokens": 9, "completion_tokens": 5}, {"prompt_tokens": 0, "completion_tokens": 0}, None):
        passed, failure = stream.feed(b"data: " + msgspec.json.encode({"choices": [], "usage": said}) + b"\n\n")
        assert passed
        assert failure is None

    used = stream.seen.usage(request_bytes=400)

    assert (used.prompt_tokens, used.completion_tokens) == (9, 5)
