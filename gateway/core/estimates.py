"""What the next request will probably use, from what the last one used and what was added since."""

from __future__ import annotations

from gateway.core.codec import encode
from gateway.core.messages import Assistant
from gateway.core.pricing import Usage
from gateway.core.run import Run

BYTES_PER_TOKEN = 4
"""English text and JSON in current tokenizers; an estimate that is recorded as one."""


def expected_usage(run: Run) -> Usage:
    """The usage of the next call if the model says about as much as last time."""
    added = bytes_since_last_reply(run) // BYTES_PER_TOKEN
    prompt = run.last_usage.total_tokens + added
    completion = run.last_usage.completion_tokens
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


def bytes_since_last_reply(run: Run) -> int:
    """UTF-8 bytes of the request that no reply has counted yet: only the end of the transcript is looked at."""
    total = 0
    for message in reversed(run.messages):
        if isinstance(message, Assistant) and run.turns:
            return total
        total += len(encode(message))
    return total + len(encode(run.tools))
