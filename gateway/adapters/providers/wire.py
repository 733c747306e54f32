"""The shape of replies, as leniently as providers differ: what a Struct does not name is ignored, and a field that one
of them leaves out, or sends as null, is allowed to be missing. A plain reply is read as a stream of one chunk."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

PROBLEM_CHARS_MAX = 500
BODY_CHARS_MAX = 200

Number = int | float | None


class FunctionDelta(Struct):
    """`arguments` are a string; some servers send the object itself, or null."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallDelta(Struct):
    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None


class Delta(Struct):
    """A piece of a message, or all of it. `reasoning` is the other name that `reasoning_content` goes by."""

    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    tool_calls: list[CallDelta] | None = None


class Choice(Struct):
    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None


class PromptDetails(Struct):
    cached_tokens: Number = None


class CompletionDetails(Struct):
    reasoning_tokens: Number = None


class UsageReport(Struct):
    prompt_tokens: Number = None
    completion_tokens: Number = None
    total_tokens: Number = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class Problem(Struct):
    """What an `error` object says. `code` is a word, or an HTTP status."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None


class Body(Struct):
    """A plain reply, or one chunk of a stream."""

    choices: list[Choice] | None = None
    usage: UsageReport | None = None
    error: Problem | str | None = None
    timings: Any = None


class ErrorBody(Struct):
    """The body of an HTTP error: OpenAI's shape, and those of FastAPI and other frameworks."""

    error: Problem | str | None = None
    message: str | None = None
    detail: str | None = None


class ModelEntry(Struct):
    id: str


class ModelList(Struct):
    data: list[ModelEntry]


Undecodable = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

decode_body = msgspec.json.Decoder(Body).decode
"""Raises one of `Undecodable`."""

_error_decoder = msgspec.json.Decoder(ErrorBody)
_models_decoder = msgspec.json.Decoder(ModelList | list[ModelEntry])


def model_ids(body: bytes) -> list[str]:
    """Raises one of `Undecodable`."""
    listed = _models_decoder.decode(body)
    return [entry.id for entry in (listed.data if isinstance(listed, ModelList) else listed)]


def problem_of(body: bytes) -> Problem:
    """What the body of an HTTP error says, in the provider's own words; its beginning if it has no known shape."""
    try:
        answer = _error_decoder.decode(body)
    except Undecodable:
        answer = ErrorBody()
    problem = as_problem(answer.error)
    words = problem.message or answer.message or answer.detail or body[:4096].decode(errors="replace")[:BODY_CHARS_MAX]
    return Problem(tidy(words), problem.type, problem.code)


def as_problem(error: Problem | str | None) -> Problem:
    return error if isinstance(error, Problem) else Problem(error)


def tidy(words: str) -> str:
    """One line of bounded length, without a full stop: it is put into sentences."""
    return " ".join(words.split())[:PROBLEM_CHARS_MAX].rstrip(". ")
