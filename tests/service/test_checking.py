"""Arguments that no schema should have to see: they are answered in words, whatever a model sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.messages import Function, ToolCall
from gateway.core.run import ToolSpec
from gateway.service.checking import DEPTH_MAX, KNOWN_BYTES_MAX, check, check_schema, known_validator

LOOSE = ToolSpec(name="act", description="Acts.", parameters={"type": "object"})


def called(arguments: str, spec: ToolSpec = LOOSE) -> Any:
    return check(ToolCall("c1", "function", Function(spec.name, arguments)), (spec,))


def nested(levels: int) -> str:
    """So many lists in each other, in the object that arguments are."""
    return f'{{"a":{"[" * levels}{"]" * levels}}}'


def test_arguments_may_be_nested_so_deep() -> None:
    checked = called(nested(DEPTH_MAX - 1))

    assert checked.problem is None
    assert checked.args == json.loads(nested(DEPTH_MAX - 1))


@pytest.mark.parametrize("levels", [DEPTH_MAX, 255, 256, 500, 990, 5000, 100_000])
def test_arguments_that_are_nested_deeper_are_answered_in_words(levels: int) -> None:
    checked = called(nested(levels))

    assert checked.args is None
    assert checked.problem == "Error: the arguments of act are nested more than 64 deep. Send flatter ones."


def test_a_schema_that_is_nested_too_deeply_is_none() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(400):
        schema = {"type": "object", "properties": {"a": schema}}

    assert check_schema(schema)


def test_large_schemas_are_compiled_each_time_and_not_kept() -> None:
    before = known_validator.cache_info().currsize
    large = {"type": "object", "description": "x" * KNOWN_BYTES_MAX, "required": ["path"]}

    checked = called("{}", ToolSpec(name="act", description="Acts.", parameters=large))

    assert '"path" is a required property' in (checked.problem or "")
    assert known_validator.cache_info().currsize == before
