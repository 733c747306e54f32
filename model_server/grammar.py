"""Grammars in llama.cpp's notation (GBNF), from JSON Schemas and from the declared tools. Pure.

Objects are closed: only declared properties, in their declared order, so that a small model cannot invent one. What a
grammar cannot hold (`pattern`, `minimum` and the like) is not enforced, and refused where the client said `strict`.
Spaces are bounded, since a model that is free to write spaces sometimes writes nothing else.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model_server.errors import Refused
from model_server.wire import Tool

CALLS_MAX = 8  # in one reply
RULES_MAX = 4000
DEPTH_MAX = 64
REPEATS_MAX = 1000  # llama.cpp unrolls repetitions, so larger bounds are not enforced

_UNENFORCED = {"pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems"}
_UNENFORCED |= {"not", "if", "then", "else", "contains", "patternProperties", "propertyNames", "dependentRequired"}
_UNENFORCED |= {"dependentSchemas", "minProperties", "maxProperties", "prefixItems"}

_COMMON = {
    "sp": r'(" " | "\n"{1,2} [ \t]{0,20})?',
    "char": r'[^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})',
    "string": r'"\"" char* "\""',
    "integer": r'"-"? ("0" | [1-9] [0-9]{0,15})',
    "number": r'integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?',
    "boolean": r'"true" | "false"',
    "null": r'"null"',
    "value": "object | array | string | number | boolean | null",
    "pair": r'string sp ":" sp value',
    "object": r'"{" sp (pair (sp "," sp pair)* sp)? "}"',
    "array": r'"[" sp (value (sp "," sp value)* sp)? "]"',
}


def json_schema(
    schema: Mapping[str, Any] | bool, *, strict: bool = False, tools: Sequence[Tool] = (), parallel: bool = True
) -> str:
    """A value of the schema; with tools, either that or calls in their tags."""
    answer, rules = _schema_rules(schema, strict, "r-")
    if not tools:
        return _text({"root": answer, **rules})
    return _text({"root": f"tagged | {answer}", **rules, **_call_rules(tools, parallel)})


def calls(tools: Sequence[Tool], *, parallel: bool = True, prefix: str = "", only_tagged: bool = False) -> str:
    """One call or several of the tools, in any form that a call is recognised in, or only in the form that was taught.

    `prefix` is text that stands before them: the beginning of the token in which the first call begins.
    """
    forms = "tagged" if only_tagged else "tagged | listed | fenced | bare"
    root = f"{_literal(prefix)} ({forms})" if prefix else forms
    return _text({"root": root, **_call_rules(tools, parallel)})


def _call_rules(tools: Sequence[Tool], parallel: bool) -> dict[str, str]:
    rules: dict[str, str] = {}
    for index, tool in enumerate(tools):
        rules |= _one_call(index, tool)
    more = f"{{0,{CALLS_MAX - 1 if parallel else 0}}}"
    return rules | {
        "call": " | ".join(f"call-{index}" for index in range(len(tools))),
        "one-tagged": '"<tool_call>" sp call sp "</tool_call>"',
        "tagged": f"one-tagged (sp one-tagged){more}",
        "listed": f'"<tools>" sp call (sp call){more} sp "</tools>"',
        "fenced": f'"```" [a-z_]{{0,16}} sp call (sp call){more} sp "```"',
        "bare": rf'call ((";" sp | "\n"{{1,2}}) call){more}',
    }


def _one_call(index: int, tool: Tool) -> dict[str, str]:
    schema = tool.function.parameters or {"type": "object", "properties": {}}
    arguments, rules = _schema_rules(schema, bool(tool.function.strict), f"call-{index}-")
    name = _literal(json.dumps(tool.function.name, ensure_ascii=False))
    call = rf'"{{" sp "\"name\"" sp ":" sp {name} sp "," sp "\"arguments\"" sp ":" sp {arguments} sp "}}"'
    return {f"call-{index}": call, **rules}


def _schema_rules(schema: Mapping[str, Any] | bool, strict: bool, prefix: str) -> tuple[str, dict[str, str]]:
    """The expression of a schema, and the rules that it is made of. Raises Refused for what is not a schema."""
    grammar = _Grammar(schema, strict, prefix)
    try:
        return grammar.rule(schema), grammar.rules
    except (TypeError, ValueError, AttributeError):
        raise _refused("is not a valid JSON Schema") from None


def _text(rules: Mapping[str, str]) -> str:
    """Rules that nobody refers to are no harm."""
    return "\n".join(f"{name} ::= {body}" for name, body in {**rules, **_COMMON}.items()) + "\n"


def _literal(text: str) -> str:
    escapes = {'"': r"\"", "\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
    return '"' + "".join(escapes.get(character, character) for character in text) + '"'


def _choice(bodies: Iterable[str]) -> str:
    return "(" + " | ".join(dict.fromkeys(bodies)) + ")"


class _Grammar:
    """The rules of one schema document, while they are being written."""

    def __init__(self, document: Mapping[str, Any] | bool, strict: bool, prefix: str) -> None:
        self.rules: dict[str, str] = {}
        self._document = document
        self._strict = strict
        self._prefix = prefix
        self._referred: dict[str, str] = {}

    def rule(self, schema: Any, depth: int = 0) -> str:
        """The name of a rule, or an expression, that stands for the schema."""
        if depth > DEPTH_MAX or len(self.rules) > RULES_MAX:
            raise _refused("is too large for a grammar")
        if schema is True:
            return "value"
        if not isinstance(schema, Mapping):
            raise _refused(f"has {json.dumps(schema)[:40]} where a schema must stand")
        self._refuse_unenforced(schema)
        return self._body(schema, depth + 1)

    def _body(self, schema: Mapping[str, Any], depth: int) -> str:
        match schema:
            case {"$ref": str(reference)}:
                return self._reference(reference, depth)
            case {"const": constant}:
                return _literal(json.dumps(constant, ensure_ascii=False))
            case {"enum": [*values]} if values:
                return _choice(_literal(json.dumps(value, ensure_ascii=False)) for value in values)
            case {"anyOf": [*options]} | {"oneOf": [*options]} if options:
                return _choice(self.rule(option, depth) for option in options)
            case {"allOf": [only]}:
                return self.rule({**{key: value for key, value in schema.items() if key != "allOf"}, **only}, depth)
            case {"type": [*names]} if names:
                return _choice(self._typed({**schema, "type": name}, depth) for name in names)
            case _:
                return self._typed(schema, depth)

    def _typed(self, schema: Mapping[str, Any], depth: int) -> str:
        match schema.get("type", _implied_type(schema)):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return _string(schema)
            case "integer" | "number" | "boolean" | "null" as name:
                return name
            case None:
                return "value"
            case other:
                raise _refused(f"has the unknown type {json.dumps(other)[:40]}")

    def _object(self, schema: Mapping[str, Any], depth: int) -> str:
        if "properties" not in schema and not schema.get("required"):
            return self._map(schema.get("additionalProperties", True), depth)
        required = set(schema.get("required", ()))
        declared = dict.fromkeys(schema.get("required", ()), True) | dict(schema.get("properties", {}))
        order = [
            *schema.get("properties", {}),
            *(name for name in declared if name not in schema.get("properties", {})),
        ]
        pairs = [(self._pair(name, declared[name], depth), name in required) for name in order]
        inside = _in_order(pairs)
        return self._named(rf'"{{" sp {inside} "}}"' if inside else r'"{" sp "}"')

    def _pair(self, name: str, schema: Any, depth: int) -> str:
        key = _literal(json.dumps(name, ensure_ascii=False))
        return self._named(f'{key} sp ":" sp {self.rule(schema, depth)}')

    def _map(self, values: Any, depth: int) -> str:
        if values is True:
            return "object"
        if values is False:
            return r'"{" sp "}"'
        pair = self._named(f'string sp ":" sp {self.rule(values, depth)}')
        return self._named(rf'"{{" sp ({pair} (sp "," sp {pair})* sp)? "}}"')

    def _array(self, schema: Mapping[str, Any], depth: int) -> str:
        item = self.rule(schema.get("items", True), depth)
        least, most = _bounds(schema, "minItems", "maxItems")
        if most == 0:
            return r'"[" sp "]"'
        more = f"{{{max(0, least - 1)},{'' if most is None else most - 1}}}"
        inside = f'{item} (sp "," sp {item}){more} sp'
        return self._named(rf'"[" sp {inside if least else f"({inside})?"} "]"')

    def _reference(self, reference: str, depth: int) -> str:
        """A rule of its own, named before it is written, so that a schema may contain itself."""
        if reference not in self._referred:
            name = self._referred[reference] = f"{self._prefix}ref-{len(self._referred)}"
            self.rules[name] = self.rule(_pointed_at(self._document, reference), depth)
        return self._referred[reference]

    def _named(self, body: str) -> str:
        name = f"{self._prefix}{len(self.rules)}"
        self.rules[name] = body
        return name

    def _refuse_unenforced(self, schema: Mapping[str, Any]) -> None:
        if self._strict and (unenforced := sorted(_UNENFORCED & schema.keys())):
            raise _refused(f"is strict and uses {', '.join(unenforced)}, which cannot be guaranteed here")


def _in_order(pairs: Sequence[tuple[str, bool]]) -> str:
    """Properties in their order, the optional ones present or not, with commas only between those that are."""
    firsts: list[str] = []
    for index, (pair, required) in enumerate(pairs):
        rest = "".join(
            f' sp "," sp {after}' if must else f' (sp "," sp {after})?' for after, must in pairs[index + 1 :]
        )
        firsts.append(f"{pair}{rest} sp")
        if required:
            return _choice(firsts)
    return f"{_choice(firsts)}?" if firsts else ""


def _string(schema: Mapping[str, Any]) -> str:
    least, most = _bounds(schema, "minLength", "maxLength")
    if not least and most is None:
        return "string"
    return rf'"\"" char{{{least},{"" if most is None else most}}} "\""'


def _bounds(schema: Mapping[str, Any], least: str, most: str) -> tuple[int, int | None]:
    lower, upper = schema.get(least, 0), schema.get(most)
    return min(lower, REPEATS_MAX), upper if upper is not None and upper <= REPEATS_MAX else None


def _implied_type(schema: Mapping[str, Any]) -> str | None:
    if "properties" in schema or "required" in schema or "additionalProperties" in schema:
        return "object"
    return "array" if "items" in schema else None


def _pointed_at(document: Any, reference: str) -> Any:
    if not reference.startswith("#"):
        raise _refused(f"refers to {reference[:80]!r}, which is outside of it")
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(document, Mapping) or key not in document:
            raise _refused(f"refers to {reference[:80]!r}, which does not exist")
        document = document[key]
    return document


def _refused(words: str) -> Refused:
    return Refused(400, f"The JSON Schema {words}.", code="invalid_schema")
