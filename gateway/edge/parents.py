"""A run that is started with a `traceparent` belongs to the caller's trace."""

from __future__ import annotations

from aiohttp import web
from msgspec.structs import replace

from gateway.core.tracing import TRACEPARENT, valid_traceparent
from gateway.edge.wire import StartRun


def in_the_callers_trace(request: web.Request, order: StartRun) -> StartRun:
    """The order, with the header's value among its metadata unless the caller has set that itself."""
    traceparent = valid_traceparent(request.headers.get(TRACEPARENT))
    if traceparent is None or TRACEPARENT in order.metadata:
        return order
    return replace(order, metadata={**order.metadata, TRACEPARENT: traceparent})
