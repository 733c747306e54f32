"""Reads the calls in what a small model wrote. Pure.

The model was taught `<tool_call>\n{"name": …, "arguments": {…}}\n</tool_call>`, and deviates: no tag, another tag, a
code fence, doubled or missing or extra braces, single quotes, arguments as a string, `parameters` for `arguments`,
several objects in one tag, calls joined by `;`, a reply that is cut off. What names a declared tool and can be read is
a call. Everything else is content, unchanged: nothing is ever dropped, and nothing here raises.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from msgspec import Struct

from model_server.openers import Openers, openers
from model_server.prompt import dumped


class Call(Struct, frozen=True):
    """`arguments` is JSON text, except that of a reply which was cut off inside it: that is left as it is."""

    name: str
    arguments: str


class Parsed(Struct, frozen=True):
    content: str | None
    calls: tuple[Call, ...] = ()


class _Read(Struct, frozen=True):
    """Calls, and the index after them."""

    calls: tuple[Call, ...]
    end: int


_SEPARATORS = re.compile(r"[\s;,\[\]]*")
_TAIL = re.compile(r"[\s}\]]*(?:</tool_call>|</tools>|```)|\}+|\]")
_REGION_END = re.compile(r"</tool_call>|</tools>|<tool_call>|<tools>|```|\Z")
_CUT = re.compile(
    r"""\{+\s*["']name["']\s*:\s*["']([^"']*)["']\s*,\s*["'](?:arguments|parameters)["']\s*:\s*(.+)\Z""", re.S
)
_DOUBLED = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\{\{|\}\}""", re.S)
_QUOTED = re.compile(r""""(?:[^"\\]|\\.)*"|'((?:[^'\\]|\\.)*)'""", re.S)

_json = json.JSONDecoder(strict=False)  # models write line breaks inside strings


class CallReader:
    """Reads the text of one reply, whole or while it grows, knowing the names of the declared tools."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._openers: Openers = openers(sorted(names))

    def safe(self, text: str, start: int = 0) -> int:
        return self._openers.safe(text, start)

    def commitment(self, text: str, start: int = 0) -> int | None:
        return self._openers.commitment(text, start)

    def parse(self, text: str, *, cut_off: bool = False) -> Parsed:
        """`cut_off` says that the model did not end the reply itself: then nothing is completed in its place."""
        kept: list[str] = []
        calls: list[Call] = []
        shown = searched = 0
        while found := self._openers.begun.search(text, searched):
            read = self._read(text, _first_object(text, found), cut_off)
            searched = read.end if read else found.end()
            if read:
                kept.append(text[shown : found.start()])
                calls += read.calls
                shown = read.end
        kept.append(text[shown:])
        return Parsed("".join(kept).strip() or None, tuple(calls))

    def _read(self, text: str, start: int, cut_off: bool) -> _Read | None:
        """All calls in a row from here on."""
        calls: list[Call] = []
        end = start
        while text.startswith("{", start) and (found := self._read_one(text, start, cut_off)):
            calls += found.calls
            end = _after(_TAIL, text, found.end)
            start = _after(_SEPARATORS, text, end)
        return _Read(tuple(calls), end) if calls else None

    def _read_one(self, text: str, start: int, cut_off: bool) -> _Read | None:
        for value, end in _values(text, start, cut_off):
            if call := self._call(value):
                return _Read((call,), end)
        return self._cut(text, start) if cut_off else None

    def _call(self, value: Any) -> Call | None:
        if isinstance(value, dict) and isinstance(value.get("function"), dict):
            value = value["function"]
        if not isinstance(value, dict) or value.get("name") not in self._names:
            return None
        arguments = _arguments(value)
        return None if arguments is None else Call(value["name"], arguments)

    def _cut(self, text: str, start: int) -> _Read | None:
        """A reply cut off inside the arguments. They stay as they are, so that nobody takes half a text for a whole."""
        found = _CUT.match(text, start)
        return _Read((Call(found[1], found[2]),), len(text)) if found and found[1] in self._names else None


class StreamingReader:
    """Shows a reply as it grows, except what may be a call, which is read when the reply has ended."""

    def __init__(self, reader: CallReader) -> None:
        self._reader = reader
        self._text = ""
        self._shown = 0

    def feed(self, text: str) -> str:
        """What may be shown now. Whitespace in front of everything is not."""
        self._text += text if self._text else text.lstrip()
        start, self._shown = self._shown, self._reader.safe(self._text, self._shown)
        return self._text[start : self._shown]

    def end(self, *, cut_off: bool = False) -> Parsed:
        """What was not shown yet, and the calls."""
        parsed = self._reader.parse(self._text, cut_off=cut_off)
        return Parsed((parsed.content or "")[self._shown :] or None, parsed.calls)


# ── values in broken JSON ─────────────────────────────────────────────────────────────────────────────────────────────


def _first_object(text: str, opener: "re.Match[str]") -> int:
    """Where the first object stands: after a tag, or inside the opener itself."""
    inside = text.find("{", opener.start(), opener.end())
    return inside if inside >= 0 else _after(_SEPARATORS, text, opener.end())


def _values(text: str, start: int, cut_off: bool) -> Iterator[tuple[Any, int]]:
    """What the object at `start` may mean, the most faithful reading first, each with the index after the object."""
    with suppress(ValueError, RecursionError):
        yield _json.raw_decode(text, start)
    region = text[start : _region_end(text, start)]
    end = start + _balanced(region)[0]
    for repair in _REPAIRS:
        yield from ((value, end) for value in _decoded(repair(region)))
    if not cut_off:
        for repair in (_same, *_REPAIRS):
            yield from ((value, start + len(region)) for value in _completed(repair(region)))


def _decoded(text: str) -> Iterator[Any]:
    with suppress(ValueError, RecursionError):
        yield _json.raw_decode(text)[0]


def _completed(text: str) -> Iterator[Any]:
    """With the braces that are missing at the end. A string that has no end is not completed."""
    for shortened in dict.fromkeys((text.rstrip(), text[: text.rfind("}") + 1])):
        _, missing = _balanced(shortened)
        if shortened and missing:
            yield from _decoded(shortened + missing)


def _region_end(text: str, start: int) -> int:
    found = _REGION_END.search(text, start)
    return found.start() if found else len(text)


def _balanced(text: str) -> tuple[int, str]:
    """The index after the object that the text begins with, and the closing brackets it lacks."""
    quote = next((character for character in text if character in "\"'"), '"')
    expected: list[str] = []
    in_string = escaped = False
    for index, character in enumerate(text):
        if in_string:
            in_string, escaped = escaped or character != quote, character == "\\" and not escaped
        elif character == quote:
            in_string = True
        elif character in "{[":
            expected.append("}" if character == "{" else "]")
        elif expected and character == expected[-1]:
            expected.pop()
            if not expected:
                return index + 1, ""
    return len(text), "" if in_string else "".join(reversed(expected))


def _same(text: str) -> str:
    return text


def _single_braces(text: str) -> str:
    return _DOUBLED.sub(lambda found: found[0][0] if found[0] in ("{{", "}}") else found[0], text)


def _double_quotes(text: str) -> str:
    return _QUOTED.sub(lambda found: found[0] if found[1] is None else _requoted(found[1]), text)


def _requoted(inside: str) -> str:
    """`\\'` needs no escape in JSON, and `"` does."""
    return '"' + re.sub(r"\\.|\"", lambda found: {"\\'": "'", '"': '\\"'}.get(found[0], found[0]), inside) + '"'


_REPAIRS: tuple[Callable[[str], str], ...] = (
    _single_braces,
    _double_quotes,
    lambda text: _double_quotes(_single_braces(text)),
)


def _arguments(value: dict[str, Any]) -> str | None:
    """As JSON text. A call without arguments has none, but an object that has other keys instead is not a call."""
    for key in ("arguments", "parameters"):
        if key in value:
            return _as_text(value[key])
    return "{}" if not value.keys() - {"name", "type", "id"} else None


def _as_text(arguments: Any) -> str:
    if arguments is None or arguments == "":
        return "{}"
    if not isinstance(arguments, str):
        return dumped(arguments)
    try:
        return dumped(_json.decode(arguments))
    except (ValueError, RecursionError):
        return arguments


def _after(pattern: "re.Pattern[str]", text: str, start: int) -> int:
    found = pattern.match(text, start)
    return found.end() if found else start
