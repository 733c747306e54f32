"""What a reply to a prompt is worth. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jsonschema_rs
from msgspec import Struct

from model_server.accuracy.cases import TOOLS, AnyOf, Case, Wanted

_SCHEMAS: dict[str, Any] = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}


class Made(Struct, frozen=True):
    """A call that a model made, as it stands on the wire."""

    name: str
    arguments: str


class Score(Struct, frozen=True):
    """`valid`: every call is of a declared tool, with arguments that its schema allows. `correct`: the calls are those
    that are wanted, no more and no fewer, in any order; where none is wanted, none was made."""

    valid: bool
    correct: bool


def score(case: Case, made: Sequence[Made]) -> Score:
    valid = all(map(_is_valid, made)) and (bool(made) or not case.calls)
    return Score(valid, valid and _same_calls(case.calls, made))


def _is_valid(made: Made) -> bool:
    args = _decoded(made.arguments)
    return made.name in _SCHEMAS and args is not None and jsonschema_rs.is_valid(_SCHEMAS[made.name], args)


def _same_calls(wanted: Iterable[Wanted], made: Iterable[Made]) -> bool:
    left = list(made)
    for each in wanted:
        found = next((call for call in left if _fits(each, call)), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def _fits(wanted: Wanted, made: Made) -> bool:
    if wanted.name != made.name:
        return False
    args = _decoded(made.arguments) or {}
    asked = {name: value for name, value in args.items() if name not in wanted.free}
    return wanted.args is None or _equal_args(wanted.args, asked)


def _equal_args(wanted: Mapping[str, Any], made: Mapping[str, Any]) -> bool:
    return wanted.keys() == made.keys() and all(_equal(value, made[key]) for key, value in wanted.items())


def _equal(wanted: Any, made: Any) -> bool:
    if isinstance(wanted, AnyOf):
        return any(_equal(value, made) for value in wanted.values)
    if isinstance(wanted, str):
        return isinstance(made, str) and _plain(wanted) == _plain(made)
    return wanted == made


def _plain(text: str) -> str:
    return text.strip().rstrip(".!").casefold()


def _decoded(arguments: str) -> dict[str, Any] | None:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
