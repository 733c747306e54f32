"""The tokens of one exchange: what the provider reported, within reason, or else what we count ourselves."""

from __future__ import annotations

from msgspec import json

from gateway.adapters.providers.requests import definitions
from gateway.adapters.providers.wire import Number, UsageReport
from gateway.core.messages import Assistant, text_of
from gateway.core.pricing import BYTES_PER_TOKEN, Usage
from gateway.core.run import Run
from scripted import tokens

TOKENS_MAX = 10**9
"""Of one exchange. Anything above is a slip of the provider, and would not fit into what we record."""


def reported(report: UsageReport | None) -> Usage | None:
    """Parts are at most their whole, and nothing is negative: what is priced must make sense. No prompt is empty: a
    report that says so says nothing."""
    if report is None or report.completion_tokens is None or not (prompt := _count(report.prompt_tokens)):
        return None
    completion = _count(report.completion_tokens)
    cached = report.prompt_tokens_details and report.prompt_tokens_details.cached_tokens
    reasoning = report.completion_tokens_details and report.completion_tokens_details.reasoning_tokens
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=max(_count(report.total_tokens), prompt + completion),
        cached_tokens=min(_count(cached), prompt),
        reasoning_tokens=min(_count(reasoning), completion),
    )


def counted(run: Run, message: Assistant) -> Usage:
    """In tokens of o200k_base, which are near enough for other models. Slow the first time: it loads the vocabulary."""
    tools = definitions(run.tools) or None
    content = text_of(message.content) + (message.reasoning_content or "") + (message.refusal or "")
    try:
        prompt = tokens.prompt_tokens(run.messages, tools)
        completion = tokens.completion_tokens(content, message.tool_calls)
    except tokens.Uncountable:
        prompt = len(json.encode((run.messages, tools))) // BYTES_PER_TOKEN
        completion = len(json.encode(message)) // BYTES_PER_TOKEN
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


def _count(number: Number) -> int:
    if not number:
        return 0
    if type(number) is int and 0 <= number <= TOKENS_MAX:  # nearly always
        return number
    return round(min(max(0, number), TOKENS_MAX))
