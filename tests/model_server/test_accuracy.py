"""The prompts of the accuracy table, and what a reply to one is worth."""

import jsonschema_rs
import pytest

from model_server.accuracy.asking import request
from model_server.accuracy.cases import CASES, TOOLS, AnyOf, Case, any_of, call, weather
from model_server.accuracy.scoring import Made, Score, score

RIGHT, VALID, NEITHER = Score(True, True), Score(True, False), Score(False, False)
WEATHER = Case("one call", "The weather in Paris?", (weather("Paris"),))
IN_CELSIUS = Case("one call", "The weather in Paris in celsius?", (call("get_weather", city="Paris", unit="celsius"),))
TWO = Case("several calls", "Read a and b.", (call("read_file", path="a"), call("read_file", path="b")))
EITHER = Case("one call", "Multiply.", (call("multiply", a=any_of(3, 5), b=any_of(3, 5)),))
TALK = Case("no call", "Hello!")


def paris(arguments: str = '{"city": "Paris"}') -> Made:
    return Made("get_weather", arguments)


@pytest.mark.parametrize(
    ("case", "made", "worth"),
    [
        (WEATHER, [paris()], RIGHT),
        (WEATHER, [paris('{"city": "PARIS."}')], RIGHT),
        (WEATHER, [paris('{"city": "Paris", "unit": "celsius"}')], RIGHT),
        (IN_CELSIUS, [paris('{"city": "Paris", "unit": "celsius"}')], RIGHT),
        (IN_CELSIUS, [paris()], VALID),
        (IN_CELSIUS, [paris('{"city": "Paris", "unit": "fahrenheit"}')], VALID),
        (WEATHER, [paris('{"city": "Paris", "unit": "kelvin"}')], NEITHER),
        (WEATHER, [paris('{"city": "Rome"}')], VALID),
        (WEATHER, [paris("{}")], NEITHER),
        (WEATHER, [paris('{"city": "Par')], NEITHER),
        (WEATHER, [Made("no_such_tool", "{}")], NEITHER),
        (WEATHER, [paris(), paris()], VALID),
        (WEATHER, [], NEITHER),
        (TWO, [Made("read_file", '{"path": "b"}'), Made("read_file", '{"path": "a"}')], RIGHT),
        (TWO, [Made("read_file", '{"path": "a"}')], VALID),
        (EITHER, [Made("multiply", '{"a": 5, "b": 3.0}')], RIGHT),
        (TALK, [], RIGHT),
        (TALK, [paris()], VALID),
    ],
)
def test_a_reply_is_valid_by_the_schemas_and_correct_by_the_calls_that_are_wanted(
    case: Case, made: list[Made], worth: Score
) -> None:
    assert score(case, made) == worth


def test_there_are_enough_prompts_of_every_kind_and_none_twice() -> None:
    kinds = [case.kind for case in CASES]

    assert len(CASES) >= 40
    assert all(kinds.count(kind) >= 6 for kind in ("one call", "several calls", "no call", "forced"))
    assert len({case.prompt for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.prompt for case in CASES])
def test_what_is_wanted_is_allowed_by_the_tools_own_schemas(case: Case) -> None:
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
    for wanted in case.calls:
        args = {name: _one_of(value) for name, value in (wanted.args or {}).items()}
        assert wanted.args is None or jsonschema_rs.is_valid(schemas[wanted.name], args)
    assert bool(case.calls) == (case.kind != "no call")


def _one_of(value: object) -> object:
    return value.values[0] if isinstance(value, AnyOf) else value


def test_a_forced_call_is_asked_for_in_the_words_of_the_api() -> None:
    by_choice = {case.choice: request(case)["tool_choice"] for case in CASES}

    assert by_choice["auto"] == "auto"
    assert by_choice["required"] == "required"
    assert by_choice["read_file"] == {"type": "function", "function": {"name": "read_file"}}
