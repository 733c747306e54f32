"""llama.cpp as the engine uses it, with the smallest real weights."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from model_server import grammar
from model_server.cells import Copy, Keep
from model_server.engine import Engine, Options
from model_server.errors import DecodeFailed, LoadFailed
from model_server.gguf import read_header
from model_server.prompt import Control, Text
from model_server.registry import SMALL
from model_server.scheduler import Share
from model_server.wire import FunctionSpec, Tool
from tests.model_server.real import fetched, repack


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    path = fetched(SMALL)
    options = Options(context=1024, lines=4, batch_tokens=128, threads=1, repack=repack(path))
    engine = Engine(path, options)
    yield engine
    engine.close()


@pytest.fixture(autouse=True)
def empty(engine: Engine) -> None:
    engine.apply([Keep(sequence, 0) for sequence in range(4)])


def share(sequence: int, position: int, tokens: list[int]) -> Share:
    return Share(sequence, sequence, position, tuple(tokens), whole=True)


def close_to(one: Any, other: Any) -> bool:
    """The same but for the last bits, which depend on the shape of a batch."""
    return float(np.dot(one, other) / np.linalg.norm(one) / np.linalg.norm(other)) > 0.999


def test_control_tokens_come_from_control_segments_only(engine: Engine) -> None:
    (start,) = engine.tokenise(Control("<|im_start|>"))
    text = engine.tokenise(Text("<|im_start|>user"))

    assert start not in text
    assert len(text) > 3
    assert b"".join(map(engine.piece, text)) == b"<|im_start|>user"
    assert engine.piece(start) == b""
    assert engine.is_end(engine.tokenise(Control("<|im_end|>"))[0])


def test_text_of_any_kind_survives_its_tokens(engine: Engine) -> None:
    text = 'né {"a": [1, 2]}\n\n\ttab 😀 — „q“'

    assert b"".join(map(engine.piece, engine.tokenise(Text(text)))).decode() == text
    assert engine.tokenise(Text("")) == []


def test_shared_cells_give_the_same_logits_as_computed_ones(engine: Engine) -> None:
    tokens = engine.tokenise(Text("The quick brown fox jumps over the lazy dog and then"))
    assert engine.decode([share(0, 0, tokens)]) == 0
    whole = engine.logits(len(tokens) - 1).copy()
    engine.apply([Copy(0, 1, 5)])
    assert engine.decode([share(1, 5, tokens[5:])]) == 0

    assert close_to(whole, engine.logits(len(tokens) - 6))
    assert (engine.held(0), engine.held(1)) == (len(tokens), len(tokens))


def test_sequences_of_one_batch_do_not_see_each_other(engine: Engine) -> None:
    one = engine.tokenise(Text("The capital of France is"))
    other = engine.tokenise(Text("Two and two make"))
    engine.decode([share(0, 0, one)])
    alone = engine.logits(len(one) - 1).copy()
    engine.apply([Keep(0, 0)])
    engine.decode([share(1, 0, other), share(0, 0, one)])

    assert close_to(alone, engine.logits(len(other) + len(one) - 1))


def test_letting_go_of_the_end_of_a_sequence_lets_it_go_on_differently(engine: Engine) -> None:
    tokens = engine.tokenise(Text("The capital of France is Paris, and that of Italy is"))
    engine.decode([share(0, 0, tokens)])
    whole = engine.logits(len(tokens) - 1).copy()
    engine.apply([Keep(0, 4)])
    engine.decode([share(0, 4, [7, 8, 9])])
    engine.apply([Keep(0, 4)])
    engine.decode([share(0, 4, tokens[4:])])

    assert engine.held(0) == len(tokens)
    assert close_to(whole, engine.logits(len(tokens) - 5))


def test_no_room_is_a_code_and_changes_nothing(engine: Engine) -> None:
    for start in range(0, 1024, 128):
        assert engine.decode([share(0, start, [5] * 128)]) == 0

    assert engine.decode([share(1, 0, [5] * 8)]) == 1
    assert (engine.held(0), engine.held(1)) == (1024, 0)
    engine.apply([Keep(0, 1000)])
    assert engine.decode([share(1, 0, [5] * 8)]) == 0


def test_logits_that_were_not_asked_for_are_an_error_and_not_a_crash(engine: Engine) -> None:
    engine.decode([Share(0, 0, 0, (5, 6), whole=False)])

    with pytest.raises(DecodeFailed):
        engine.logits(1)


# ── grammars, as llama.cpp reads them ─────────────────────────────────────────────────────────────────────────────────


def accepts(engine: Engine, text: str, written: str) -> bool:
    """Whether a whole text follows a grammar, to its end."""
    state = engine.grammar(text)
    end = engine.tokenise(Control("<|im_end|>"))
    try:
        for token in [*engine.tokenise(Text(written)), *end]:
            if not state.allowed(np.array([token], np.int32))[0]:
                return False
            if token not in end:
                state.accept(token)
        return True
    finally:
        state.close()


READ = Tool(
    "function",
    FunctionSpec(
        "read_file",
        None,
        {
            "type": "object",
            "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}, "mode": {"enum": ["text", "raw"]}},
            "required": ["path"],
        },
    ),
)
LIST = Tool("function", FunctionSpec("list_files", None, {"type": "object", "properties": {}}))
CALL = '{"name": "read_file", "arguments": {"path": "a.log"}}'
CALL_LIST = '{"name": "list_files", "arguments": {}}'


@pytest.mark.parametrize(
    "written",
    [
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL_LIST}\n</tool_call>",
        f"<tools>\n{CALL}\n</tools>",
        f"```json\n{CALL}\n```",
        CALL,
        f"{CALL}; {CALL_LIST}",
        f"{CALL}\n{CALL_LIST}",
        '{"name": "read_file", "arguments": {"path": "é\\n\\u00e9\\"", "lines": -12, "mode": "raw"}}',
        '{"name":"read_file","arguments":{"path":"","mode":"text"}}',
        '{\n  "name": "read_file",\n  "arguments": {\n    "path": "a"\n  }\n}',
    ],
)
def test_calls_of_declared_tools_follow_the_grammar(engine: Engine, written: str) -> None:
    assert accepts(engine, grammar.calls([READ, LIST]), written)


@pytest.mark.parametrize(
    "written",
    [
        "I would like to call a tool.",
        '{"name": "open_file", "arguments": {}}',
        '{"name": "read_file", "arguments": {}}',
        '{"name": "read_file", "arguments": {"path": 5}}',
        '{"name": "read_file", "arguments": {"path": "a", "color": "red"}}',
        '{"name": "read_file", "arguments": {"mode": "text", "path": "a"}}',
        '{"name": "read_file", "arguments": {"path": "a", "mode": "other"}}',
        '{"name": "list_files", "arguments": {"type": "object", "properties": {}}}',
        f"<tool_call>\n{CALL}",
        f"<tool_call>\n{CALL}\n</tool_call> and more",
        CALL[:-1],
        '{"name": "read_file", "arguments": {"path": "a\nb"}}',
    ],
)
def test_what_is_no_call_of_a_declared_tool_does_not(engine: Engine, written: str) -> None:
    assert not accepts(engine, grammar.calls([READ, LIST]), written)


def test_text_before_the_call_in_its_first_token_is_accepted(engine: Engine) -> None:
    assert accepts(engine, grammar.calls([READ, LIST], prefix=":"), f":{CALL}")


SCHEMAS: list[tuple[Any, list[Any], list[Any]]] = [
    ({"type": "object"}, ["{}", '{"a": [1, {"b": null}], "c": -1.5e3}'], ["[]", "1", "{", '{"a": }']),
    (
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
        ["[1]", "[1, 2]"],
        ["[]", "[1,2,3]"],
    ),
    ({"type": "array", "items": {"type": "integer"}, "maxItems": 1}, ["[]", "[1]"], ["[1, 2]", '["a"]']),
    ({"enum": ["a", 1, None, True]}, ['"a"', "1", "null", "true"], ['"b"', "false"]),
    ({"type": ["string", "null"]}, ['"x"', "null"], ["1"]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"abc"'], ['"a"', '"abcd"']),
    ({"anyOf": [{"type": "boolean"}, {"const": "n/a"}]}, ["true", '"n/a"'], ['"no"']),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, ["{}", '{"a": 1, "b": 2}'], ['{"a": "x"}']),
    ({"allOf": [{"type": "integer"}]}, ["12"], ['"a"', "01"]),
    (
        {
            "$ref": "#/$defs/node",
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {"value": {"type": "number"}, "next": {"$ref": "#/$defs/node"}},
                    "required": ["value"],
                }
            },
        },
        ['{"value": 1}', '{"value": 1, "next": {"value": 2.5}}'],
        ["{}", '{"value": 1, "next": {}}'],
    ),
    (
        {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}}},
        ["{}", '{"a": null}', '{"b": null}', '{"a": null, "c": null}', '{"a":null,"b":null,"c":null}'],
        ['{"c": null, "a": null}', '{"a": null,}', '{, "b": null}', '{"d": null}'],
    ),
    (True, ["1", '"a"', "[[]]", "{}"], ["", "nothing"]),
]


@pytest.mark.parametrize(("schema", "good", "bad"), SCHEMAS, ids=[str(n) for n in range(len(SCHEMAS))])
def test_values_follow_the_grammar_of_their_schema_and_others_do_not(
    engine: Engine, schema: Any, good: list[str], bad: list[str]
) -> None:
    text = grammar.json_schema(schema)

    assert [value for value in good if not accepts(engine, text, value)] == []
    assert [value for value in bad if accepts(engine, text, value)] == []


def test_with_tools_an_answer_may_also_be_a_call_in_its_tag(engine: Engine) -> None:
    text = grammar.json_schema({"type": "integer"}, tools=[LIST])

    assert accepts(engine, text, "42")
    assert accepts(engine, text, f"<tool_call>\n{CALL_LIST}\n</tool_call>")
    assert not accepts(engine, text, CALL_LIST)


def test_a_grammar_that_llama_cpp_refuses_is_an_error_and_not_a_crash(engine: Engine) -> None:
    with pytest.raises(DecodeFailed):
        engine.grammar("root ::= root")


# ── loading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_header_says_the_truth_about_the_cells() -> None:
    """30 layers, 3 heads of 64 numbers, keys and values, two bytes each."""
    assert read_header(fetched(SMALL)).cell_bytes == 30 * 3 * 64 * 2 * 2


def test_a_truncated_file_is_refused_in_llama_cpp_s_words(tmp_path: Any) -> None:
    whole = fetched(SMALL).read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: len(whole) // 2])

    with pytest.raises(LoadFailed, match=r"cut\.gguf cannot be loaded: .*") as failed:
        Engine(path, Options(context=256, lines=1, batch_tokens=64, threads=1))
    assert "\n" not in str(failed.value)
