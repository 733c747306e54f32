"""Checks a requested call on arrival: known tool → valid JSON → valid arguments. What is wrong is said to the model."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, cast

import jsonschema_rs
import msgspec

from gateway.core.codec import encode
from gateway.core.events import Check
from gateway.core.messages import ToolCall
from gateway.core.run import ToolSpec

VALIDATORS_MAX = 1024
KNOWN_BYTES_MAX = 64 * 1024  # of a schema: clients bring their own, and a compiled one is much larger
DEPTH_MAX = 64


def check(call: ToolCall, tools: tuple[ToolSpec, ...]) -> Check:
    """The parsed arguments, or the words that answer the call."""
    name, text = call.function.name, call.function.arguments
    found = [tool for tool in tools if tool.name == name]
    if not found:
        return Check(None, unknown_tool(name, tools))
    spec = found[0]
    try:
        args = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError as error:
        return Check(None, f"Error: the arguments of {spec.name} are not valid JSON ({error}). Send one JSON object.")
    except RecursionError:
        return Check(None, too_deep(spec))
    if not isinstance(args, dict):
        return Check(None, f"Error: the arguments of {spec.name} must be one JSON object.")
    if text.count("{") + text.count("[") > DEPTH_MAX and is_deeper(args, DEPTH_MAX):  # where it is possible at all
        return Check(None, too_deep(spec))
    problem = first_problem(spec, args)
    return Check(None, problem) if problem else Check(args)


def unknown_tool(name: str, tools: tuple[ToolSpec, ...]) -> str:
    known = ", ".join(tool.name for tool in tools) or "none"
    return f"Error: there is no tool named {name}. The tools are: {known}."


def too_deep(spec: ToolSpec) -> str:
    return f"Error: the arguments of {spec.name} are nested more than {DEPTH_MAX} deep. Send flatter ones."


def is_deeper(value: Any, levels: int) -> bool:
    """Whether there are more than so many levels of lists and objects. What is deeper could be recorded, and then
    neither be checked nor read back."""
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).values()
    elif not isinstance(value, list):
        return False
    return levels == 0 or any(is_deeper(item, levels - 1) for item in cast("Iterable[Any]", value))


def first_problem(spec: ToolSpec, args: dict[str, Any]) -> str | None:
    schema = validator(encode(spec.parameters))
    if schema.is_valid(args):  # which is sooner known than what is wrong
        return None
    for error in schema.iter_errors(args):
        where = ".".join(str(step) for step in error.instance_path)
        return f"Error: invalid arguments for {spec.name}: {where + ': ' if where else ''}{error.message}."
    return None


def check_schema(parameters: dict[str, Any]) -> str | None:
    """Why this is no JSON Schema, in words; None if it is one."""
    try:
        validator(encode(parameters))
    except jsonschema_rs.ValidationError as error:
        return error.message
    except (jsonschema_rs.ReferencingError, ValueError) as error:  # ValueError: it is nested too deeply
        return str(error)
    return None


def validator(schema: bytes) -> jsonschema_rs.Validator:
    """Of a schema that is not very large, compiled once."""
    return known_validator(schema) if len(schema) <= KNOWN_BYTES_MAX else compiled(schema)


@lru_cache(maxsize=VALIDATORS_MAX)
def known_validator(schema: bytes) -> jsonschema_rs.Validator:
    return compiled(schema)


def compiled(schema: bytes) -> jsonschema_rs.Validator:
    """References to other documents are refused: a schema must not make the gateway fetch."""
    return jsonschema_rs.validator_for(msgspec.json.decode(schema), retriever=no_fetching)


def no_fetching(uri: str) -> Any:
    raise ValueError(f"a schema may not refer to {uri}: put the definition into the schema itself")
