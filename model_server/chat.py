"""From a chat request to a job: what is refused, what the model is told, and what holds it to a form. No I/O."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from model_server import grammar
from model_server.errors import Refused
from model_server.jobs import Constraint, Free, Governed, Job, Sampling, WhenCalling
from model_server.memory import Remembered, Tokenise, tokens_of
from model_server.prompt import Template, Text, render, takes_tools
from model_server.tool_calls import CallReader
from model_server.wire import ChatRequest, JsonObject, JsonSchema, NamedChoice, Tool

SEED_BITS = 64


class Host(Struct, frozen=True):
    """What is known of the model that is served."""

    name: str
    template: Template
    context_tokens: int


class Chat(Struct, frozen=True):
    """A request, understood: the job, and how its text is to be read."""

    job: Job
    reader: CallReader | None


def understand(request: ChatRequest, host: Host, number: int, tokenise: Tokenise, remembered: Remembered) -> Chat:
    """Raises Refused for what cannot be done, before anything is computed."""
    _refuse_unknown(request, host)
    tools = _tools(request, host)
    may_call = bool(tools) and request.tool_choice != "none"
    reader = CallReader(frozenset(tool.function.name for tool in tools)) if may_call else None
    constraint = _constraint(request, tools, reader)
    prompt = tokens_of(render(request.messages, tools, host.template), tokenise, remembered)
    _refuse_overflow(len(prompt), host)
    job = Job(
        id=number,
        prompt=tuple(prompt),
        tokens_max=_tokens_max(request, host.context_tokens - len(prompt)),
        sampling=_sampling(request),
        stops=request.stops,
        constraint=constraint,
        banned=_banned(tools, may_call, tokenise),
        past_the_end=request.ignore_eos,
    )
    return Chat(job, reader)


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────────


def _refuse_unknown(request: ChatRequest, host: Host) -> None:
    if request.model not in (None, "", host.name):
        words = f"This server has one model, {host.name}, and not {request.model!r}."
        raise Refused(404, words, param="model", code="model_not_found")
    for name, asked in _unsupported(request):
        if asked:
            raise Refused(400, f"{name} is not supported by this server.", param=name, code="unsupported_parameter")
    for index, message in enumerate(request.messages):
        if isinstance(message.content, tuple) and any(part.type != "text" for part in message.content):
            raise Refused(
                400, "This model reads text only.", param=f"messages[{index}].content", code="unsupported_content"
            )


def _unsupported(request: ChatRequest) -> Sequence[tuple[str, object]]:
    """Fields that would change the reply. Ignoring them would be a lie."""
    return (
        ("n", request.n not in (None, 1)),
        ("logprobs", request.logprobs),
        ("logit_bias", request.logit_bias),
        ("frequency_penalty", request.frequency_penalty),
        ("presence_penalty", request.presence_penalty),
    )


def _refuse_overflow(prompt_tokens: int, host: Host) -> None:
    if prompt_tokens >= host.context_tokens:
        words = f"The prompt has {prompt_tokens} tokens, and the context {host.context_tokens}, with the reply."
        raise Refused(400, words, param="messages", code="context_length_exceeded")


# ── what is asked for ─────────────────────────────────────────────────────────────────────────────────────────────────


def _tools(request: ChatRequest, host: Host) -> tuple[Tool, ...]:
    """Also with tool_choice none, so that the prompt begins as in the turns before and is found in the cache."""
    tools = request.tools or ()
    if not takes_tools(host.template) and request.tool_choice != "none" and tools:
        raise Refused(400, f"{host.name} was not trained to call tools.", param="tools", code="tools_unsupported")
    if isinstance(request.tool_choice, NamedChoice) or request.tool_choice == "required":
        _named(request.tool_choice, tools)
    return tools if takes_tools(host.template) else ()


def _named(choice: object, tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """The tools of which one must be called."""
    found = tuple(
        tool for tool in tools if not isinstance(choice, NamedChoice) or tool.function.name == choice.function.name
    )
    if not found:
        raise Refused(
            400, "tool_choice asks for a tool that is not in tools.", param="tool_choice", code="invalid_tool_choice"
        )
    return found


def _constraint(request: ChatRequest, tools: tuple[Tool, ...], reader: CallReader | None) -> Constraint:
    parallel = request.parallel_tool_calls is not False
    match request.tool_choice:
        case NamedChoice() as choice:
            return Governed(grammar.calls(_named(choice, tools), parallel=False, only_tagged=True))
        case "required":
            return Governed(grammar.calls(tools, parallel=parallel, only_tagged=True))
    callable_tools = tools if reader else ()
    match request.response_format:
        case JsonSchema(wanted):
            strict = bool(wanted.strict)
            return Governed(grammar.json_schema(wanted.schema, strict=strict, tools=callable_tools, parallel=parallel))
        case JsonObject():
            return Governed(grammar.json_schema({"type": "object"}, tools=callable_tools, parallel=parallel))
    if reader is None:
        return Free()
    grammar.calls(tools)  # refuses schemas that no grammar can be made of now, and not in the middle of a reply
    return WhenCalling(reader, tools, parallel)


def _tokens_max(request: ChatRequest, room: int) -> int:
    """What is asked for, as far as there is room: clients ask for thousands to be on the safe side."""
    asked = request.max_completion_tokens or request.max_tokens
    return min(asked, room) if asked else room


def _sampling(request: ChatRequest) -> Sampling:
    seed = None if request.seed is None else request.seed % 2**SEED_BITS
    top_p = 1.0 if request.top_p is None else request.top_p
    return Sampling(request.temperature or 0.0, top_p, seed)


def _banned(tools: Sequence[Tool], may_call: bool, tokenise: Callable[[Text], list[int]]) -> tuple[int, ...]:
    """With tools that must not be called, the tag of a call is never written, if it is one token."""
    tag = tokenise(Text("<tool_call>")) if tools and not may_call else ()
    return tuple(tag) if len(tag) == 1 else ()
