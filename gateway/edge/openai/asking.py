"""From a request in OpenAI's shape to what the service takes. Pure.

A call of a run goes by `run_x:2:0` inside and by `run_x.2.0` here: an id that a client sends back with its output, and
by which the run is found again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gateway.core.errors import BadRequest, CannotRun
from gateway.core.messages import Assistant, Message, Tool, ToolCall, text_of
from gateway.core.run import ToolSpec
from gateway.edge.bodies import decode
from gateway.edge.openai.wire import OWN_FIELDS, AssistantIn, ChatRequest, FunctionIn, MessageIn, ToolIn
from gateway.service.agents import FunctionDefinition, ToolDefinition, chosen_client_tool

CALL_ID = re.compile(r"(run_[0-9a-f]{16,32})\.(\d{1,7})\.(\d{1,7})")
CARRIES_CALL_ID = re.compile(rb'"run_[0-9a-f]{16,32}\.\d{1,7}\.\d{1,7}"')
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


def wire_id(call_id: str) -> str:
    return call_id.replace(":", ".")


def core_id(call_id: str) -> str:
    """Our own id of a call, as it is inside; any other id as it is."""
    return call_id.replace(".", ":") if CALL_ID.fullmatch(call_id) else call_id


class Asked(Struct, frozen=True, kw_only=True):
    """A request, decoded: its transcript with our own ids of calls, and what it has for the provider."""

    request: ChatRequest
    messages: tuple[Message, ...]
    tools: list[ToolDefinition]
    params: dict[str, Any]

    @property
    def stream(self) -> bool:
        return bool(self.request.stream)

    @property
    def metadata(self) -> dict[str, str]:
        """As much of it as a run can keep."""
        given = self.request.metadata or {}
        return {name: value for name, value in given.items() if is_kept(name, value)}


def is_kept(name: str, value: Any) -> bool:
    return isinstance(value, str) and len(name) <= 64 and len(value) <= 512


def asked(body: bytes) -> Asked:
    """Raises BadRequest naming the field, or CannotRun for what no run can do."""
    request = decode(body, ChatRequest)
    if request.functions:
        raise CannotRun("functions are not taken where a run is made of the request: use tools.", param="functions")
    return Asked(
        request=request,
        messages=transcript(request.messages),
        tools=[definition(tool, f"tools[{position}]") for position, tool in enumerate(request.tools or ())],
        params=params_of(msgspec.json.decode(body)),
    )


def params_of(fields: dict[str, Any]) -> dict[str, Any]:
    """Whatever we do not know, untouched. What is null says nothing, and some providers refuse it."""
    return {name: value for name, value in fields.items() if name not in OWN_FIELDS and value is not None}


def definition(tool: ToolIn, where: str) -> ToolDefinition:
    if tool.type != "function" or tool.function is None:
        raise CannotRun(f"{where}: a run takes tools of the type function, not {tool.type}.", param=where)
    return ToolDefinition(type="function", function=function_of(tool.function, where))


def function_of(function: FunctionIn, where: str) -> FunctionDefinition:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", function.name):
        raise BadRequest(f"{where}.function.name: 1 to 64 letters, digits, _ or -.", param=f"{where}.function.name")
    return FunctionDefinition(
        name=function.name,
        description=function.description or "",
        parameters=function.parameters or NO_PARAMETERS,
        strict=function.strict,
    )


def client_tools(tools: Sequence[ToolDefinition]) -> tuple[ToolSpec, ...]:
    """For a conversation, whose tools are all the client's."""
    return tuple(chosen_client_tool(tool, f"tools[{position}]") for position, tool in enumerate(tools))


# --- the transcript -------------------------------------------------------------------------------------------------


def transcript(messages: Sequence[MessageIn]) -> tuple[Message, ...]:
    """The messages as a run has them: calls by our ids, and answers with the name of their tool."""
    names: dict[str, str] = {}
    made: list[Message] = []
    for position, message in enumerate(messages):
        match message:
            case AssistantIn():
                reply = assistant(message, f"messages[{position}]")
                names |= {call.id: call.function.name for call in reply.tool_calls}
                made.append(reply)
            case Tool():
                call_id = core_id(message.tool_call_id)
                made.append(replace(message, tool_call_id=call_id, name=message.name or names.get(call_id)))
            case _:
                made.append(message)
    return tuple(made)


def assistant(message: AssistantIn, where: str) -> Assistant:
    calls: list[ToolCall] = []
    for call in message.tool_calls or ():
        if call.function is None:
            raise CannotRun(f"{where}: a run takes calls of the type function, not {call.type}.", param=where)
        calls.append(ToolCall(core_id(call.id), "function", call.function))
    return Assistant(message.content, tuple(calls), message.refusal, message.reasoning_content, message.name)


class Outputs(Struct, frozen=True):
    """What came back from calls of a run, by our ids, and the messages behind that."""

    run_id: str
    texts: dict[str, str]
    more: tuple[Message, ...]


def outputs_of(messages: Sequence[Message]) -> Outputs | None:
    """The outputs that the transcript ends with, if they are of a run's calls."""
    last = max((at for at, message in enumerate(messages) if isinstance(message, Assistant)), default=-1)
    behind = messages[last + 1 :]
    tools = [message for message in behind if isinstance(message, Tool)]
    run_ids = {run_id for message in tools if (run_id := run_of(message.tool_call_id))}
    if not run_ids:
        return None
    if len(run_ids) > 1:
        raise BadRequest(f"the outputs are of {len(run_ids)} runs: {', '.join(sorted(run_ids))}.", param="messages")
    return Outputs(
        run_ids.pop(),
        {message.tool_call_id: text_of(message.content) for message in tools},
        tuple(message for message in behind if not isinstance(message, Tool)),
    )


def run_of(call_id: str) -> str | None:
    """The run that a call is of, by our id inside."""
    run_id, _, rest = call_id.partition(":")
    return run_id if rest and CALL_ID.fullmatch(wire_id(call_id)) else None
