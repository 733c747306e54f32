"""The OpenAI chat-completions shapes: what is read from a request and what is written in a reply. No I/O.

Unknown fields of a request are ignored, since clients send many. Fields that would change the reply and that this
server does not have are refused by `chat.py`, never ignored in silence.
"""

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from model_server.errors import Refused

T = TypeVar("T", bound=Struct)

NAME_CHARS_MAX = 128
STOPS_MAX = 16
TOOLS_MAX = 128
MESSAGES_MAX = 10_000

# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Part(Struct, frozen=True):
    """One part of a content given as a list. Only text can be read by these models."""

    type: str
    text: str = ""


class CalledFunction(Struct, frozen=True):
    name: str
    arguments: str = ""


class ToolCall(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Struct, frozen=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[Part, ...] | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, tuple):
            return "".join(part.text for part in self.content)
        return self.content or ""


class FunctionSpec(Struct, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Struct, frozen=True):
    type: Literal["function"]
    function: FunctionSpec


class FunctionName(Struct, frozen=True):
    name: str


class NamedChoice(Struct, frozen=True):
    type: Literal["function"]
    function: FunctionName


class PlainText(Struct, frozen=True, tag="text"):
    pass


class JsonObject(Struct, frozen=True, tag="json_object"):
    pass


class NamedSchema(Struct, frozen=True):
    schema: dict[str, Any] | bool = True
    name: str = ""
    strict: bool | None = None


class JsonSchema(Struct, frozen=True, tag="json_schema"):
    json_schema: NamedSchema


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class ChatRequest(Struct, frozen=True):
    """`ignore_eos`, as llama.cpp's server and vLLM have it: a reply goes on to `max_tokens`, so that two servers can be
    made to do the same work."""

    messages: Annotated[tuple[Message, ...], Meta(min_length=1, max_length=MESSAGES_MAX)]
    model: str | None = None
    tools: Annotated[tuple[Tool, ...], Meta(max_length=TOOLS_MAX)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: PlainText | JsonObject | JsonSchema | None = None
    stop: str | Annotated[tuple[str, ...], Meta(max_length=STOPS_MAX)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    logprobs: bool | None = None
    logit_bias: dict[str, float] | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    ignore_eos: bool = False

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def stops(self) -> tuple[str, ...]:
        given = (self.stop,) if isinstance(self.stop, str) else self.stop or ()
        return tuple(stop for stop in given if stop)


class TokenizeRequest(Struct, frozen=True):
    content: str
    parse_special: bool = False


_chat_decoder = msgspec.json.Decoder(ChatRequest)
_tokenize_decoder = msgspec.json.Decoder(TokenizeRequest)
_FIELD_IN_MESSAGE = re.compile(r"required field `([^`]*)`")
_PATH_IN_MESSAGE = re.compile(r"at `\$\.?([^`]*)`")


def decode_chat(body: bytes) -> ChatRequest:
    """Raises Refused (400), naming the field, for what is not a chat request."""
    return _decode(_chat_decoder, body)


def decode_tokenize(body: bytes) -> TokenizeRequest:
    return _decode(_tokenize_decoder, body)


def _decode(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Refused(400, f"{error}.", param=_field(str(error)), code="invalid_field") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(400, f"The body is not valid JSON: {error}.", code="invalid_json") from None
    except RecursionError:
        raise Refused(400, "The body is nested too deeply.", code="invalid_json") from None


def _field(message: str) -> str | None:
    """`messages[0].role`, from the words of a validation error: the path to an object, and the name it lacks."""
    found = [pattern.search(message) for pattern in (_PATH_IN_MESSAGE, _FIELD_IN_MESSAGE)]
    return ".".join(match[1] for match in found if match) or None


# ── replies ───────────────────────────────────────────────────────────────────────────────────────────────────────────

Finish = Literal["stop", "length", "tool_calls"]


class PromptTokensDetails(Struct, frozen=True):
    cached_tokens: int = 0


class Usage(Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails = PromptTokensDetails()


class Timings(Struct, frozen=True, kw_only=True):
    """Where the time of a reply went. A rate is null when there was nothing to measure it by."""

    queue_ms: float
    ttft_ms: float
    prompt_ms: float
    predicted_ms: float
    prefill_tokens: int
    prefill_tokens_per_second: float | None
    decode_tokens_per_second: float | None


class AssistantMessage(Struct, frozen=True):
    role: Literal["assistant"]
    content: str | None
    tool_calls: tuple[ToolCall, ...] | UnsetType = UNSET


class Choice(Struct, frozen=True, kw_only=True):
    index: int = 0
    message: AssistantMessage
    logprobs: None = None
    finish_reason: Finish


class Completion(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: tuple[Choice, ...]
    usage: Usage
    timings: Timings
    system_fingerprint: str


class FunctionDelta(Struct, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    arguments: str


class ToolCallDelta(Struct, frozen=True, kw_only=True):
    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta


class Delta(Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    tool_calls: tuple[ToolCallDelta, ...] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True, kw_only=True):
    index: int = 0
    delta: Delta
    logprobs: None = None
    finish_reason: Finish | None = None


class Chunk(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    choices: tuple[ChunkChoice, ...]
    usage: Usage | UnsetType | None = UNSET
    timings: Timings | UnsetType = UNSET


class ServedModel(Struct, frozen=True, kw_only=True):
    """One entry of `/v1/models`. What follows `owned_by` is more than OpenAI says, and tells which weights answer."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "model_server"
    file: str
    size_bytes: int
    quantisation: str
    context_tokens: int
    takes_tools: bool


class ModelList(Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: tuple[ServedModel, ...]


class Tokens(Struct, frozen=True):
    tokens: tuple[int, ...]
    count: int


class Ready(Struct, frozen=True):
    """The body of `/readyz`. `progress` goes from 0 to 1 while the weights load."""

    status: Literal["loading", "ready", "failed"]
    model: str
    progress: float = field(default=0.0)
