"""The operator's own functions as tools: what the model is told of them, what they are given, and how they fail."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

import pytest
from msgspec import Meta, Struct

from gateway.adapters.dotted import CannotLoad, load, make_importable
from gateway.adapters.tools.functions import function_tool
from gateway.adapters.tools.settings import FunctionSettings
from gateway.adapters.tools.tool import Tool
from gateway.adapters.tools.toolbox import LocalToolbox
from gateway.core.errors import ToolFailed
from tests.adapters.tools.test_toolbox import Context, run_of


class Place(Struct):
    """Where something is."""

    city: str
    floor: int = 0


def make(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Tool:
    """The function as a tool, by the dotted path of a module that has it."""
    monkeypatch.setattr(sys.modules[__name__], "under_test", function, raising=False)
    return function_tool("probe", FunctionSettings(function=f"{__name__}:under_test", **settings))


@pytest.fixture
def tool_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tool]:
    return functools.partial(make, monkeypatch=monkeypatch)


async def use(tool: Tool, args: dict[str, Any], ctx: Context | None = None) -> str:
    toolbox = LocalToolbox({"files": {"probe": tool}})
    return await toolbox.use(run_of(), tool.spec, args, ctx or Context())


async def failure(tool: Tool, args: dict[str, Any] | None = None) -> ToolFailed:
    with pytest.raises(ToolFailed) as failed:
        await use(tool, args or {})
    return failed.value


# --- what the model is told -----------------------------------------------------------------------------------------


def documented(
    a: Annotated[int, Meta(description="the first", ge=1)],
    kind: Literal["x", "y"] = "x",
    where: Place | None = None,
    *,
    when: dt.date | None = None,
    names: list[str] = [],  # noqa: B006  as people write it
    anything=1.5,
    ctx,
) -> str:
    """Do one thing
    and no other.

    This paragraph is for programmers.
    """
    return f"{a} {kind} {where} {when} {names} {anything}"


def test_the_schema_is_made_from_the_annotations(tool_of: Callable[..., Tool]) -> None:
    assert tool_of(documented).spec.parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": 1, "description": "the first"},
            "kind": {"enum": ["x", "y"], "default": "x"},
            "where": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}], "default": None},
            "when": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
            "names": {"type": "array", "items": {"type": "string"}},
            "anything": {"default": 1.5},
        },
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {
            "Place": {
                "title": "Place",
                "description": "Where something is.",
                "type": "object",
                "properties": {"city": {"type": "string"}, "floor": {"type": "integer", "default": 0}},
                "required": ["city"],
            }
        },
    }


def test_the_description_is_the_first_paragraph_of_the_docstring_or_what_is_configured(
    tool_of: Callable[..., Tool],
) -> None:
    assert tool_of(documented).spec.description == "Do one thing and no other."
    assert tool_of(documented, description="Another.").spec.description == "Another."


def test_the_flags_are_those_of_the_configuration(tool_of: Callable[..., Tool]) -> None:
    flags: dict[str, Any] = {"read_only": True, "needs_approval": True, "idempotent": True, "cacheable": True}
    spec = tool_of(documented, timeout_seconds=2.5, **flags).spec

    assert {name: getattr(spec, name) for name in flags} == flags
    assert (spec.name, spec.timeout_seconds) == ("probe", 2.5)


def test_a_schema_of_the_operators_own_replaces_the_derived_one(tool_of: Callable[..., Tool]) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"]}

    assert tool_of(documented, parameters=schema).spec.parameters == schema


# --- what it is given -----------------------------------------------------------------------------------------------


async def test_arguments_arrive_as_the_types_that_the_function_says(tool_of: Callable[..., Tool]) -> None:
    given: list[Any] = []

    def take(where: Place, when: dt.datetime, price: Decimal, by_number: dict[int, str], pair: tuple[int, str]) -> None:
        """Take."""
        given.extend((where, when, price, by_number, pair))

    await use(
        tool_of(take),
        {
            "where": {"city": "Oslo"},
            "when": "2026-01-02T03:04:05Z",
            "price": "0.10",
            "by_number": {"7": "seven"},
            "pair": [1, "a"],
        },
    )

    assert given == [
        Place("Oslo"),
        dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        Decimal("0.10"),
        {7: "seven"},
        (1, "a"),
    ]


async def test_what_is_left_out_is_the_functions_own_default(tool_of: Callable[..., Tool]) -> None:
    assert await use(tool_of(documented), {"a": 1}) == "1 x None None [] 1.5"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"a": "one"}, "invalid arguments for probe: a: Expected `int`, got `str`."),
        ({"a": 1, "when": "soon"}, "invalid arguments for probe: when: Invalid RFC3339 encoded date."),
        ({"a": 1, "where": {"city": 3}}, "invalid arguments for probe: where.city: Expected `str`, got `int`."),
        ({}, "invalid arguments for probe: Object missing required field `a`."),
        ({"a": 1, "b": 2}, "invalid arguments for probe: Object contains unknown field `b`."),
    ],
)
async def test_an_argument_of_another_type_is_said_in_words_that_name_it(
    tool_of: Callable[..., Tool], args: dict[str, Any], words: str
) -> None:
    failed = await failure(tool_of(documented), args)

    assert (str(failed), failed.permanent) == (words, False)


async def test_a_parameter_named_ctx_gets_the_context_and_the_model_does_not_hear_of_it(
    tool_of: Callable[..., Tool],
) -> None:
    def work(ctx: Any, n: int) -> str:
        """Work."""
        ctx.progress(f"{n} of 2")
        return ctx.idempotency_key

    tool, ctx = tool_of(work), Context()

    assert list(tool.spec.parameters["properties"]) == ["n"]
    assert await use(tool, {"n": 1}, ctx) == "r1:1:0"
    assert ctx.labels == ["1 of 2"]


async def test_async_functions_are_awaited_and_end_at_their_timeout(tool_of: Callable[..., Tool]) -> None:
    async def sleep(seconds: float) -> str:
        """Sleep."""
        await asyncio.sleep(seconds)
        return "slept"

    tool = tool_of(sleep, timeout_seconds=0.05)

    assert await use(tool, {"seconds": 0}) == "slept"
    assert str(await failure(tool, {"seconds": 9})) == "probe took longer than 0.05 s."


async def test_what_is_returned_may_be_anything_that_json_can_say(tool_of: Callable[..., Tool]) -> None:
    def find() -> Place:
        """Find."""
        return Place("Oslo", 2)

    assert await use(tool_of(find), {}) == '{"city":"Oslo","floor":2}'


# --- how it fails ---------------------------------------------------------------------------------------------------


def explain(error: Exception) -> str:
    return f"sorry: {error}"


def explain_badly(error: Exception) -> str:
    raise RuntimeError("no words")


def explain_nothing(error: Exception) -> None:
    return None


def raising(error: BaseException) -> list[Callable[..., Any]]:
    """The two kinds of function, and a plain one that returns something to be awaited."""

    def plain() -> None:
        """Fail."""
        raise error

    async def coroutine() -> None:
        """Fail."""
        raise error

    def returning() -> Any:
        """Fail."""
        return coroutine()

    return [plain, coroutine, returning]


@pytest.mark.parametrize(
    ("words", "error", "text", "permanent"),
    [
        (None, ValueError("boom"), "ValueError: boom", False),
        ("explain", ValueError("boom"), "sorry: boom", False),
        ("explain", PermissionError("locked"), "sorry: locked", True),
        ("explain", ToolFailed("already said", permanent=True), "already said", True),
        ("explain_badly", ValueError("boom"), "ValueError: boom", False),
        ("explain_nothing", ValueError("boom"), "ValueError: boom", False),
    ],
)
@pytest.mark.parametrize("kind", range(3))
async def test_an_error_is_told_in_the_operators_words_or_in_its_own(
    tool_of: Callable[..., Tool], kind: int, words: str | None, error: Exception, text: str, permanent: bool
) -> None:
    failed = await failure(tool_of(raising(error)[kind], error_words=words and f"{__name__}:{words}"))

    assert (str(failed), failed.permanent) == (text, permanent)


async def test_words_for_errors_do_not_touch_a_timeout(tool_of: Callable[..., Tool]) -> None:
    async def hang() -> None:
        """Hang."""
        await asyncio.sleep(9)

    tool = tool_of(hang, timeout_seconds=0.02, error_words=f"{__name__}:explain")

    assert str(await failure(tool)) == "probe took longer than 0.02 s."


# --- what cannot be a tool ------------------------------------------------------------------------------------------


def positional(a: int, /) -> None:
    """No."""


def spread(*numbers: int) -> None:
    """No."""


def keywords(**numbers: int) -> None:
    """No."""


def silent(a: int) -> None: ...


def unsayable(a: Callable[[], int]) -> None:
    """No."""


def unknown(a: NoSuchType) -> None:  # type: ignore[name-defined]  # noqa: F821
    """No."""


REFUSED: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (positional, {}, "takes a: int, and a model passes arguments by name: name each of them."),
    (spread, {}, "takes *numbers: int, and a model passes arguments by name: name each of them."),
    (keywords, {}, "takes **numbers: int, and a model passes arguments by name: name each of them."),
    (silent, {}, "has no docstring: write one, or a description, or no model knows what it is for."),
    (unsayable, {}, ": an annotation that JSON has no word for"),
    (unknown, {}, ": its signature cannot be read: name 'NoSuchType' is not defined."),
    (len, {"description": "Length."}, "takes obj, and a model passes arguments by name"),
    (Place("Oslo"), {}, " is no function but Place."),  # type: ignore[list-item]
    (documented, {"parameters": {"type": "array"}}, 'must be the JSON Schema of an object: type = "object"'),
    (
        documented,
        {"parameters": {"type": "object", "properties": {"b": {}}}},
        "parameters has b, which tests.adapters.tools.test_functions:under_test does not take: "
        "it takes a, kind, where, when, names, anything.",
    ),
]


@pytest.mark.parametrize(("function", "settings", "words"), REFUSED)
def test_what_cannot_be_a_tool_is_refused_in_words(
    tool_of: Callable[..., Tool], function: Callable[..., Any], settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(CannotLoad) as refused:
        tool_of(function, **settings)

    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


# --- dotted paths ---------------------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module of this text into a folder that is importable, and returns its name."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    make_importable([str(tmp_path)])

    def write(text: str) -> str:
        name = f"own_{uuid4().hex}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


@pytest.mark.parametrize("path", ["{}:add", "{}:Sums.add"])
def test_a_function_is_found_in_its_module_or_in_a_class_of_it(module: Callable[[str], str], path: str) -> None:
    name = module("def add(a, b): return a + b\nclass Sums:\n    @staticmethod\n    def add(a, b): return a + b\n")

    assert load(path.format(name))(1, 2) == 3


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("", "no_such_package.tools:add", "no module no_such_package in python_path or among what is installed."),
        ("", "{}.sub:add", "no module {}.sub in python_path or among what is installed."),
        ("", "{}:add", "{} has no add."),
        ("add = 3", "{}:add", "{}:add is no function but int."),
        ("import no_such_package", "{}:add", "{} needs the module no_such_package, which is not installed."),
        ("1 / 0", "{}:add", "importing {} failed: ZeroDivisionError: division by zero."),
        ("raise SystemExit(3)", "{}:add", "importing {} failed: SystemExit: 3."),
        ("def add(:", "{}:add", "importing {} failed: SyntaxError: "),
        ("", "mytools.add", "'mytools.add' names no function: write module:function, as in mytools:add."),
        ("", "my.tools.add", "'my.tools.add' names no function: write module:function, as in my.tools:add."),
        ("", "add", "'add' names no function: write module:function, as in mytools:add."),
        ("", "a b:c", "'a b:c' names no function: write module:function, as in mytools:add."),
        ("", "", "'' names no function: write module:function, as in mytools:add."),
    ],
)
def test_a_path_that_leads_nowhere_is_said_in_one_sentence(
    module: Callable[[str], str], text: str, path: str, words: str
) -> None:
    name = module(text)
    with pytest.raises(CannotLoad) as refused:
        load(path.format(name))

    assert words.format(name) in str(refused.value)


def test_nothing_of_ours_imports_the_operators_code_by_itself(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("print('imported')\n")
    (tmp_path / "g.toml").write_text(
        '[agents.a]\ntools = ["loud"]\n[tools.loud]\nfunction = "loud:loud"\n[predicates]\nloud = "loud:loud"\n'
    )
    code = f"import gateway.app, gateway.toolsets, gateway.config as c; c.load({str(tmp_path / 'g.toml')!r})"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b""
