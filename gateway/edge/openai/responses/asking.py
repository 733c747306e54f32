"""From a request of the Responses API to the same order that a chat completion makes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.core.errors import BadRequest, CannotRun, NotFound
from gateway.core.messages import Assistant, Content, Developer, Function, Message, System, Tool, ToolCall, User
from gateway.edge.openai.asking import Asked, core_id, definition
from gateway.edge.openai.responses.wire import ItemIn, ResponsesRequest, ToolIn
from gateway.edge.openai.wire import ChatRequest, FunctionIn
from gateway.edge.openai.wire import ToolIn as ChatToolIn

RESPONSE_ID = re.compile(r"resp_([0-9a-f]{16,32})_(\d{1,7})")
SAME_NAMES = ("parallel_tool_calls", "temperature", "top_p", "user", "service_tier", "metadata")
ROLES = {"user": User, "system": System, "developer": Developer}


def asked(request: ResponsesRequest) -> Asked:
    """Raises BadRequest naming the field, or CannotRun for what no run can do."""
    chat = ChatRequest(model=request.model, messages=[], stream=request.stream, metadata=request.metadata)
    tools = [definition(chat_tool(tool), f"tools[{position}]") for position, tool in enumerate(request.tools or ())]
    return Asked(request=chat, messages=messages_of(request), tools=tools, params=params_of(request))


def previous_of(request: ResponsesRequest) -> tuple[str, int] | None:
    """The run of the response that this one follows, and how many turns it had then."""
    if request.previous_response_id is None:
        return None
    match = RESPONSE_ID.fullmatch(request.previous_response_id)
    if match is None:
        raise NotFound(f"there is no response {request.previous_response_id} here.", param="previous_response_id")
    return f"run_{match[1]}", int(match[2])


def chat_tool(tool: ToolIn) -> ChatToolIn:
    if tool.name is None:
        return ChatToolIn(type=tool.type)
    function = FunctionIn(name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)
    return ChatToolIn(type=tool.type, function=function)


def params_of(request: ResponsesRequest) -> dict[str, Any]:
    """The fields of a chat completion that say the same."""
    text, reasoning = request.text, request.reasoning
    params: dict[str, Any] = {name: getattr(request, name) for name in SAME_NAMES}
    params["max_completion_tokens"] = request.max_output_tokens
    params["reasoning_effort"] = reasoning and reasoning.effort
    params["response_format"] = text and response_format(text.format)
    params["verbosity"] = text and text.verbosity
    params["tool_choice"] = tool_choice(request.tool_choice)
    return {name: value for name, value in params.items() if value is not None}


def response_format(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if given is None or given.get("type") == "text":
        return None
    if given.get("type") != "json_schema":
        return dict(given)
    return {"type": "json_schema", "json_schema": {name: value for name, value in given.items() if name != "type"}}


def tool_choice(given: str | Mapping[str, Any] | None) -> Any:
    if isinstance(given, Mapping) and given.get("type") == "function":
        return {"type": "function", "function": {"name": given.get("name")}}
    return given


# --- items ----------------------------------------------------------------------------------------------------------


def messages_of(request: ResponsesRequest) -> tuple[Message, ...]:
    items = [ItemIn(role="user", content=request.input)] if isinstance(request.input, str) else request.input
    messages: list[Message] = [System(request.instructions)] if request.instructions else []
    names: dict[str, str] = {}
    for position, item in enumerate(items):
        add(messages, item, names, f"input[{position}]")
    return tuple(messages)


def add(messages: list[Message], item: ItemIn, names: dict[str, str], where: str) -> None:
    match item.type or ("message" if item.role else None):
        case "message" if item.role is not None:
            messages.append(message(item, where))
        case "function_call" if item.call_id is not None and item.name is not None:
            names[core_id(item.call_id)] = item.name
            add_call(messages, ToolCall(core_id(item.call_id), "function", Function(item.name, item.arguments or "{}")))
        case "function_call_output" if item.call_id is not None:
            call_id = core_id(item.call_id)
            messages.append(Tool(call_id, names.get(call_id), content(item.output or "", f"{where}.output")))
        case "reasoning":
            return  # the provider's own, and of no use to another API
        case "message" | "function_call" | "function_call_output" as kind:
            raise BadRequest(f"{where}: a field of {kind} is missing.", param=where)
        case kind:
            raise CannotRun(
                f"{where}: a run takes messages, function calls and their outputs, not {kind}.", param=where
            )


def message(item: ItemIn, where: str) -> Message:
    said = content(item.content or "", f"{where}.content")
    return Assistant(said) if item.role == "assistant" else ROLES[item.role or "user"](said)


def add_call(messages: list[Message], call: ToolCall) -> None:
    """Calls that stand together, and the text before them, are of one reply."""
    last = messages[-1] if messages else None
    if isinstance(last, Assistant):
        messages[-1] = Assistant(last.content or None, (*last.tool_calls, call))
    else:
        messages.append(Assistant(None, (call,)))


def content(given: str | Sequence[Mapping[str, Any]], where: str) -> Content:
    """Text where all of it is text, which is what every provider takes."""
    if isinstance(given, str):
        return given
    parts = [part_of(part, f"{where}[{position}]") for position, part in enumerate(given)]
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def part_of(part: Mapping[str, Any], where: str) -> dict[str, Any]:
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return {"type": "text", "text": str(part.get("text") or "")}
        case "refusal":
            return {"type": "text", "text": str(part.get("refusal") or "")}
        case "input_image":
            image = {"url": part.get("image_url"), "detail": part.get("detail")}
            return {"type": "image_url", "image_url": {name: value for name, value in image.items() if value}}
        case "input_file":
            return {"type": "file", "file": {name: value for name, value in part.items() if name != "type"}}
        case str():
            return dict(part)
        case _:
            raise BadRequest(f"{where}.type is missing: it says what the part is, input_text for text.", param=where)
