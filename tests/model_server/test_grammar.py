"""Grammars as text. That llama.cpp reads them as they are meant is tested with real weights."""

import json
from typing import Any

import pytest

from model_server import grammar
from model_server.errors import Refused
from model_server.wire import FunctionSpec, Tool

READ = Tool("function", FunctionSpec("read_file", None, {"type": "object", "properties": {"path": {"type": "string"}}}))
LIST = Tool("function", FunctionSpec("list_files"))


def rules(text: str) -> dict[str, str]:
    return dict(line.split(" ::= ", 1) for line in text.splitlines())  # type: ignore[arg-type]


def test_every_rule_is_written_once_and_every_rule_that_is_named_exists() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/b"}},
        "$defs": {"b": {"type": ["string", "null"]}},
    }
    for text in (grammar.calls([READ, LIST]), grammar.json_schema(schema), grammar.json_schema(schema, tools=[READ])):
        names = [line.split(" ::= ")[0] for line in text.splitlines()]
        assert len(names) == len(set(names))
        assert {"root", "sp", "string", "value"} <= set(names)


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    assert rules(grammar.calls([LIST]))["call-0-0"] == '"{" sp "}"'


def test_one_call_only_when_they_must_not_be_parallel() -> None:
    assert rules(grammar.calls([LIST], parallel=False))["tagged"] == "one-tagged (sp one-tagged){0,0}"
    assert rules(grammar.calls([LIST]))["tagged"] == f"one-tagged (sp one-tagged){{0,{grammar.CALLS_MAX - 1}}}"


def test_a_forced_call_has_the_form_that_was_taught() -> None:
    assert rules(grammar.calls([LIST], only_tagged=True))["root"] == "tagged"


def test_text_before_a_call_is_part_of_the_grammar() -> None:
    assert rules(grammar.calls([LIST], prefix='a"\n\\'))["root"].startswith(r'"a\"\n\\" (')


def test_optional_properties_keep_their_order_and_their_commas() -> None:
    schema = {"type": "object", "properties": {"a": True, "b": True, "c": True}, "required": ["b"]}
    found = rules(grammar.json_schema(schema))

    assert found["r-3"] == (r'"{" sp (r-0 sp "," sp r-1 (sp "," sp r-2)? sp | r-1 (sp "," sp r-2)? sp) "}"')


def test_a_schema_may_contain_itself() -> None:
    schema = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}

    assert "r-ref-0" in grammar.json_schema(schema)


STRICT = ["pattern", "minimum", "maximum", "multipleOf", "not", "uniqueItems", "if", "patternProperties"]


@pytest.mark.parametrize("keyword", STRICT)
def test_what_cannot_be_guaranteed_is_refused_if_the_schema_is_strict_and_loosened_if_not(keyword: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", keyword: 1}}}

    assert grammar.json_schema(schema)
    with pytest.raises(Refused, match=keyword):
        grammar.json_schema(schema, strict=True)


def deep(levels: int) -> Any:
    return {"type": "array", "items": deep(levels - 1)} if levels else True


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "number or so"},
        {"$ref": "#/$defs/missing"},
        {"$ref": "https://example.org/schema"},
        {"type": "object", "properties": {"a": 5}},
        {"type": "object", "properties": [1]},
        {"type": "object", "required": 3},
        {"type": "array", "items": {"type": "string", "minLength": "a"}},
        False,
        deep(200),
    ],
)
def test_what_is_no_schema_is_refused_and_not_half_understood(schema: Any) -> None:
    with pytest.raises(Refused) as refused:
        grammar.json_schema(schema)

    assert refused.value.status == 400
    assert refused.value.problem.code == "invalid_schema"


def test_names_and_values_are_quoted_as_json_and_then_as_grammar() -> None:
    schema = {"enum": ['say "hi"\n', "é"]}

    assert rules(grammar.json_schema(schema))["root"] == r'("\"say \\\"hi\\\"\\n\"" | "\"é\"")'
    assert json.dumps('say "hi"\n') == r'"say \"hi\"\n"'
