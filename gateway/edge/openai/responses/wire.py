"""Bodies in the shape of OpenAI's Responses API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from gateway.edge.openai.wire import Extension

# --- requests -------------------------------------------------------------------------------------------------------


class ItemIn(Struct, frozen=True, kw_only=True):
    """Any input item: a message has a role, the others a type. One of which there is only an `id` is kept elsewhere."""

    id: str | None = None
    type: str | None = None
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | list[dict[str, Any]] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[dict[str, Any]] | None = None


class ToolIn(Struct, frozen=True, kw_only=True):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class TextIn(Struct, frozen=True, kw_only=True):
    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ReasoningIn(Struct, frozen=True, kw_only=True):
    effort: str | None = None


class ResponsesRequest(Struct, frozen=True, kw_only=True):
    model: str
    input: str | Annotated[list[ItemIn], Meta(min_length=1, max_length=10_000)]
    instructions: str | None = None
    tools: Annotated[list[ToolIn], Meta(max_length=256)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    user: str | None = None
    service_tier: str | None = None
    text: TextIn | None = None
    reasoning: ReasoningIn | None = None
    metadata: dict[str, Any] | None = None


# --- answers --------------------------------------------------------------------------------------------------------

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(Struct, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    text: str
    annotations: list[Any] = field(default_factory=list[Any])


class Refusal(Struct, frozen=True, kw_only=True, tag_field="type", tag="refusal"):
    refusal: str


class MessageItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    id: str
    role: Literal["assistant"] = "assistant"
    status: ItemStatus
    content: list[OutputText | Refusal]


class CallItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


class InputDetails(Struct, frozen=True):
    cached_tokens: int


class OutputDetails(Struct, frozen=True):
    reasoning_tokens: int


class UsageOut(Struct, frozen=True, kw_only=True):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class Error(Struct, frozen=True):
    code: str
    message: str


class Incomplete(Struct, frozen=True):
    """OpenAI has two reasons, of which one is near enough; `gateway` says the true one."""

    reason: Literal["max_output_tokens", "content_filter"]


class Response(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: Error | None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    model: str
    output: list[MessageItem | CallItem] = []
    parallel_tool_calls: bool = True
    temperature: float | None = None
    tool_choice: str = "auto"
    tools: list[Any] = field(default_factory=list[Any])
    top_p: float | None = None
    usage: UsageOut | None = None
    gateway: Extension | UnsetType = UNSET


class Event(Struct, frozen=True, kw_only=True):
    """Any event of a stream; each kind has some of the fields."""

    type: str
    sequence_number: int
    response: Response | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    item: MessageItem | CallItem | UnsetType = UNSET
    part: OutputText | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    logprobs: list[Any] | UnsetType = UNSET
    code: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    param: UnsetType | None = UNSET
