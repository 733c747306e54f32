"""Errors on the wire: RFC 9457 problem details and OpenAI's `error` object in one body, and one table of statuses."""

from __future__ import annotations

import logging
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Struct

from gateway.core import errors
from gateway.core.codec import encode

log = logging.getLogger(__name__)


STATUS: dict[type[errors.RequestError], int] = {
    errors.BadRequest: 400,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.WrongState: 409,
    errors.TooLarge: 413,
    errors.CannotRun: 422,
    errors.Busy: 429,
    errors.Unavailable: 503,
}
RETRY_HELPS = (429, 503)


class OpenAIError(Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str | None


class Problem(Struct, frozen=True, kw_only=True):
    """`detail` says what was wrong and what to do; `error` says the same to clients of OpenAI's API."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    error: OpenAIError


def problem(
    request: web.Request,
    status: int,
    detail: str,
    *,
    code: str,
    param: str | None = None,
    retry_after_seconds: float | None = None,
) -> web.Response:
    """The response for one error. Client libraries retry 409 and 5xx by themselves: they are told where that cannot
    help."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    detail = detail.encode(errors="replace").decode()  # it may quote a header that is no text
    body = Problem(
        type=f"urn:problem:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        instance=request.path,
        error=OpenAIError(detail, kind, param, code),
    )
    headers: dict[str, str] = {}
    if retry_after_seconds is not None:
        headers["Retry-After"] = str(max(1, round(retry_after_seconds)))
    elif status not in RETRY_HELPS:
        headers["x-should-retry"] = "false"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return web.Response(body=encode(body), status=status, headers=headers, content_type="application/problem+json")


def from_request_error(request: web.Request, error: errors.RequestError) -> web.Response:
    return problem(
        request,
        STATUS[type(error)],
        str(error),
        code=error.code,
        param=error.param,
        retry_after_seconds=error.retry_after_seconds,
    )


def from_http_exception(request: web.Request, error: web.HTTPException) -> web.Response:
    """aiohttp's own: no such route, wrong method, too large."""
    match error:
        case web.HTTPRequestEntityTooLarge():
            return problem(request, 413, "the body is larger than this gateway reads.", code="too_large")
        case web.HTTPNotFound():
            return problem(request, 404, f"there is no {request.path} here: see /openapi.json.", code="no_such_route")
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            response = problem(
                request, 405, f"{request.path} takes {allowed}, not {request.method}.", code="wrong_method"
            )
            response.headers["Allow"] = allowed
            return response
        case _:
            return problem(request, error.status, error.reason, code="http_error")


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except errors.RequestError as error:
        return from_request_error(request, error)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return from_http_exception(request, error)
    except web.RequestPayloadError:
        response = problem(request, 400, "the body is not encoded as its headers say.", code="malformed_body")
        response.force_close()  # where it ends and the next request begins cannot be known
        return response
    except RecursionError:  # when it is decoded, or first encoded: all that nests here is what a client sent
        log.warning("%s %s: the body is nested too deeply", request.method, request.path)
        return problem(request, 400, "the body is nested too deeply.", code="malformed_json")
    except ConnectionResetError:
        raise  # the client has gone; there is nobody to tell
    except Exception:
        log.exception("%s %s: a fault of the gateway", request.method, request.path)
        return problem(request, 500, "a fault of the gateway; its log says more.", code="internal")
