"""What the next request will use: probably, and at most."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal

from msgspec import Struct

from gateway.core.codec import encode, remembers_last
from gateway.core.messages import Assistant, Message
from gateway.core.pricing import BYTES_PER_TOKEN, MILLION, ZERO, Price, Usage, cost
from gateway.core.run import Run, ToolSpec

PROMPT_MARGIN_TOKENS = 64
"""What a provider's chat template may add besides what it adds to each message, which the JSON around it covers."""

TOOL_MARGIN_TOKENS = 48
"""What the wire form of a tool has around it that our own form of it lacks, in bytes."""

REPLY_TOKENS_MIN = 16
"""A hard budget that leaves less than this stops the run: such a reply would be cut before it says anything."""

REPLY_TOKENS_MAX = 1_000_000


def expected_usage(run: Run) -> Usage:
    """The usage of the next call if the model says about as much as last time."""
    prompt = run.last_usage.total_tokens + bytes_since_last_reply(run) // BYTES_PER_TOKEN
    completion = run.last_usage.completion_tokens
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


def bytes_since_last_reply(run: Run) -> int:
    """UTF-8 bytes of the request that no reply has counted yet; for the first request that is all of it."""
    if counted(run):
        return sum([len(encode(message)) for message in after_last_reply(run.messages)])
    added = sum([len(encode(message)) for message in run.messages])
    return added + size_of_tools(run.tools) + (len(encode(run.params)) if run.params else 0)


@remembers_last
def size_of_tools(tools: tuple[ToolSpec, ...]) -> int:
    return len(encode(tools))


def counted(run: Run) -> bool:
    """Whether a reply has counted the transcript, up to itself. Not so where the client has put it together since."""
    return run.turns > 0 and run.last_usage.prompt_tokens > 0


def after_last_reply(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """What no reply has counted yet. Only the end of the transcript is looked at."""
    begin = len(messages)
    while begin and not isinstance(messages[begin - 1], Assistant):
        begin -= 1
    return messages[begin:]


# --- at most --------------------------------------------------------------------------------------------------------


class ReplyCap(Struct, frozen=True):
    """What a hard budget allows the next call: so many tokens of reply (None where replies cost nothing), and what the
    call costs at most with them."""

    max_tokens: int | None
    worst_usd: Decimal


def reply_cap(run: Run) -> ReplyCap | None:
    """The cap of the next reply under a hard budget; None without one.

    No tokenizer makes more tokens than there are bytes, so the prompt is at most what the last one was known to be plus
    the bytes added since plus a margin. What is left after it buys the reply.
    """
    if run.limits.budget_mode != "hard" or run.limits.max_budget_usd is None:
        return None
    prompt_usd = cost(dearest(run.price), Usage(prompt_tokens=worst_prompt_tokens(run)))
    left = run.limits.max_budget_usd - run.spent_usd - prompt_usd
    rate = dearest(run.price).output
    if left < 0:
        return ReplyCap(0, prompt_usd)
    if not rate:
        return ReplyCap(None, prompt_usd)
    tokens = min(REPLY_TOKENS_MAX, int((left * MILLION / rate).to_integral_value(ROUND_FLOOR)))
    return ReplyCap(tokens, prompt_usd + rate * tokens / MILLION)


def worst_prompt_tokens(run: Run) -> int:
    reply = len(encode(last_reply(run))) if counted(run) else 0
    around = 0 if counted(run) else TOOL_MARGIN_TOKENS * len(run.tools) + len(run.messages)
    return run.last_usage.prompt_tokens + reply + bytes_since_last_reply(run) + around + PROMPT_MARGIN_TOKENS


def last_reply(run: Run) -> Message:
    return next(message for message in reversed(run.messages) if isinstance(message, Assistant))


def dearest(price: Price) -> Price:
    """The price with every token at the dearest rate of its side."""
    return Price(input=max(price.input, price.cached_input or ZERO), output=max(price.output, price.reasoning or ZERO))
