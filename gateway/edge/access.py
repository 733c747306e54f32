"""One line in the log for each request, once it is answered. It names the template of the path and not the path, and
nothing of headers or bodies, so that no secret gets there."""

from __future__ import annotations

import logging
import time

from aiohttp import web
from aiohttp.typedefs import Handler

log = logging.getLogger("gateway.requests")

CLIENT_GONE = 499  # what web servers write where nobody waited for the answer
NO_ROUTE = "-"


@web.middleware
async def logged(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Goes around all other middlewares. Costs a comparison where the level is above `info`."""
    if not log.isEnabledFor(logging.INFO):
        return await handler(request)
    began = time.perf_counter()
    response: web.StreamResponse | None = None
    try:
        response = await handler(request)
        return response
    finally:
        ms = round((time.perf_counter() - began) * 1000, 1)
        # behind the answer, which need not wait for it
        request.task.get_loop().call_soon(write_line, request, response, ms)


def write_line(request: web.Request, response: web.StreamResponse | None, ms: float) -> None:
    resource = request.match_info.route.resource
    fields: dict[str, object] = {
        "method": request.method,
        "path": NO_ROUTE if resource is None else resource.canonical,
        "status": CLIENT_GONE if response is None else response.status,
        "ms": ms,
    }
    if run_id := run_of(request, response):
        fields["run"] = run_id
    log.info("request", extra={"fields": fields})


def run_of(request: web.Request, response: web.StreamResponse | None) -> str | None:
    """The run that the request began or was about. Where there is none of that name, it is only text from outside."""
    if response is None or response.status == 404:
        return None
    return response.headers.get("X-Run-Id") or request.match_info.get("run_id")
