"""The OpenAI chat-completions shapes: what is read from a request and what is written in a reply. No I/O.

Requests are read leniently (unknown fields are ignored, clients send many); replies are written in full.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import assel
import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

CREATED = (
    1_735_689_600  # 2025-01-01T00:00:00Z. A constant, since a reply is a function of its request and not of the time
)
FINGERPRINT = "fp_scripted"
PIECE_CHARS_MAX = 12  # of one streamed delta


class Refused(Exception):
    """A request that is answered with an error, in the shape of OpenAI's: `{"error": {message, type, param, code}}`."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.problem = Problem(message, "invalid_request_error", param, code)


class Problem(Struct, frozen=True):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(Struct, frozen=True):
    error: Problem


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Part(Struct, frozen=True):
    """One part of a content given as a list. Parts other than text have no text."""

    type: str
    text: str = ""


class Message(Struct, frozen=True):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | tuple[Part, ...] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, tuple):
            return "".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class ChatRequest(Struct, frozen=True):
    """What the scripts read of a request. The cap on a reply's tokens has two names."""

    model: str
    messages: Annotated[tuple[Message, ...], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None

    @property
    def turn(self) -> int:
        """How often the model has spoken. The only state there is, and the client holds it."""
        return sum(message.role == "assistant" for message in self.messages)

    @property
    def tool_text(self) -> str:
        """All that tools have answered so far."""
        return "\n".join(message.text for message in self.messages if message.role == "tool")

    @property
    def last_tool_text(self) -> str:
        """What the last tool answered."""
        return next((message.text for message in reversed(self.messages) if message.role == "tool"), "")

    @property
    def tokens_max(self) -> int | None:
        """The most tokens that the reply may have; None is any number."""
        return min((cap for cap in (self.max_tokens, self.max_completion_tokens) if cap is not None), default=None)

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class Transcript(Struct, frozen=True):
    """What is counted of a request: messages and tools as the client wrote them, every field in its order."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None


_request_decoder = msgspec.json.Decoder(ChatRequest)
_transcript_decoder = msgspec.json.Decoder(Transcript)
_FIELD_IN_MESSAGE = re.compile(r"required field `([^`]*)`")
_PATH_IN_MESSAGE = re.compile(r"at `\$\.?([^`]*)`")


def decode_request(body: bytes) -> tuple[ChatRequest, Transcript]:
    """Raises Refused (400), naming the field, for what is not a chat request."""
    try:
        return _request_decoder.decode(body), _transcript_decoder.decode(body)
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


class Function(Struct, frozen=True):
    name: str
    arguments: str


class ToolCall(Struct, frozen=True, kw_only=True):
    """Written in this order, which is the order that is counted."""

    id: str
    type: Literal["function"] = "function"
    function: Function


Tokens = Annotated[int, Meta(ge=0)]
Parts = tuple[dict[str, Any], ...]


class Counts(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The tokens of an exchange as they were reported once, to be reported again instead of a count of our own."""

    prompt_tokens: Tokens
    completion_tokens: Tokens
    cached_tokens: Tokens = 0
    reasoning_tokens: Tokens = 0
    total_tokens: Tokens | None = None


class Reply(Struct, frozen=True):
    """What the model says: prose (a text, or the parts of one), or calls of tools. `stated_finish` and `usage` are said
    instead of what follows from the reply."""

    content: str | Parts | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    refusal: str | None = None
    stated_finish: str | None = None
    usage: Counts | None = None
    ignores_max_tokens: bool = False

    @property
    def text(self) -> str:
        """All prose of it that is counted."""
        content = self.content or ""
        parts = (content,) if isinstance(content, str) else (str(part.get("text", "")) for part in content)
        return "".join((*parts, self.refusal or ""))

    @property
    def finish(self) -> str:
        return self.stated_finish or ("tool_calls" if self.tool_calls else "stop")


class PromptTokensDetails(Struct, frozen=True):
    cached_tokens: int = 0


class CompletionTokensDetails(Struct, frozen=True):
    reasoning_tokens: int


class Usage(Struct, frozen=True):
    """Reasoning tokens are said only where there are any."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails = PromptTokensDetails()
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET


class Answer(Struct, frozen=True):
    """A reply and all that is said about it, not yet plain or streamed. What is UNSET was left out by a fault."""

    id: str
    model: str
    reply: Reply
    usage: Usage | UnsetType
    finish: str | UnsetType
    indexed: bool = True


class AssistantMessage(Struct, frozen=True):
    """Clients append it to their transcript as it is, so it has no field more than must be counted."""

    role: Literal["assistant"]
    content: str | Parts | None
    tool_calls: tuple[ToolCall, ...] | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET


class Choice(Struct, frozen=True, kw_only=True):
    index: int = 0
    message: AssistantMessage
    logprobs: None = None
    finish_reason: str | UnsetType


class Completion(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int = CREATED
    model: str
    choices: tuple[Choice, ...]
    usage: Usage | UnsetType
    system_fingerprint: str = FINGERPRINT


class FunctionDelta(Struct, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    arguments: str


class ToolCallDelta(Struct, frozen=True, kw_only=True):
    index: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta


class Delta(Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | Parts | UnsetType | None = UNSET
    tool_calls: tuple[ToolCallDelta, ...] | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True, kw_only=True):
    index: int = 0
    delta: Delta
    logprobs: None = None
    finish_reason: str | None = None


class Chunk(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int = CREATED
    model: str
    system_fingerprint: str = FINGERPRINT
    choices: tuple[ChunkChoice, ...]
    usage: Usage | UnsetType | None = UNSET


class Model(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int = CREATED
    owned_by: str = "scripted"


class ModelList(Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: tuple[Model, ...]


def completion(answer: Answer) -> Completion:
    """The plain reply."""
    said = answer.reply
    message = AssistantMessage(
        "assistant", said.content, said.tool_calls or UNSET, said.refusal or UNSET, said.reasoning or UNSET
    )
    choice = Choice(message=message, finish_reason=answer.finish)
    return Completion(id=answer.id, model=answer.model, choices=(choice,), usage=answer.usage)


def chunks(answer: Answer, include_usage: bool) -> Iterator[Chunk]:
    """The same reply in deltas. When usage is asked for, every chunk has the field and the last one has the figures."""
    unknown = None if include_usage else UNSET
    for choice in _choices(answer):
        yield Chunk(id=answer.id, model=answer.model, choices=(choice,), usage=unknown)
    if include_usage and answer.usage is not UNSET:
        yield Chunk(id=answer.id, model=answer.model, choices=(), usage=answer.usage)


def event(data: bytes) -> bytes:
    """One server-sent event."""
    return assel.send(assel.Event(data=data.decode()))


def _choices(answer: Answer) -> Iterator[ChunkChoice]:
    content = answer.reply.content
    yield ChunkChoice(delta=Delta(role="assistant", content=None if content is None else ""))
    for piece in _pieces(answer.reply.reasoning or ""):
        yield ChunkChoice(delta=Delta(reasoning_content=piece))
    for said in _pieces(content or "") if not isinstance(content, tuple) else (content,):
        yield ChunkChoice(delta=Delta(content=said))
    for piece in _pieces(answer.reply.refusal or ""):
        yield ChunkChoice(delta=Delta(refusal=piece))
    for index, call in enumerate(answer.reply.tool_calls):
        for delta in _call_deltas(call, index if answer.indexed else UNSET):
            yield ChunkChoice(delta=Delta(tool_calls=(delta,)))
    if answer.finish is not UNSET:
        yield ChunkChoice(delta=Delta(), finish_reason=answer.finish)


def _call_deltas(call: ToolCall, index: int | UnsetType) -> Iterator[ToolCallDelta]:
    opening = FunctionDelta(name=call.function.name, arguments="")
    yield ToolCallDelta(index=index, id=call.id, type="function", function=opening)
    for piece in _pieces(call.function.arguments):
        yield ToolCallDelta(index=index, function=FunctionDelta(arguments=piece))


def _pieces(text: str) -> Iterator[str]:
    """At least two pieces of any text that has two characters: a client that keeps only one of them is found out."""
    size = max(1, min(PIECE_CHARS_MAX, (len(text) + 1) // 2))
    return (text[start : start + size] for start in range(0, len(text), size))
