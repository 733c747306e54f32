"""The operator's own functions as tools. What a function takes is read from its signature: that is the model's schema,
and the arguments arrive as the types that it says."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct

from gateway.adapters.dotted import CannotLoad, load
from gateway.adapters.tools.settings import FunctionSettings
from gateway.adapters.tools.tool import Function, Tool
from gateway.core.errors import ToolFailed
from gateway.core.ports import ToolContext
from gateway.core.run import ToolSpec

log = logging.getLogger(__name__)

CONTEXT = "ctx"
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
REF_TEMPLATE = "#/$defs/{name}"

Words = Callable[[Exception], str]
"""What the model shall read of an error."""


def function_tool(name: str, settings: FunctionSettings) -> Tool:
    """The function at a dotted path as a tool. Raises CannotLoad in one sentence."""
    function = load(settings.function)
    parameters = parameters_of(function, settings.function)
    arguments = arguments_type(parameters, settings.function)
    schema = schema_of(arguments, settings.function)
    spec = ToolSpec(
        name=name,
        description=settings.description or description_of(function, settings.function),
        parameters=schema if settings.parameters is None else checked(settings.parameters, schema, settings.function),
        read_only=settings.read_only,
        needs_approval=settings.needs_approval,
        idempotent=settings.idempotent,
        cacheable=settings.cacheable,
        timeout_seconds=settings.timeout_seconds,
    )
    takes_context = any(parameter.name == CONTEXT for parameter in parameters)
    call = calling(name, function, arguments, takes_context=takes_context)
    if settings.error_words is not None:
        call = worded(call, load(settings.error_words))
    return Tool(spec, as_async_as(function, call))


# --- what it takes --------------------------------------------------------------------------------------------------


def parameters_of(function: Callable[..., Any], path: str) -> list[inspect.Parameter]:
    """The parameters, with their annotations evaluated. Each must have a name that the model can say."""
    try:
        found = list(inspect.signature(function, eval_str=True).parameters.values())
    except Exception as error:
        raise CannotLoad(f"{path}: its signature cannot be read: {error}.") from error
    for parameter in found:
        if parameter.kind not in BY_NAME:
            raise CannotLoad(f"{path} takes {parameter}, and a model passes arguments by name: name each of them.")
    return found


def arguments_type(parameters: list[inspect.Parameter], path: str) -> type[Struct]:
    """A Struct with a field for each parameter but the context."""
    fields = [(each.name, type_of(each), field_of(each)) for each in parameters if each.name != CONTEXT]
    try:
        return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    except (TypeError, ValueError) as error:
        raise CannotLoad(f"{path}: its parameters cannot be used: {error}.") from error


def type_of(parameter: inspect.Parameter) -> Any:
    return Any if parameter.annotation is parameter.empty else parameter.annotation


def field_of(parameter: inspect.Parameter) -> Any:
    """A default that JSON can say is shown to the model; any other one is only used."""
    default = parameter.default
    if default is parameter.empty:
        return msgspec.field(default=NODEFAULT)
    if isinstance(default, str | int | float | bool | None):
        return msgspec.field(default=default)
    return msgspec.field(default_factory=lambda: default)


def schema_of(arguments: type[Struct], path: str) -> dict[str, Any]:
    """The JSON Schema of the arguments: one object that takes no other names. Types that it refers to stand in it."""
    try:
        (root,), definitions = msgspec.json.schema_components([arguments], ref_template=REF_TEMPLATE)
    except Exception as error:
        words = str(error).splitlines()[-1]
        raise CannotLoad(f"{path}: an annotation that JSON has no word for ({words}): use another type.") from error
    schema = definitions.pop(root["$ref"].rpartition("/")[2])
    del schema["title"]
    return {**schema, "$defs": definitions} if definitions else schema


def checked(given: dict[str, Any], derived: dict[str, Any], path: str) -> dict[str, Any]:
    """The operator's own schema: it may say more than the annotations, and must speak of the same parameters."""
    if given.get("type") != "object":
        raise CannotLoad(f'parameters must be the JSON Schema of an object: type = "object", for {path}.')
    for name in given.get("properties", {}):
        if name not in derived["properties"]:
            takes = ", ".join(derived["properties"]) or "nothing"
            raise CannotLoad(f"parameters has {name}, which {path} does not take: it takes {takes}.")
    return given


def description_of(function: Callable[..., Any], path: str) -> str:
    """The first paragraph of the docstring, on one line. A class's or a partial's own docstring is not about it."""
    paragraph = (inspect.getdoc(function) or "").partition("\n\n")[0] if inspect.isroutine(function) else ""
    if not paragraph:
        raise CannotLoad(f"{path} has no docstring: write one, or a description, or no model knows what it is for.")
    return " ".join(paragraph.split())


# --- calling it -----------------------------------------------------------------------------------------------------


def calling(name: str, function: Callable[..., Any], arguments: type[Struct], *, takes_context: bool) -> Function:
    def call(args: dict[str, Any], ctx: ToolContext) -> Any:
        given = converted(name, args, arguments)
        return function(**given, ctx=ctx) if takes_context else function(**given)

    return call


def converted(name: str, args: dict[str, Any], arguments: type[Struct]) -> dict[str, Any]:
    """The arguments as the types that the function says. The schema has let them through, so what is left is what no
    schema says: a date that is none, a number too large."""
    try:
        made = msgspec.convert(args, arguments, str_keys=True)
    except msgspec.ValidationError as error:
        words, _, at = str(error).partition(" - at `$.")
        where = f"{at.rstrip('`')}: " if at else ""
        raise ToolFailed(f"invalid arguments for {name}: {where}{words}.") from error
    return {field: getattr(made, field) for field in arguments.__struct_fields__}


def worded(call: Function, words: Words) -> Function:
    """The call with the operator's own words for what it raises, be it at once or while it is awaited."""

    async def awaited(answer: Awaitable[Any]) -> Any:
        with in_words(words):
            return await answer

    def call_in_words(args: dict[str, Any], ctx: ToolContext) -> Any:
        with in_words(words):
            answer = call(args, ctx)
        return awaited(answer) if inspect.isawaitable(answer) else answer

    return call_in_words


@contextmanager
def in_words(words: Words) -> Iterator[None]:
    """What is in words already stays as it is."""
    try:
        yield
    except ToolFailed:
        raise
    except Exception as error:
        log.info("a tool failed, and error_words says how the model is told", exc_info=True)
        raise ToolFailed(said(words, error), permanent=isinstance(error, PermissionError)) from error


def said(words: Words, error: Exception) -> str:
    """Words that cannot be had must not hide the error that they are about."""
    try:
        text = words(error)
    except Exception:
        log.exception("error_words itself failed")
        text = None
    return text if isinstance(text, str) and text else f"{type(error).__name__}: {error}"


def as_async_as(function: Callable[..., Any], call: Function) -> Function:
    """The toolbox awaits what it sees to be async where it is, and gives anything else a thread."""
    if not inspect.iscoroutinefunction(function):
        return call

    async def call_async(args: dict[str, Any], ctx: ToolContext) -> Any:
        return await call(args, ctx)

    return call_async
