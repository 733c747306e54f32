"""`max_tokens`: what a reply keeps, and that its usage is what was sent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripted import tokens
from scripted.capping import capped, completion_tokens
from scripted.scripts import Script, Step
from scripted.wire import Counts, Function, Reply, ToolCall
from tests.scripted.conftest import Ask

PROSE = Reply("errors.log mentions a timeout: worker 7 timed out after 30000 ms.")


def call(id: str, arguments: str) -> ToolCall:
    return ToolCall(id=id, function=Function("write_file", arguments))


def calling(*arguments: str, content: str | None = None) -> Reply:
    return Reply(content, tuple(call(f"c{number}", text) for number, text in enumerate(arguments)))


def test_a_reply_that_fits_is_as_it_was() -> None:
    assert capped(PROSE, completion_tokens(PROSE)) is PROSE
    assert capped(PROSE, None) is PROSE


def test_prose_is_cut_to_as_many_tokens_as_allowed_and_its_end_costs_one() -> None:
    cut = capped(PROSE, 6)

    assert (cut.content, cut.finish) == ("errors.log mentions a timeout", "length")
    assert completion_tokens(cut) == 6


def test_a_single_token_leaves_nothing_to_say() -> None:
    assert capped(PROSE, 1) == Reply("", stated_finish="length")


def test_calls_that_do_not_fit_are_dropped_and_the_first_of_them_loses_the_end_of_its_arguments() -> None:
    said = calling('{"path":"a.txt"}', '{"path":"b.txt","text":"' + "word " * 50 + '"}', "{}")
    first = completion_tokens(calling('{"path":"a.txt"}'))

    cut = capped(said, first + 40)

    assert cut.finish == "length"
    assert len(cut.tool_calls) == 2
    assert cut.tool_calls[0] == said.tool_calls[0]
    assert said.tool_calls[1].function.arguments.startswith(cut.tool_calls[1].function.arguments)
    assert first < completion_tokens(cut) <= first + 40


def test_a_call_that_would_be_left_without_arguments_is_dropped_since_it_would_look_whole() -> None:
    said = calling("{}", content="Let me see.")

    assert capped(said, completion_tokens(said) - 1) == Reply("Let me see.", stated_finish="length")


def test_reasoning_comes_first_and_is_counted() -> None:
    said = Reply("Yes.", reasoning="I wonder whether it is so, and I think that it is.")

    cut = capped(said, 5)

    assert cut.content == ""
    assert cut.reasoning
    assert said.reasoning.startswith(cut.reasoning)
    assert completion_tokens(cut) <= 5


def test_a_reported_usage_says_how_long_the_reply_is_and_then_the_whole_cap_was_used() -> None:
    said = Reply("Yes.", usage=Counts(prompt_tokens=7, completion_tokens=900, reasoning_tokens=890, total_tokens=907))

    assert capped(said, 900) is said
    assert capped(said, 100).usage == Counts(prompt_tokens=7, completion_tokens=100, reasoning_tokens=100)
    assert capped(said, 100).finish == "length"


def test_a_step_may_ignore_the_cap_as_some_providers_do() -> None:
    said = Reply("Yes, and more.", ignores_max_tokens=True)

    assert capped(said, 1) is said


TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
REPLIES = st.builds(
    lambda text, arguments, reasoning: Reply(text, calling(*arguments).tool_calls, reasoning or None),
    TEXTS,
    st.lists(TEXTS, max_size=3),
    st.just("") | TEXTS,
)


@given(REPLIES, st.integers(1, 120))
def test_no_reply_has_more_tokens_than_allowed(said: Reply, tokens_max: int) -> None:
    cut = capped(said, tokens_max)

    assert completion_tokens(cut) <= tokens_max
    assert cut == said or cut.finish == "length"


@given(TEXTS, st.integers(0, 20))
def test_the_longest_beginning_is_a_beginning_and_fits(text: str, tokens_max: int) -> None:
    kept = tokens.longest_beginning(text, lambda kept: tokens.text_tokens(kept) <= tokens_max)

    assert text.startswith(kept)
    assert tokens.text_tokens(kept) <= tokens_max


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("stream", [False, True])
async def test_both_names_of_the_cap_are_honoured_over_http(ask: Ask, name: str, stream: bool) -> None:
    got = await ask("slow", messages=[{"role": "assistant"}], stream=stream, **{name: 3})

    body = got.chunks if stream else [got.json]
    said = "".join(choice["delta" if stream else "message"].get("content") or "" for choice in choices(body))
    assert said == "The archive"
    assert [choice["finish_reason"] for choice in choices(body)][-1] == "length"
    if not stream:
        assert got.json["usage"]["completion_tokens"] == 3


def choices(bodies: list[Any]) -> list[Any]:
    return [choice for body in bodies for choice in body["choices"]]


@pytest.mark.parametrize("cap", [0, -1, "many"])
async def test_a_cap_that_is_none_is_refused(ask: Ask, cap: Any) -> None:
    got = await ask("plan", max_tokens=cap)

    assert (got.status, got.json["error"]["param"]) == (400, "max_tokens")


def test_a_script_as_data_carries_what_a_recorded_turn_needs() -> None:
    step = Step(finish="length", usage=Counts(prompt_tokens=1, completion_tokens=2), text="Yes", reasoning="so")

    assert Script("recorded", (step,)).steps[0] == step
