"""A reply cut to the tokens that its request allows, as providers cut: in the middle of a word or of an argument."""

from msgspec.structs import replace

from scripted import tokens
from scripted.wire import Reply, ToolCall


def completion_tokens(said: Reply) -> int:
    """What the reply costs by our own count, its reasoning included."""
    return tokens.text_tokens(said.reasoning or "") + tokens.completion_tokens(said.text, said.tool_calls)


def capped(said: Reply, tokens_max: int | None) -> Reply:
    """The reply with at most so many tokens. One that is cut says so: its finish is `length`."""
    if tokens_max is None or said.ignores_max_tokens or _size(said) <= tokens_max:
        return said
    usage = said.usage and replace(
        said.usage,
        completion_tokens=tokens_max,
        reasoning_tokens=min(said.usage.reasoning_tokens, tokens_max),
        total_tokens=None,
    )
    return replace(_cut(said, tokens_max), stated_finish="length", usage=usage)


def _size(said: Reply) -> int:
    return completion_tokens(said) if said.usage is None else said.usage.completion_tokens


def _cut(said: Reply, tokens_max: int) -> Reply:
    """What comes first stays: reasoning, prose, calls. Prose without calls pays one token for its end."""
    left = tokens_max - tokens.text_tokens(said.reasoning or "")
    if left < 1:
        thought = tokens.longest_beginning(said.reasoning or "", lambda text: tokens.text_tokens(text) < tokens_max)
        return Reply(content="", reasoning=thought)
    calls = _calls_within(said.tool_calls, left - tokens.text_tokens(said.text))
    if calls:
        return replace(said, tool_calls=calls)
    text = tokens.longest_beginning(said.text, lambda text: tokens.text_tokens(text) < left)
    return Reply(content=text, reasoning=said.reasoning)


def _calls_within(calls: tuple[ToolCall, ...], tokens_max: int) -> tuple[ToolCall, ...]:
    """The calls that fit, the last of them perhaps without the end of its arguments. One without any is none: clients
    would take it for a call with no arguments."""
    fitting = 0
    while fitting < len(calls) and _calls_tokens(calls[: fitting + 1]) <= tokens_max:
        fitting += 1
    if fitting == len(calls):
        return calls
    whole, call = calls[:fitting], calls[fitting]
    arguments = tokens.longest_beginning(
        call.function.arguments, lambda text: _calls_tokens((*whole, _with_arguments(call, text))) <= tokens_max
    )
    return (*whole, _with_arguments(call, arguments)) if arguments else whole


def _calls_tokens(calls: tuple[ToolCall, ...]) -> int:
    return tokens.completion_tokens(None, calls)


def _with_arguments(call: ToolCall, arguments: str) -> ToolCall:
    return replace(call, function=replace(call.function, arguments=arguments))
