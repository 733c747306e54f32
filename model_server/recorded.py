"""Replays recorded chat requests against any server, so many conversations at a time, and says how long it took.

A client like any other: it knows nothing of the server that it asks, so that one server can be measured beside another.
Within a conversation a request is made when the one before it is answered, as an agent does it.
"""

import asyncio
import codecs
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import aiohttp
import assel
import msgspec
from msgspec import Struct

from model_server.errors import ModelServerError

SECONDS_MAX = 1800
_SAME_WORK = {"temperature": 0, "repeat_penalty": 1.0, "ignore_eos": True}
"""Some servers punish repetitions unless told otherwise; and each reply is as long as its request allows, whatever a
server makes of it, which in a recording is as long as the reply that was recorded."""


class ReplayFailed(ModelServerError):
    """The recording cannot be read, or the server cannot be asked."""


class Recorded(Struct, frozen=True):
    """One line of a recording."""

    conversation: int
    turn: int
    request: dict[str, Any]


class Asked(Struct, frozen=True, kw_only=True):
    """What became of one request. Times count from when it was sent; `first_ms` is when anything of the reply came."""

    conversation: int
    turn: int
    first_ms: float
    ms: float
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    reply_tokens: int | None = None
    calls: int = 0
    error: str | None = None


class Replayed(Struct, frozen=True, kw_only=True):
    base_url: str
    model: str
    at_once: int
    seconds: float
    slowest_first_ms: float
    reply_tokens: int
    requests: list[Asked]


# ── the recording ─────────────────────────────────────────────────────────────────────────────────────────────────────


def read(path: Path) -> list[Recorded]:
    try:
        return msgspec.json.decode(b"[" + b",".join(path.read_bytes().splitlines()) + b"]", type=list[Recorded])
    except OSError as error:
        raise ReplayFailed(f"{path} cannot be read: {error.strerror}.") from None
    except msgspec.DecodeError as error:
        raise ReplayFailed(f"{path} is not a recording, which has a request in each line: {error}.") from None


def conversations(recorded: Iterable[Recorded], copies: int = 1) -> list[list[Recorded]]:
    """In their order, `copies` times. Copies differ in the user's words, so that none is found in another's cache."""
    groups = [list(group) for _, group in groupby(recorded, lambda each: each.conversation)]
    return [[_copy(each, number) for each in group] for number in range(1, copies + 1) for group in groups]


def _copy(each: Recorded, number: int) -> Recorded:
    if number == 1:
        return each
    messages = [_marked(message, number) for message in each.request["messages"]]
    return Recorded(each.conversation, each.turn, {**each.request, "messages": messages})


def _marked(message: dict[str, Any], number: int) -> dict[str, Any]:
    if message["role"] != "user":
        return message
    return {**message, "content": f"({number}) {message['content']}"}


# ── replaying ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def replay(base_url: str, wanted: Sequence[Sequence[Recorded]], at_once: int) -> Replayed:
    """Raises ReplayFailed if the server is not there. A request that fails is told as such."""
    base_url, limit = base_url.rstrip("/"), asyncio.Semaphore(at_once)
    connector = aiohttp.TCPConnector(force_close=True)  # some servers close a connection behind a stream, unannounced
    timeout = aiohttp.ClientTimeout(total=SECONDS_MAX)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        model = await _model(session, base_url)
        began = time.perf_counter()
        groups = await asyncio.gather(*(_conversation(session, base_url, model, each, limit) for each in wanted))
        seconds = time.perf_counter() - began
    asked = [each for group in groups for each in group]
    return Replayed(
        base_url=base_url,
        model=model,
        at_once=at_once,
        seconds=round(seconds, 3),
        slowest_first_ms=max(each.first_ms for each in asked),
        reply_tokens=sum(each.reply_tokens or 0 for each in asked),
        requests=asked,
    )


async def _model(session: aiohttp.ClientSession, base_url: str) -> str:
    try:
        async with session.get(f"{base_url}/models") as response:
            response.raise_for_status()
            return (await response.json())["data"][0]["id"]
    except (aiohttp.ClientError, TimeoutError, LookupError, ValueError) as error:
        raise ReplayFailed(f"{base_url}/models lists no model ({error}): is a server there, with its /v1?") from None


async def _conversation(
    session: aiohttp.ClientSession, base_url: str, model: str, wanted: Sequence[Recorded], limit: asyncio.Semaphore
) -> list[Asked]:
    async with limit:
        return [await _ask(session, base_url, model, each) for each in wanted]


async def _ask(session: aiohttp.ClientSession, base_url: str, model: str, each: Recorded) -> Asked:
    body = {"model": model, **each.request, **_SAME_WORK, "stream": True, "stream_options": {"include_usage": True}}
    began = time.perf_counter()
    reply = _Reply()
    error: str | None = None
    try:
        async with session.post(f"{base_url}/chat/completions", json=body) as response:
            if response.status != 200:
                error = f"{response.status}: {(await response.text())[:200]}"
            else:
                await reply.read(response.content.iter_any())
    except (aiohttp.ClientError, TimeoutError) as failure:
        error = str(failure) or type(failure).__name__
    ended = time.perf_counter()
    return Asked(
        conversation=each.conversation,
        turn=each.turn,
        first_ms=round(((reply.first_at or ended) - began) * 1000, 1),
        ms=round((ended - began) * 1000, 1),
        prompt_tokens=reply.usage.get("prompt_tokens"),
        cached_tokens=(reply.usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        reply_tokens=reply.usage.get("completion_tokens", reply.pieces),
        calls=len(reply.calls),
        error=error,
    )


class _Reply:
    """What is noted of a stream. Servers that tell no usage send a piece a token."""

    def __init__(self) -> None:
        self.first_at: float | None = None
        self.usage: dict[str, Any] = {}
        self.calls: set[int] = set()
        self.pieces = 0

    async def read(self, chunks: AsyncIterator[bytes]) -> None:
        async for event in assel.aparse(chunks, _parser()):
            self.first_at = self.first_at or time.perf_counter()
            if event.data != "[DONE]":
                self._note(msgspec.json.decode(event.data))

    def _note(self, chunk: dict[str, Any]) -> None:
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            self.pieces += bool(delta.get("content") or delta.get("tool_calls"))
            self.calls |= {call.get("index", 0) for call in delta.get("tool_calls") or ()}


def _parser() -> assel.Parser:
    """assel keeps one decoder for all of its parsers, so that half a character of one stream ends up in another."""
    parser = assel.Parser()
    parser.line_decoder.utf8dec = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return parser
