"""Where in a growing text a call may begin, and from where on the text can only be a call. Pure.

Three patterns, built from the names of the declared tools:
- `begun`: the text has the whole beginning of a call: a tag, or an object (bare, in a list, or in a code fence) whose
  first key is `name` and whose value is a declared tool;
- `maybe`: the text ends in what may become such a beginning;
- `committed`: the reply can only be a call from here on, so that decoding may go on under a grammar. It asks for less
  than `begun` (one character of a declared name will do) and for more (only forms that the grammar has).
"""

import re
from collections.abc import Iterable

from msgspec import Struct

_QUOTE = r"[\"']"
_SPACES = r"\s*"


class Openers(Struct, frozen=True):
    begun: re.Pattern[str]
    maybe: re.Pattern[str]
    committed: re.Pattern[str]

    def safe(self, text: str, start: int = 0) -> int:
        """How much of the text cannot be part of a call, and so may be shown. Whitespace before a call is not shown."""
        found = self.maybe.search(text, start)
        shown = text[start : found.start() if found else len(text)]
        return start + len(shown.rstrip())

    def commitment(self, text: str, start: int = 0) -> int | None:
        found = self.committed.search(text, start)
        return found.start() if found else None


def openers(names: Iterable[str]) -> Openers:
    known = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    spelled = [_spelled(name) for name in names]
    before = rf"<tool_call>|<tools>|{_APART}(?:{_FENCE})?"
    begun = rf"{before}(?:\[\s*)?{_OBJECT}(?:{known}){_QUOTE}"
    maybe = rf"(?:{begun})|(?:{_beginning(spelled)})\Z"
    committed = rf"{before}{_STRICT_OBJECT}(?:(?:{known})\"|(?:{'|'.join(spelled)})\Z)"
    return Openers(re.compile(begun), re.compile(maybe), re.compile(committed))


_APART = r"(?<![^\s>;:,.!\[`])"  # after a space or a mark, and not inside an expression of some code
_FENCE = r"```\w*\s*"
_OBJECT = rf"\{{(?:\s*\{{)?\s*{_QUOTE}name{_QUOTE}\s*:\s*{_QUOTE}"
_STRICT_OBJECT = r"\{\s*\"name\"\s*:\s*\""


def _spelled(name: str) -> str:
    """Any beginning of a name, of one character at least."""
    return _nested([re.escape(character) for character in name])


def _beginning(names: list[str]) -> str:
    """Any beginning of `begun`, of one character at least."""
    value = "|".join(f"{name}{_QUOTE}?" for name in names)
    key = [_SPACES, _QUOTE, *"name", _QUOTE, _SPACES, ":", _SPACES, _QUOTE, f"(?:{value})"]
    bare = rf"\{{(?:\s*\{{)?(?:{_nested(key)})?"
    listed = rf"\[\s*(?:{bare})?"
    fenced = _nested(["`", "`", "`", r"\w*", _SPACES, f"(?:{listed}|{bare})"])
    return "|".join([_nested(list("<tool_call>")), _nested(list("<tools>")), f"{_APART}(?:{fenced}|{listed}|{bare})"])


def _nested(atoms: list[str]) -> str:
    """A pattern of any beginning of the atoms in a row: `a(?:b(?:c)?)?`."""
    pattern = atoms[-1]
    for atom in reversed(atoms[:-1]):
        pattern = f"{atom}(?:{pattern})?"
    return pattern
