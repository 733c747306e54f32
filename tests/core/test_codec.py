"""Bytes and back."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core import events as e
from gateway.core.codec import args_hash, call_key, decode_event, encode, remembers_last, trace_line
from tests.core.stories import STORIES
from tests.core.world import NOON, World, names

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, jsons, max_size=4)
money = st.decimals(min_value=0, max_value=10**8, places=9)


@pytest.mark.parametrize("story", STORIES)
def test_a_log_is_the_same_after_encoding_and_decoding(story: str) -> None:
    events = STORIES[story]().events

    assert [decode_event(encode(event)) for event in events] == events


def test_the_stories_tell_every_event() -> None:
    told = {name for make in STORIES.values() for name in names(make().events)}

    assert told == {kind.__struct_config__.tag for kind in get_args(e.Event)}


@given(run_id=texts, seq=st.integers(1, 2**53), content=texts, error=st.none() | texts, ok=st.booleans())
def test_a_line_of_the_trace_is_always_one_line_of_valid_json(
    run_id: str, seq: int, content: str, error: str | None, ok: bool
) -> None:
    event = e.ToolResult(
        tool_name=content, ms=1, ok=ok, provider_id=run_id, call=run_id, content=content, error=error, time=NOON
    )
    line = trace_line(run_id, seq, encode(event))
    read = json.loads(line)

    assert b"\n" not in line
    assert list(read)[:3] == ["runId", "type", "toolName"]
    assert list(read)[-1] == "seq"
    assert (read["runId"], read["seq"], read["content"]) == (run_id, seq, content)
    assert decode_event(line) == event


@given(args=objects, amount=money, problem=st.none() | texts)
def test_arguments_and_money_come_back_as_they_were(args: dict[str, Any], amount: Decimal, problem: str | None) -> None:
    check = msgspec.json.decode(encode(e.Check(args, problem)), type=e.Check)

    assert check == e.Check(args, problem)
    assert msgspec.json.decode(encode(amount), type=Decimal) == amount


@pytest.mark.parametrize(
    ("amount", "written"),
    [("0.000684", b"0.000684"), ("0", b"0"), ("1E-7", b"1E-7"), ("1234567.01", b"1234567.01")],
)
def test_money_is_a_number_and_never_a_string(amount: str, written: bytes) -> None:
    assert encode(Decimal(amount)) == written
    assert json.loads(written) == float(amount)


def test_instants_are_written_in_utc() -> None:
    assert b'"time":"2026-01-05T12:00:00Z"' in encode(World().events[0])


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"type":"party"}', b'{"type":"tool_start","toolName":1}', b'{"type":"run_resumed"}']
)
def test_what_is_no_event_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_event(body)


def test_a_field_that_a_later_version_added_is_ignored() -> None:
    event = e.RunResumed(cause="resume", time=NOON)

    assert decode_event(encode(event)[:-1] + b',"fromTheFuture":{"a":1}}') == event


def shuffled(value: Any) -> Any:
    """The same value with the keys of every object in the opposite order."""
    match value:
        case dict():
            return {key: shuffled(each) for key, each in reversed(value.items())}
        case list():
            return [shuffled(each) for each in value]
        case _:
            return value


@given(args=objects)
def test_the_hash_of_arguments_does_not_depend_on_the_order_of_keys(args: dict[str, Any]) -> None:
    assert args_hash("read", args) == args_hash("read", shuffled(args))
    assert call_key("read", args) == call_key("read", shuffled(args))
    assert len(args_hash("read", args)) == 16


@given(args=objects)
def test_the_hash_of_arguments_survives_the_record(args: dict[str, Any]) -> None:
    assert args_hash("read", msgspec.json.decode(encode(args))) == args_hash("read", args)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("read", {"path": "a"}), ("read", {"path": "b"})),
        (("read", {"path": "a"}), ("write", {"path": "a"})),
        (("read", {"path": ["a", "b"]}), ("read", {"path": ["b", "a"]})),
        (("read", {"n": 1}), ("read", {"n": "1"})),
        (("read", {"n": None}), ("read", {})),
    ],
)
def test_other_arguments_have_another_hash(one: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]]) -> None:
    assert args_hash(*one) != args_hash(*other)


def test_the_hash_is_pinned_because_people_keep_it() -> None:
    assert args_hash("delete_file", {"path": "access.log"}) == "8c380ea7abbe8357"


def test_what_is_asked_of_the_same_object_again_is_known_and_of_an_equal_one_is_not() -> None:
    asked: list[list[int]] = []

    @remembers_last
    def length(values: list[int]) -> int:
        asked.append(values)
        return len(values)

    one, other = [1, 2], [1, 2]

    assert [length(each) for each in (one, one, other, one, one)] == [2] * 5
    assert list(map(id, asked)) == list(map(id, (one, other, one)))


def test_of_what_failed_nothing_is_remembered() -> None:
    @remembers_last
    def inverse(value: float) -> float:
        return 1 / value

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            inverse(0)
    assert inverse(4) == 0.25
