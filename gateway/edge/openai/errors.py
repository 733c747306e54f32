"""A run that failed, as an error that no client library asks again about: the run is over, and so is the same request.

Always 502: what failed is behind this gateway, be it the provider or a tool. `error.message` has the words.
"""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web
from msgspec import Struct

from gateway.core.codec import encode
from gateway.core.explain import why
from gateway.core.run import Run
from gateway.edge.openai.answering import event, extension, headers
from gateway.edge.openai.wire import Extension
from gateway.edge.problems import OpenAIError, Problem

FAILED_STATUS = 502
CODE = "run_failed"


class FailedRun(Problem, frozen=True, kw_only=True):
    gateway: Extension


class StreamError(Struct, frozen=True, kw_only=True):
    """The last event of a stream that failed. Behind it there is no [DONE]."""

    error: OpenAIError
    gateway: Extension | None = None


def failed(request: web.Request, run: Run) -> web.Response:
    body = FailedRun(
        type=f"urn:problem:{CODE}",
        title=HTTPStatus(FAILED_STATUS).phrase,
        status=FAILED_STATUS,
        detail=words(run),
        instance=request.path,
        error=problem(run),
        gateway=extension(run),
    )
    return web.Response(
        body=encode(body),
        status=FAILED_STATUS,
        headers={**headers(run), "x-should-retry": "false"},
        content_type="application/problem+json",
    )


def failed_event(run: Run) -> bytes:
    return event(StreamError(error=problem(run), gateway=extension(run)))


def error_event(message: str, code: str) -> bytes:
    return event(StreamError(error=OpenAIError(message, "server_error", None, code)))


def problem(run: Run) -> OpenAIError:
    return OpenAIError(words(run), "server_error", None, CODE)


def words(run: Run) -> str:
    said = why(run) or "It failed."
    return said if said.endswith(".") else f"{said}."
