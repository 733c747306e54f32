"""Bodies in OpenAI's chat-completions shape. Requests are read leniently: what is not named here is the provider's."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from gateway.core.messages import Content, Developer, Function, System, Tool, User
from gateway.core.run import RUN_FIELDS, Interruption, Status
from gateway.edge.wire import PendingApproval

# --- requests -------------------------------------------------------------------------------------------------------


class CallIn(Struct, frozen=True, kw_only=True):
    id: str
    type: str = "function"
    function: Function | None = None


class AssistantIn(Struct, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    """A reply as clients keep it: with more fields than it had, or with fewer."""

    content: Content | None = None
    tool_calls: list[CallIn] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    name: str | None = None


MessageIn = System | Developer | User | AssistantIn | Tool


class FunctionIn(Struct, frozen=True, kw_only=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolIn(Struct, frozen=True, kw_only=True):
    type: str
    function: FunctionIn | None = None


class StreamOptions(Struct, frozen=True, kw_only=True):
    """`include_progress` is ours: chunks that tell of tools while they run."""

    include_usage: bool | None = None
    include_progress: bool | None = None


class GatewayOptions(Struct, frozen=True, kw_only=True):
    """What only this gateway reads: the run to join."""

    run_id: str | None = None


class Peek(Struct, frozen=True, kw_only=True):
    """As much of a request as must be known to send it on."""

    model: str
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    gateway: GatewayOptions | None = None


class ChatRequest(Struct, frozen=True, kw_only=True):
    model: str
    messages: Annotated[list[MessageIn], Meta(min_length=1, max_length=10_000)]
    tools: Annotated[list[ToolIn], Meta(max_length=256)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    functions: list[Any] | None = None
    metadata: dict[str, Any] | None = None
    gateway: GatewayOptions | None = None

    @property
    def options(self) -> StreamOptions:
        return self.stream_options or StreamOptions()


OWN_FIELDS = RUN_FIELDS | {"functions", "gateway"}
"""What a run fills in itself, and what only this gateway reads or refuses. All others are its `params`."""


# --- answers --------------------------------------------------------------------------------------------------------

Finish = Literal["stop", "length", "tool_calls", "content_filter"]


class Extension(Struct, frozen=True, kw_only=True):
    """What OpenAI's shape has no place for: which run this was, how it ended, why, and what to do next."""

    run_id: str
    status: Status
    reason: str | None
    interruption: Interruption | None
    pending_approvals: list[PendingApproval]
    turns: int
    cost_usd: Decimal
    why: str | None
    next: str | None


class PromptDetails(Struct, frozen=True):
    cached_tokens: int


class CompletionDetails(Struct, frozen=True):
    reasoning_tokens: int


class UsageOut(Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class CallOut(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["function"] = "function"
    function: Function


class MessageOut(Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: Content | None
    refusal: str | None = None
    tool_calls: list[CallOut] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET


class Choice(Struct, frozen=True, kw_only=True):
    index: int = 0
    message: MessageOut
    logprobs: None = None
    finish_reason: Finish


class Completion(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: UsageOut
    gateway: Extension


class CallDelta(Struct, frozen=True, kw_only=True):
    index: int
    id: str
    type: Literal["function"] = "function"
    function: Function


class Delta(Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: Content | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
    tool_calls: list[CallDelta] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True, kw_only=True):
    index: int = 0
    delta: Delta
    logprobs: None = None
    finish_reason: Finish | None = None


class Progress(Struct, frozen=True, kw_only=True):
    """A tool that runs here, while it runs."""

    type: Literal["tool_start", "tool_progress", "tool_result"]
    tool_name: str
    label: str | UnsetType = UNSET
    ok: bool | UnsetType = UNSET


class ProgressExtension(Struct, frozen=True, kw_only=True):
    run_id: str
    progress: Progress


class Chunk(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: UsageOut | UnsetType | None = UNSET
    gateway: Extension | ProgressExtension | UnsetType = UNSET


class Model(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str


class ModelList(Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Model] = field(default_factory=list[Model])
