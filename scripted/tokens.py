"""What a request and its reply cost in tokens of o200k_base.

    prompt_tokens     = tokens(JSON(messages)) + tokens(JSON(tools))
    completion_tokens = tokens(content or "") + (tokens(JSON(tool_calls)) if there are tool calls else 1)

JSON is compact, UTF-8 and keeps the order of keys, as JavaScript's JSON.stringify writes it. Two differences remain,
both in numbers only: `1.0` stays `1.0`, and integers beyond 2^53 keep their digits.

Tools that are not sent are not serialised and cost nothing; an empty list is serialised as `[]` and costs its one
token. (No published figure has a request without tools.)

A transcript is counted message by message, and the sum is exact. The text is cut between the `{"` that opens a message
and the name of its first key, wherever that name begins with an ASCII letter. o200k's pre-tokeniser, a regular
expression without look-behind, always ends a match at such a cut:
  - `{` can be consumed as the optional first character of a word (but `"` follows it, not a letter) or within a run of
    punctuation, ` ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*`, and by nothing else;
  - so it is in such a run, which is greedy: it takes the `"` too, and stops before the letter;
  - every match before the cut is the same whether the text ends there or a letter follows: only that last run looks at
    the character after the cut, and both end it. A match after the cut sees only what comes after the cut.
Byte pairs are merged within matches only. So the counts of the parts can be remembered, and a transcript that grows by
a message costs the counting of that message.
"""

import re
from base64 import b64decode
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

import msgspec
import tiktoken

# From tiktoken_ext.openai_public, whose constructor of this encoding would download the ranks.
_PATTERN = "|".join(
    (
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    )
)
_SPECIAL_TOKENS = {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}

_REMEMBERED_COUNTS_MAX = 2048
_REMEMBERED_CHARS_MAX = 32_768  # of one text; with the line above, at most 64 million characters are held
_BLANKS_MAX = 500_000  # the tokeniser's regular expression overflows its stack at a million in a row

_encoder = msgspec.json.Encoder()
_OPENING = re.compile(r'\{"[A-Za-z]')
_BLANKS = re.compile(r"\s+")


class Uncountable(ValueError):
    """The text holds more white space in a row than the tokeniser can take."""


@lru_cache(maxsize=1)
def encoding() -> tiktoken.Encoding:
    """o200k_base from the ranks that ship with the package: no network. Takes about 0.3 s, the first time."""
    lines = files("scripted").joinpath("data/o200k_base.tiktoken").read_bytes().splitlines()
    ranks = {b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    return tiktoken.Encoding("o200k_base", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens=_SPECIAL_TOKENS)


def prompt_tokens(messages: Sequence[Any], tools: Sequence[Any] | None) -> int:
    """Tokens of a request: its transcript (JSON values as the client sent them) and its tool definitions."""
    return sum(map(text_tokens, _parts(messages))) + (0 if tools is None else text_tokens(_json(tools)))


def completion_tokens(content: str | None, tool_calls: Sequence[Any] | None) -> int:
    """Tokens of a reply. One without calls pays one token for its end."""
    return text_tokens(content or "") + (text_tokens(_json(tool_calls)) if tool_calls else 1)


def text_tokens(text: str) -> int:
    """Tokens of one text. Names of special tokens in it are ordinary text."""
    return _remembered(text) if len(text) <= _REMEMBERED_CHARS_MAX else _count(text)


@lru_cache(maxsize=_REMEMBERED_COUNTS_MAX)
def _remembered(text: str) -> int:
    return _count(text)


def _count(text: str) -> int:
    if len(text) > _BLANKS_MAX and any(len(run) > _BLANKS_MAX for run in _BLANKS.findall(text)):
        raise Uncountable(f"More than {_BLANKS_MAX} characters of white space in a row cannot be counted.")
    return len(encoding().encode_ordinary(text))


def longest_beginning(text: str, fits: Callable[[str], bool]) -> str:
    """The most tokens of the text, from its start, whose text fits. A shorter beginning is never dearer but for odd
    places of the tokeniser, so it is found by halving, and then made sure."""
    known = encoding()
    found = known.encode_ordinary(text)

    def beginning(count: int) -> str:
        return known.decode_bytes(found[:count]).decode(errors="ignore")

    count = bisect_left(range(len(found)), True, key=lambda before: not fits(beginning(before + 1)))
    while count and not fits(beginning(count)):
        count -= 1
    return beginning(count)


def _parts(messages: Sequence[Any]) -> Iterator[str]:
    """The compact JSON of a transcript, cut where a cut changes no count (see the top of this file)."""
    part = "["
    for number, message in enumerate(messages):
        text = _json(message)
        part += "," if number else ""
        if _OPENING.match(text):
            yield part + text[:2]
            part = text[2:]
        else:
            part += text
    yield part + "]"


def _json(value: Any) -> str:
    return _encoder.encode(value).decode()
