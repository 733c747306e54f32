"""Checks a requested call on arrival: known tool → valid JSON → valid arguments. What is wrong is said to the model."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec

from gateway.core.codec import encode
from gateway.core.events import Check
from gateway.core.messages import ToolCall
from gateway.core.run import ToolSpec

VALIDATORS_MAX = 1024


def check(call: ToolCall, tools: tuple[ToolSpec, ...]) -> Check:
    """The parsed arguments, or the words that answer the call."""
    spec = next((tool for tool in tools if tool.name == call.function.name), None)
    if spec is None:
        return Check(None, unknown_tool(call.function.name, tools))
    try:
        args = msgspec.json.decode(call.function.arguments or "{}")
    except msgspec.DecodeError as error:
        return Check(None, f"Error: the arguments of {spec.name} are not valid JSON ({error}). Send one JSON object.")
    if not isinstance(args, dict):
        return Check(None, f"Error: the arguments of {spec.name} must be one JSON object.")
    problem = first_problem(spec, args)
    return Check(None, problem) if problem else Check(args)


def unknown_tool(name: str, tools: tuple[ToolSpec, ...]) -> str:
    known = ", ".join(tool.name for tool in tools) or "none"
    return f"Error: there is no tool named {name}. The tools are: {known}."


def first_problem(spec: ToolSpec, args: dict[str, Any]) -> str | None:
    for error in validator(encode(spec.parameters)).iter_errors(args):
        where = ".".join(str(step) for step in error.instance_path)
        return f"Error: invalid arguments for {spec.name}: {where + ': ' if where else ''}{error.message}."
    return None


def check_schema(parameters: dict[str, Any]) -> str | None:
    """Why this is no JSON Schema, in words; None if it is one."""
    try:
        validator(encode(parameters))
    except jsonschema_rs.ValidationError as error:
        return error.message
    except jsonschema_rs.ReferencingError as error:
        return str(error)
    return None


@lru_cache(maxsize=VALIDATORS_MAX)
def validator(schema: bytes) -> jsonschema_rs.Validator:
    """Compiled once a schema. References to other documents are refused: a schema must not make the gateway fetch."""
    return jsonschema_rs.validator_for(msgspec.json.decode(schema), retriever=no_fetching)


def no_fetching(uri: str) -> Any:
    raise ValueError(f"a schema may not refer to {uri}: put the definition into the schema itself")
