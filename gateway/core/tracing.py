"""W3C's `traceparent`: where a run hangs in somebody else's trace. It is kept with the run, in its metadata, so that a
run that is resumed by another process stays in its trace."""

from __future__ import annotations

import re

from gateway.core.run import Run

TRACEPARENT = "traceparent"

_VALID = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def valid_traceparent(text: str | None) -> str | None:
    """The header's value, or None for what is none: after the standard, that is not an error."""
    return text if text is not None and _VALID.fullmatch(text) and not text.startswith("ff") else None


def traceparent_of(run: Run) -> str | None:
    """Metadata is the client's, so it is looked at again before anything is made of it."""
    return valid_traceparent(run.metadata.get(TRACEPARENT))
