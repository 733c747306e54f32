"""Every way in which small models are known to deviate from the form of a call that they were taught."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_server.tool_calls import Call, CallReader, Parsed, StreamingReader

READER = CallReader(frozenset({"read_file", "list_files", "write_note"}))
READ = Call("read_file", '{"path": "errors.log"}')
LIST = Call("list_files", "{}")

BARE = '{"name": "read_file", "arguments": {"path": "errors.log"}}'
BARE_LIST = '{"name": "list_files", "arguments": {}}'

ONE_CALL = {
    "as taught": f"<tool_call>\n{BARE}\n</tool_call>",
    "no tags": BARE,
    "no tags, and space around": f"\n  {BARE}\n\n",
    "no opening tag": f"{BARE}\n</tool_call>",
    "no closing tag": f"<tool_call>\n{BARE}",
    "the tag of the list of tools": f"<tools>\n{BARE}\n</tools>",
    "tags that do not match": f"<tool_call>{BARE}</tools>",
    "doubled braces": "<tool_call>\n" + BARE.replace("{", "{{").replace("}", "}}") + "\n</tool_call>",
    "doubled braces, no tags": BARE.replace("{", "{{").replace("}", "}}"),
    "outer braces doubled": "{" + BARE + "}",
    "a brace missing": f"<tool_call>\n{BARE[:-1]}\n</tool_call>",
    "two braces missing": f"<tool_call>\n{BARE[:-2]}\n</tool_call>",
    "a brace missing, no tags": BARE[:-1],
    "a brace too many": f"<tool_call>\n{BARE}}}\n</tool_call>",
    "a brace too many, no tags": BARE + "}",
    "a code fence": f"```json\n{BARE}\n```",
    "a code fence without a language": f"```\n{BARE}\n```",
    "a code fence that does not end": f"```json\n{BARE}",
    "a tag inside a code fence": f"```json\n<tool_call>\n{BARE}\n</tool_call>\n```",
    "a list": f"[{BARE}]",
    "a list in a tag": f"<tool_call>\n[{BARE}]\n</tool_call>",
    "single quotes": "{'name': 'read_file', 'arguments': {'path': 'errors.log'}}",
    "single quotes in doubled braces": "{{'name': 'read_file', 'arguments': {{'path': 'errors.log'}}}}",
    "arguments as a string": r'{"name": "read_file", "arguments": "{\"path\": \"errors.log\"}"}',
    "parameters for arguments": '{"name": "read_file", "parameters": {"path": "errors.log"}}',
    "no spaces": '{"name":"read_file","arguments":{"path":"errors.log"}}',
    "spread over lines": '{\n  "name": "read_file",\n  "arguments": {\n    "path": "errors.log"\n  }\n}',
    "the shape of the API": '<tool_call>{"type": "function", "function": ' + BARE + "}</tool_call>",
    "a type besides": BARE[:-1] + ', "type": "function"}',
}


@pytest.mark.parametrize("text", ONE_CALL.values(), ids=ONE_CALL.keys())
def test_a_call_is_read_in_whatever_form_it_comes(text: str) -> None:
    parsed = READER.parse(text)

    assert parsed.calls == (READ,)
    assert (parsed.content or "").strip("`\njson") == ""


TWO_CALLS = {
    "two tags": f"<tool_call>\n{BARE}\n</tool_call>\n<tool_call>\n{BARE_LIST}\n</tool_call>",
    "two objects in one tag": f"<tool_call>\n{BARE}\n{BARE_LIST}\n</tool_call>",
    "two objects in one tag, with a comma": f"<tool_call>\n{BARE}, {BARE_LIST}\n</tool_call>",
    "joined by a semicolon": f"{BARE}; {BARE_LIST}",
    "a line each": f"{BARE}\n{BARE_LIST}",
    "one list": f"[{BARE}, {BARE_LIST}]",
    "the first tag not closed": f"<tool_call>\n{BARE}\n<tool_call>\n{BARE_LIST}\n</tool_call>",
    "two fences": f"```json\n{BARE}\n```\n```json\n{BARE_LIST}\n```",
}


@pytest.mark.parametrize("text", TWO_CALLS.values(), ids=TWO_CALLS.keys())
def test_all_calls_of_a_reply_are_read_in_their_order(text: str) -> None:
    assert READER.parse(text) == Parsed(None, (READ, LIST))


@pytest.mark.parametrize(
    "arguments",
    ["", "null", '""', None],
    ids=["nothing at all", "null", "an empty string", "no key"],
)
def test_a_call_without_arguments_has_an_empty_object(arguments: str | None) -> None:
    inside = "" if not arguments else f', "arguments": {arguments}'

    assert READER.parse(f'{{"name": "list_files"{inside}}}').calls == (LIST,)


CONTENT = {
    "prose": "The file errors.log mentions a timeout.",
    "an unknown name": '{"name": "open_file", "arguments": {"path": "errors.log"}}',
    "an unknown name in its tag": '<tool_call>\n{"name": "open_file", "arguments": {}}\n</tool_call>',
    "JSON that is an answer": '{"name": "Ada", "age": 36}',
    "a tool's name as an answer": '{"name": "read_file", "why": "it reads"}',
    "JSON that does not begin with a name": '{"path": "errors.log"}',
    "nonsense in a tag": "<tool_call>\nread_file errors.log\n</tool_call>",
    "an empty tag": "<tool_call>\n</tool_call>",
    "code": "```python\nprint({'name': 'read_file'})\n```",
    "a brace": "a set {1, 2}",
    "broken beyond repair": '{"name": "read_file", "arguments": {"path": errors.log"}}',
    "a call of which only half a name is there": '<tool_call>\n{"name": "read_fi',
    "deeply nested": '{"name": "read_file", "arguments": ' + "[" * 20_000,
}


@pytest.mark.parametrize("text", CONTENT.values(), ids=CONTENT.keys())
def test_what_is_no_call_is_content_and_is_not_changed(text: str) -> None:
    assert READER.parse(text) == Parsed(text)


def test_prose_around_calls_stays() -> None:
    parsed = READER.parse(f"I will look.\n<tool_call>\n{BARE}\n</tool_call>\nThen I answer.")

    assert parsed == Parsed("I will look.\n\nThen I answer.", (READ,))


def test_a_closing_tag_inside_a_string_does_not_end_the_call() -> None:
    arguments = {"text": "write </tool_call> and }} and ; here"}
    text = f'<tool_call>\n{{"name": "write_note", "arguments": {json.dumps(arguments)}}}\n</tool_call>'

    assert READER.parse(text) == Parsed(None, (Call("write_note", json.dumps(arguments)),))


def test_line_breaks_inside_strings_are_read() -> None:
    (call,) = READER.parse('{"name": "write_note", "arguments": {"text": "one\ntwo"}}').calls

    assert json.loads(call.arguments) == {"text": "one\ntwo"}


def test_apostrophes_and_quotes_survive_single_quotes() -> None:
    (call,) = READER.parse(r"""{'name': 'write_note', 'arguments': {'text': 'it\'s "done"'}}""").calls

    assert json.loads(call.arguments) == {"text": 'it\'s "done"'}


def test_arguments_that_are_no_json_stay_as_they_are() -> None:
    assert READER.parse('{"name": "read_file", "arguments": "errors.log"}').calls == (Call("read_file", "errors.log"),)


def test_a_reply_cut_off_in_its_arguments_keeps_them_unfinished() -> None:
    """Half a text must not be taken for a whole one: whoever reads the arguments finds that they are not JSON."""
    text = '<tool_call>\n{"name": "write_note", "arguments": {"text": "first line'

    assert READER.parse(text, cut_off=True).calls == (Call("write_note", '{"text": "first line'),)


def test_a_reply_that_the_model_ended_is_completed_but_one_that_was_cut_off_is_not() -> None:
    text = '{"name": "write_note", "arguments": {"text": "a"'

    assert READER.parse(text).calls == (Call("write_note", '{"text": "a"}'),)
    assert READER.parse(text, cut_off=True).calls == (Call("write_note", '{"text": "a"'),)


def test_calls_before_the_one_that_was_cut_off_are_whole() -> None:
    parsed = READER.parse(f'<tool_call>\n{BARE}\n</tool_call>\n<tool_call>\n{{"name": "list_f', cut_off=True)

    assert parsed.calls == (READ,)
    assert parsed.content == '<tool_call>\n{"name": "list_f'


# ── streaming ─────────────────────────────────────────────────────────────────────────────────────────────────────────

ALL_TEXTS = [*ONE_CALL.values(), *TWO_CALLS.values(), *list(CONTENT.values())[:-1]]


def streamed(pieces: list[str], *, cut_off: bool = False) -> tuple[str, Parsed]:
    reader = StreamingReader(READER)
    shown = "".join(map(reader.feed, pieces))
    return shown, reader.end(cut_off=cut_off)


@pytest.mark.parametrize("text", ALL_TEXTS)
def test_read_letter_by_letter_a_reply_is_the_same_as_read_at_once(text: str) -> None:
    shown, rest = streamed([*text])

    assert Parsed((shown + (rest.content or "")) or None, rest.calls) == READER.parse(text)


@given(st.data(), st.booleans())
def test_however_a_reply_is_cut_into_pieces_it_is_read_the_same(data: st.DataObject, cut_off: bool) -> None:
    around = st.sampled_from(["", " ", "So: ", "\n\nI look.\n", "{", "`", "[1]", "<tool", "```js\n{", "é"])
    text = data.draw(around) + data.draw(st.sampled_from(ALL_TEXTS)) + data.draw(around) + data.draw(around)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    shown, rest = streamed(pieces, cut_off=cut_off)

    assert Parsed((shown + (rest.content or "")) or None, rest.calls) == READER.parse(text, cut_off=cut_off)


@given(st.text(alphabet="{}[]\"'`<>/:;,tool_calnmerdfi\\ \n", max_size=200))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    shown, rest = streamed([*text])

    assert Parsed((shown + (rest.content or "")) or None, rest.calls) == READER.parse(text)


def test_prose_is_shown_at_once_and_the_beginning_of_a_call_is_not() -> None:
    reader = StreamingReader(READER)

    assert reader.feed("I will look") == "I will look"
    assert reader.feed(" at it.\n<") == " at it."
    assert reader.feed("b>bold</b>") == "\n<b>bold</b>"
    assert reader.feed(" <tool") == ""
    assert reader.feed('_call>\n{"name": ') == ""


@pytest.mark.parametrize("text", ["{", '{"na', "{{ 'name", '[\n{"name": "read_', "```json\n{", "<too", "``"])
def test_what_may_become_a_call_is_held_back(text: str) -> None:
    assert StreamingReader(READER).feed(f"Look: {text}") == "Look:"


@pytest.mark.parametrize("text", ["{1", '{"path', '{"name": "Ada', "```python\np", "<table", "[1", "`a"])
def test_what_can_no_longer_become_a_call_is_shown(text: str) -> None:
    assert StreamingReader(READER).feed(f"Look: {text}") == f"Look: {text}"


# ── commitment ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("<tool_call>", 0),
        ("I look.\n<tool_call>", 8),
        ("<tools>", 0),
        ('{"name": "r', 0),
        ('{"name": "read_file"', 0),
        ('{ "name" : "list', 0),
        ('```json\n{"name": "read', 0),
        ('So:\n{"name": "write_note", "arg', 4),
    ],
)
def test_a_reply_is_committed_as_soon_as_it_can_only_be_a_call(text: str, start: int) -> None:
    assert READER.commitment(text) == start


@pytest.mark.parametrize(
    "text", ["", "prose", "<tool_cal", "{", '{"name": "', '{"name": "Ada', "```json\n{", "{'name': 'r"]
)
def test_a_reply_that_can_be_something_else_is_not_committed(text: str) -> None:
    assert READER.commitment(text) is None
