import hashlib
import json
import os
import subprocess
import sys
from importlib.resources import files
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripted import tokens

# What could move a cut: the text of a cut itself, what words and punctuation attach to, marks, white space, digits.
CUTS_AND_WORDS = ['"},{"', '{"', "role", '"', "'s", "'LL", "}", "]", ",", "[{", "a", "Word", "<|endoftext|>"]
MARKS_AND_BLANKS = ["/", "\\", "\n", "\r\n", " ", "  ", "\u3000", "\u2028", "\x00", "\x7f", "e\u0301", "\u0301"]
OTHER_SCRIPTS = ["é", "日本", "ß", "ǅ", "١٢", "1234", "😀"]
AWKWARD = st.sampled_from([*CUTS_AND_WORDS, *MARKS_AND_BLANKS, *OTHER_SCRIPTS])
texts = st.one_of(st.lists(AWKWARD, max_size=8).map("".join), st.text(max_size=12))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
keys = st.one_of(st.sampled_from(["role", "content", "Role", "name", "", "1", "é", "_x", " role"]), texts)
transcripts = st.lists(st.one_of(st.dictionaries(keys, values, max_size=4), values), max_size=5)


def direct(value: Any) -> int:
    """The formula as it is written, with the standard library's JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return len(tokens.encoding().encode(text, disallowed_special=()))


@settings(max_examples=600, derandomize=True)
@given(transcripts)
def test_a_transcript_counted_in_parts_costs_what_it_costs_as_a_whole(messages: list[Any]) -> None:
    assert tokens.prompt_tokens(messages, None) == direct(messages)


@settings(max_examples=100, derandomize=True)
@given(st.lists(st.builds(dict, role=st.sampled_from(["user", "tool"]), content=texts), min_size=1, max_size=5), values)
def test_remembered_counts_do_not_change_what_a_growing_transcript_costs(messages: list[Any], tool: Any) -> None:
    for length in range(len(messages) + 1):
        so_far = messages[:length]

        assert tokens.prompt_tokens(so_far, [tool]) == direct(so_far) + direct([tool])


def test_tools_that_are_not_sent_cost_nothing_and_an_empty_list_costs_its_brackets() -> None:
    message = [{"role": "user", "content": "hello"}]

    assert tokens.prompt_tokens(message, None) == direct(message)
    assert tokens.prompt_tokens(message, []) == direct(message) + 1


@pytest.mark.parametrize(("content", "calls", "cost"), [("", [], 1), (None, None, 1), ("hello", [], 2)])
def test_a_reply_without_calls_pays_one_token_for_its_end(content: str | None, calls: Any, cost: int) -> None:
    assert tokens.completion_tokens(content, calls) == cost


def test_a_reply_with_calls_pays_for_their_json() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "list_files", "arguments": "{}"}}]

    assert tokens.completion_tokens(None, calls) == direct(calls) == 23


def test_text_too_long_to_be_remembered_is_counted_all_the_same() -> None:
    message = [{"role": "tool", "content": "word " * 20_000}]

    assert tokens.prompt_tokens(message, None) == direct(message)


def test_a_run_of_white_space_that_overflows_the_tokeniser_is_refused() -> None:
    with pytest.raises(tokens.Uncountable, match="white space"):
        tokens.completion_tokens("word" + " " * 600_000, None)


def test_the_ranks_that_ship_are_the_official_ones() -> None:
    data = files("scripted").joinpath("data/o200k_base.tiktoken").read_bytes()

    assert hashlib.sha256(data).hexdigest() == "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"


def test_the_pattern_is_the_official_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from tiktoken_ext import openai_public

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: {})

    official = openai_public.o200k_base()

    assert official["pat_str"] == tokens._PATTERN
    assert official["special_tokens"] == tokens._SPECIAL_TOKENS


def test_importing_loads_no_ranks_and_counting_needs_no_network() -> None:
    program = (
        "import socket; socket.socket.connect = None; from scripted import app, cli, tokens;"
        "assert tokens.encoding.cache_info().currsize == 0; print(tokens.text_tokens('hello world'))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))

    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


def test_json_is_what_javascript_writes() -> None:
    text = '\x00\x07\b\f\n\r\t\x1f\x7f"\\/é😀\u2028'

    assert msgspec.json.encode(text).decode() == '"\\u0000\\u0007\\b\\f\\n\\r\\t\\u001f\x7f\\"\\\\/é😀\u2028"'
