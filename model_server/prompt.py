"""Renders a conversation for the model, as segments. Pure.

The templates are written here and not read from the weights: the one inside the official file doubles the braces of
its example of a call, and small models imitate that.

A segment says how its text may be read. Only `Control` becomes control tokens, so nothing that a user, a tool or a
client wrote can end a turn or begin one. `Spoken` marks what the model itself said, whose exact tokens may be
remembered (see memory.py).
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

from msgspec import Struct

from model_server.wire import Message, Tool, ToolCall

Template = Literal["qwen2.5", "chatml"]

QWEN_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
CHATML_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"

START, END = "<|im_start|>", "<|im_end|>"

_TOOLS_BEFORE = """\


# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>"""

_TOOLS_AFTER = """\

</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""


class Control(Struct, frozen=True, tag=True):
    """One control token, by its name."""

    text: str


class Text(Struct, frozen=True, tag=True):
    """Never read as control tokens, whatever it contains."""

    text: str


class Said(Struct, frozen=True):
    """What a client was told in one turn of the assistant: enough to recognise that turn when it comes back.

    Without the calls' ids, which a client may rewrite. Arguments are compared as data, not as text.
    """

    content: str
    calls: tuple[tuple[str, str], ...] = ()


class Spoken(Struct, frozen=True, tag=True):
    """What the assistant said, between its header and its end."""

    text: str
    said: Said


Segment = Control | Text | Spoken


def takes_tools(template: Template) -> bool:
    return template == "qwen2.5"


def render(messages: Sequence[Message], tools: Sequence[Tool], template: Template) -> list[Segment]:
    """The whole prompt, up to where the assistant is to speak."""
    system, rest = _split_system(messages, template)
    segments = list(_turn("system", system + (_tool_list(tools) if tools else "")))
    for is_tool, group in groupby(rest, lambda message: message.role == "tool"):
        run = list(group)
        segments += _tool_results(run) if is_tool else [piece for message in run for piece in _message(message)]
    return [*segments, *_header("assistant")]


def said(content: str | None, calls: Iterable[ToolCall]) -> Said:
    return Said((content or "").strip(), tuple((call.function.name, _canonical(call)) for call in calls))


def dumped(value: object) -> str:
    """JSON as the model saw it in training: spaces after `,` and `:`, keys as they came, nothing escaped."""
    return json.dumps(value, ensure_ascii=False)


# ── the parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _split_system(messages: Sequence[Message], template: Template) -> tuple[str, Sequence[Message]]:
    if messages[0].role in ("system", "developer"):
        return messages[0].text, messages[1:]
    return (QWEN_SYSTEM if template == "qwen2.5" else CHATML_SYSTEM), messages


def _tool_list(tools: Sequence[Tool]) -> str:
    return _TOOLS_BEFORE + "".join("\n" + dumped(_tool(tool)) for tool in tools) + _TOOLS_AFTER


def _tool(tool: Tool) -> dict[str, Any]:
    """Always the same keys in the same order, so that clients that write them differently share a cached prefix."""
    function: dict[str, Any] = {"name": tool.function.name}
    if tool.function.description:
        function["description"] = tool.function.description
    function["parameters"] = tool.function.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def _header(role: str) -> Iterator[Segment]:
    yield Control(START)
    yield Text(f"{role}\n")


def _turn(role: str, text: str) -> Iterator[Segment]:
    yield Control(START)
    yield Text(f"{role}\n{text}")
    yield from _end()


def _end() -> Iterator[Segment]:
    yield Control(END)
    yield Text("\n")


def _message(message: Message) -> Iterator[Segment]:
    if message.role == "assistant":
        calls = message.tool_calls or ()
        yield from _header("assistant")
        yield Spoken(_spoken(message.text, calls), said(message.text, calls))
        yield from _end()
    else:
        yield from _turn("system" if message.role == "developer" else message.role, message.text)


def _spoken(content: str, calls: Iterable[ToolCall]) -> str:
    return "\n".join([*([content] if content else []), *map(_call, calls)])


def _call(call: ToolCall) -> str:
    return f'<tool_call>\n{{"name": {dumped(call.function.name)}, "arguments": {_arguments(call)}}}\n</tool_call>'


def _arguments(call: ToolCall) -> str:
    """Strings on the wire, objects in the prompt. What is not JSON stays as the model wrote it."""
    try:
        return dumped(json.loads(call.function.arguments or "{}"))
    except (ValueError, RecursionError):
        return call.function.arguments


def _canonical(call: ToolCall) -> str:
    try:
        return json.dumps(json.loads(call.function.arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return call.function.arguments


def _tool_results(messages: Iterable[Message]) -> list[Segment]:
    """Results that follow each other share one turn of the user."""
    blocks = "\n".join(f"<tool_response>\n{message.text}\n</tool_response>" for message in messages)
    return list(_turn("user", blocks))
