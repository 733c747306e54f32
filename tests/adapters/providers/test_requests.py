"""The body of a request equals the naive encoding, and costs what is new in it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.adapters.providers.requests import Bodies, definitions
from gateway.adapters.providers.settings import CAPS
from gateway.core import codec
from gateway.core.messages import Assistant, Function, Message, System, Tool, ToolCall, User
from gateway.core.run import RUN_FIELDS, Run, ToolSpec

READ = ToolSpec(name="read", description="Read “it”.", parameters={"type": "object", "properties": {}}, read_only=True)
STORY: tuple[Message, ...] = (
    System("Be brief."),
    User("Was ist größer?"),
    Assistant(None, (ToolCall("c1", "function", Function("read", '{"path":"a\\"b"}')),)),
    Tool("c1", "read", "line\n"),
    Assistant("Done."),
    User([{"type": "text", "text": "More"}]),
    Assistant(""),
)


def naive(run: Run, *, stream: bool, **extra: Any) -> bytes:
    """All at once, as a client would write it."""
    body: dict[str, Any] = {"model": run.model, "messages": run.messages}
    if run.tools:
        body["tools"] = definitions(run.tools)
    body["stream"] = stream
    if stream:
        body["stream_options"] = {"include_usage": True}
    return codec.encode(body | extra)


class Counting:
    def __init__(self) -> None:
        self.encoded: list[Any] = []

    def __call__(self, value: Any) -> bytes:
        self.encoded.append(value)
        return codec.encode(value)

    def messages(self) -> list[Any]:
        """Those encoded since the last look."""
        messages = [value for value in self.encoded if isinstance(value, Message)]
        self.encoded.clear()
        return messages


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [(), (READ,), (READ, replace(READ, name="list"))])
def test_the_body_of_a_growing_transcript_is_the_naive_one(make_run: Any, tools: Any, stream: bool) -> None:
    bodies = Bodies({"temperature": 0.5, "price": Decimal("1.20")})
    run = make_run(*STORY[:2], tools=tools)

    for length in range(2, len(STORY) + 1):
        run = replace(run, messages=STORY[:length])
        assert bodies.build(run, stream=stream) == naive(run, stream=stream, temperature=0.5, price=Decimal("1.20"))


def test_a_tool_is_defined_with_its_keys_in_the_order_that_is_counted(make_run: Any) -> None:
    body = Bodies({}).build(make_run(tools=(READ,)), stream=False)

    assert body.decode() == (
        '{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello?"}],'
        '"tools":[{"type":"function","function":{"name":"read","description":"Read “it”.",'
        '"parameters":{"type":"object","properties":{}}}}],"stream":false}'
    )


def test_only_new_messages_are_encoded(make_run: Any) -> None:
    encode = Counting()
    bodies = Bodies({}, encode=encode)
    run = make_run(*STORY[:2], tools=(READ,))

    bodies.build(run, stream=False)
    assert encode.messages() == list(STORY[:2])

    bodies.build(replace(run, messages=STORY[:4]), stream=False)
    assert len(encode.encoded) == 2, "the two messages: the model's name and the tools are known"
    assert encode.messages() == list(STORY[2:4])

    bodies.build(replace(run, messages=STORY[:4]), stream=True)
    assert encode.messages() == []


def test_a_changed_transcript_is_encoded_anew(make_run: Any) -> None:
    bodies = Bodies({})
    run = make_run(*STORY[:4], tools=(READ,))
    bodies.build(run, stream=False)

    for changed in (
        replace(run, messages=(*STORY[:3], Tool("c1", "read", "other"))),
        replace(run, messages=STORY[:2]),
        replace(run, messages=(*STORY[:3], Tool("c1", "read", "line\n"), STORY[4])),
        replace(run, tools=(replace(READ, name="write"),)),
        replace(run, tools=()),
        replace(run, model="other"),
    ):
        assert bodies.build(changed, stream=False) == naive(changed, stream=False)


@pytest.mark.parametrize("bounds", [{"runs_max": 2}, {"bytes_max": 300}, {"bytes_max": 0}])
def test_the_cache_is_bounded_and_what_it_forgets_is_encoded_anew(make_run: Any, bounds: dict[str, int]) -> None:
    bodies = Bodies({}, **bounds)
    runs = [make_run(*STORY[:2], id=f"r{number}") for number in range(5)]

    for length in (2, 3, 5):
        for run in (replace(run, messages=STORY[:length]) for run in runs):
            assert bodies.build(run, stream=False) == naive(run, stream=False)

    assert len(bodies._known) <= bounds.get("runs_max", 5)
    assert bodies._bytes == sum(encoded.size for encoded in bodies._known.values())
    assert bodies._bytes <= bounds.get("bytes_max", 10_000)


def test_a_run_that_asks_no_more_leaves_nothing_behind(make_run: Any) -> None:
    bodies = Bodies({})
    runs = [make_run(*STORY[:2], id=f"r{number}") for number in range(3)]
    for run in runs:
        bodies.build(run, stream=False)

    bodies.forget(runs[1])
    bodies.forget(runs[1])

    assert list(bodies._known) == ["r0", "r2"]
    assert bodies._bytes == sum(encoded.size for encoded in bodies._known.values())
    assert bodies.build(runs[1], stream=False) == naive(runs[1], stream=False)


def test_an_encoding_that_fails_leaves_the_transcript_as_it_was(make_run: Any) -> None:
    failing: set[int] = set()

    def encode(value: Any) -> bytes:
        if id(value) in failing:
            raise MemoryError
        return codec.encode(value)

    bodies = Bodies({}, encode=encode)
    run = make_run(*STORY[:1], tools=(READ,))
    bodies.build(run, stream=False)
    longer = replace(run, messages=STORY[:4])

    failing.add(id(longer.messages[2]))
    with pytest.raises(MemoryError):
        bodies.build(longer, stream=False)
    failing.clear()

    assert bodies.build(longer, stream=False) == naive(longer, stream=False)
    assert bodies._bytes == sum(encoded.size for encoded in bodies._known.values())


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, len(STORY))), max_size=20))
def test_whatever_order_runs_ask_in_each_gets_its_own_transcript(steps: list[tuple[str, int]]) -> None:
    bodies = Bodies({}, bytes_max=400)
    base = msgspec.json.encode(STORY)
    stories = {id: msgspec.json.decode(base, type=tuple[Message, ...]) for id in "ab"}

    for id, length in steps:
        run = _Stub(id, "m", stories[id][:length], ())
        assert bodies.build(run, stream=False) == naive(run, stream=False)  # type: ignore[arg-type]


class _Stub(msgspec.Struct):
    """As much of a run as a request needs."""

    id: str
    model: str
    messages: tuple[Any, ...]
    tools: tuple[Any, ...]
    params: dict[str, Any] = {}


def test_what_the_run_fills_in_is_never_sent_as_the_client_gave_it(make_run: Any) -> None:
    run = replace(make_run(), params=dict.fromkeys(RUN_FIELDS, "x"))

    assert Bodies({}).build(run, stream=True) == naive(run, stream=True)


def test_what_the_client_gave_goes_along_but_not_over_the_operators(make_run: Any) -> None:
    given = {"seed": 7, "temperature": 1, "some_future_field": {"deep": [1, None]}, "max_tokens": 300}
    run = replace(make_run(), params=given)

    body = msgspec.json.decode(Bodies({"temperature": 0.5}).build(run, stream=False))

    assert (body["seed"], body["temperature"], body["max_tokens"]) == (7, 0.5, 300)
    assert body["some_future_field"] == {"deep": [1, None]}


def test_the_smallest_cap_on_a_reply_counts_by_the_name_that_the_client_uses(make_run: Any) -> None:
    run = replace(make_run(), params={"max_completion_tokens": 300})

    body = msgspec.json.decode(Bodies({"max_tokens": 200}).build(run, stream=False, max_tokens=100))

    assert body["max_completion_tokens"] == 100
    assert "max_tokens" not in body


@pytest.mark.parametrize("cap_name", CAPS)
@pytest.mark.parametrize("extra_body", [{"max_tokens": 200}, {"max_completion_tokens": 200}, dict.fromkeys(CAPS, 200)])
@pytest.mark.parametrize("params", [{}, {"max_tokens": 300}, {"max_completion_tokens": 300}, dict.fromkeys(CAPS, 300)])
@pytest.mark.parametrize(("max_tokens", "least"), [(None, 200), (100, 100), (250, 200)])
def test_a_body_has_one_cap_and_it_is_the_least_of_all(
    make_run: Any, cap_name: str, extra_body: Any, params: Any, max_tokens: int | None, least: int
) -> None:
    run = replace(make_run(), params=params)

    body = Bodies(extra_body, cap_name=cap_name).build(run, stream=False, max_tokens=max_tokens)

    assert [body.count(b'"%b":' % name.encode()) for name in CAPS].count(0) == 1
    assert [value for name, value in msgspec.json.decode(body).items() if name in CAPS] == [least]


@pytest.mark.parametrize(
    ("extra_body", "cap_name", "sent"),
    [
        ({}, "max_tokens", "max_tokens"),
        ({}, "max_completion_tokens", "max_completion_tokens"),
        ({"max_tokens": 200}, "max_completion_tokens", "max_completion_tokens"),
        ({"max_completion_tokens": 200}, "max_tokens", "max_completion_tokens"),
    ],
)
def test_a_cap_goes_by_the_newer_name_as_soon_as_the_operator_uses_it(
    make_run: Any, extra_body: Any, cap_name: str, sent: str
) -> None:
    body = Bodies(extra_body, cap_name=cap_name).build(make_run(), stream=False, max_tokens=100)

    assert msgspec.json.decode(body)[sent] == 100


@pytest.mark.parametrize(("turns", "conversation", "sent"), [(0, None, True), (1, None, False), (1, "ticket", True)])
def test_a_tool_is_forced_once_in_a_loop_that_goes_on_by_itself(
    make_run: Any, turns: int, conversation: str | None, sent: bool
) -> None:
    run = replace(make_run(), params={"tool_choice": "required"}, turns=turns, conversation=conversation)

    assert ("tool_choice" in msgspec.json.decode(Bodies({}).build(run, stream=False))) is sent
