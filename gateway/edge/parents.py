"""A run that is started with a `traceparent` belongs to the caller's trace, whatever API it was started by."""

from __future__ import annotations

from aiohttp import web

from gateway.core.tracing import TRACEPARENT, valid_traceparent


def in_the_callers_trace(request: web.Request, metadata: dict[str, str]) -> dict[str, str]:
    """A run's metadata, with the header's value among it unless the caller has set that itself."""
    traceparent = valid_traceparent(request.headers.get(TRACEPARENT))
    return metadata if traceparent is None else {TRACEPARENT: traceparent, **metadata}
