"""A model behind any endpoint that speaks OpenAI's chat completions. It knows nothing of prices, budgets or the record.

One request is one `ask`: attempts with waits between them, each announced before it is sent, until there is a whole
reply or it is clear that there will be none.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress

from multidict import CIMultiDict
from yarl import URL

from gateway.adapters.providers import failures, wire
from gateway.adapters.providers.assembling import Assembling, SseReply, plain_reply
from gateway.adapters.providers.attempts import wait_seconds
from gateway.adapters.providers.connections import Server, header_lines
from gateway.adapters.providers.exchange import HttpError, Response
from gateway.adapters.providers.failures import Failed
from gateway.adapters.providers.requests import Bodies
from gateway.adapters.providers.settings import ProviderSettings
from gateway.adapters.providers.usage import counted
from gateway.core.ports import Announce, Reply, Sending
from gateway.core.run import Run
from gateway.core.tracing import TRACEPARENT, traceparent_of

CHAT = "chat/completions"
ERROR_BYTES_MAX = 64 * 1024
DRAIN_SECONDS_MAX = 0.25

OnDelta = Callable[[str], None]
HeadersOf = Callable[[Run], Mapping[str, str]]
"""Headers that a run's requests carry besides the configured ones."""


def traceparent(run: Run) -> dict[str, str]:
    """A run that hangs in a trace asks the provider in that trace."""
    parent = traceparent_of(run)
    return {TRACEPARENT: parent} if parent else {}


def server_of(settings: ProviderSettings) -> Server:
    """The endpoint's server. Open it once a process, as a context manager."""
    return Server(settings.base_url, settings.patience, connections_max=settings.connections_max)


class OpenAIModel:
    """Satisfies `ports.Model`. The server is the caller's, to share and to close."""

    def __init__(self, server: Server, settings: ProviderSettings, headers_of: HeadersOf = traceparent) -> None:
        self._server = server
        self._headers_of = headers_of
        self._settings = settings
        self._bodies = Bodies(settings.extra_body, cap_name=settings.cap_name)
        self._headers = make_headers(settings)
        self._lines = header_lines(self._headers)

    async def ask(self, run: Run, announce: Announce, on_delta: OnDelta | None, max_tokens: int | None = None) -> Reply:
        body = self._bodies.build(run, stream=on_delta is not None, max_tokens=max_tokens)
        failed: list[Failed] = []
        while True:
            await announce(_sending(failed))
            try:
                reply = await self._attempt(run, body, len(failed), on_delta)
            except Failed as failure:
                failed.append(failure)
                seconds = wait_seconds(failed, self._settings)
                if seconds is None:
                    raise failures.concluded(failed, self._settings.retry_after_max_seconds) from failure.__cause__
                await asyncio.sleep(seconds)
            else:
                if run.conversation is None and not reply.message.tool_calls:
                    self._bodies.forget(run)
                return reply

    async def models(self) -> list[str]:
        """The names of the models that the endpoint offers, in its order. One attempt."""
        try:
            return wire.model_ids(await self._get("models"))
        except wire.Undecodable as error:
            raise failures.concluded([failures.broken(wire.tidy(str(error)))], 0) from error
        except Failed as error:
            raise failures.concluded([error], self._settings.retry_after_max_seconds) from error.__cause__

    # --- one attempt ------------------------------------------------------------------------------------------------

    async def _attempt(self, run: Run, body: bytes, retry: int, on_delta: OnDelta | None) -> Reply:
        """Send and receive. Whatever ends this early, cancellation too, closes the connection."""
        clock = _Clock()
        try:
            with await self._server.post(CHAT, self._numbered(run, retry), body) as response:
                assembling = await self._assembled(response, clock, on_delta or _ignore, asked=on_delta is not None)
        except HttpError as error:
            raise failures.unanswered(error) from error
        ms = clock.ms()
        message = assembling.message()
        return Reply(
            message=message,
            usage=assembling.usage or await asyncio.to_thread(counted, run, message),
            finish=assembling.finish,
            ms=ms,
            estimated=assembling.usage is None,
            first_token_ms=clock.first_token_ms,
            provider_ms=assembling.provider_ms,
        )

    async def _assembled(self, response: Response, clock: _Clock, on_delta: OnDelta, *, asked: bool) -> Assembling:
        """The reply as it arrives: as a stream or in one piece, whichever was `asked` for."""
        if not response.is_success:
            raise await _refusal(response)
        if _is_stream(response, asked=asked):
            return await self._receive_stream(response, clock, on_delta)
        return _received(await read_at_most(response, self._settings.reply_bytes_max), on_delta)

    def _numbered(self, run: Run, retry: int) -> bytes:
        """The headers of one attempt. What is configured goes before what the run brings."""
        lines = b"%bX-Attempt: %d\r\n" % (self._lines, retry)
        if brought := self._headers_of(run):
            lines += header_lines({name: value for name, value in brought.items() if name not in self._headers})
        return lines

    async def _get(self, path: str) -> bytes:
        try:
            with await self._server.get(path, self._lines) as response:
                if not response.is_success:
                    raise await _refusal(response)
                return await read_at_most(response, self._settings.reply_bytes_max)
        except HttpError as error:
            raise failures.unanswered(error) from error

    async def _receive_stream(self, response: Response, clock: _Clock, on_delta: OnDelta) -> Assembling:
        reply = SseReply()
        try:
            await self._feed(reply, response, clock, on_delta)
        except HttpError:
            if not reply.whole:  # one that is whole is kept: to ask again would be to pay twice
                raise
        for text in reply.end():
            on_delta(text)
        return reply.assembling

    async def _feed(self, reply: SseReply, response: Response, clock: _Clock, on_delta: OnDelta) -> None:
        size = 0
        async for chunk in response.pieces():
            size = bounded(size + len(chunk), self._settings.reply_bytes_max)
            for text in reply.feed(chunk):
                on_delta(text)
            if reply.assembling.has_content:
                clock.first_token()
            if reply.done:
                await _drain(response)
                return


class _Clock:
    """Times one attempt."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.first_token_ms: float | None = None

    def ms(self) -> float:
        return (time.perf_counter() - self._started) * 1000

    def first_token(self) -> None:
        if self.first_token_ms is None:
            self.first_token_ms = round(self.ms(), 3)


def make_headers(settings: ProviderSettings) -> CIMultiDict[str]:
    """What every request carries. What is configured goes before what is ours, a Host too."""
    headers = CIMultiDict(
        {
            "Host": URL(settings.base_url).host_port_subcomponent or "",
            "Accept": "*/*",
            "Accept-Encoding": "gzip, deflate",
            "Content-Type": "application/json",
            "User-Agent": "agent-sidecar",
        }
    )
    if credentials := credentials_of(settings):
        headers["Authorization"] = credentials
    headers.update(settings.headers)
    return headers


def credentials_of(settings: ProviderSettings) -> str | None:
    """The key; without one, what the address names before its `@`."""
    if settings.api_key is not None:
        return f"Bearer {settings.api_key}" if settings.api_key else None
    url = URL(settings.base_url)
    if url.user is None:
        return None
    pair = f"{url.user}:{url.password or ''}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def _is_stream(response: Response, *, asked: bool) -> bool:
    """What arrived, and not what was asked for: there are servers that always stream, and some that never do."""
    kind = response.content_type
    return kind == "text/event-stream" or (asked and kind != "application/json")


def _ignore(_: str) -> None:
    pass


def _sending(failed: list[Failed]) -> Sending:
    """The attempt behind these."""
    if not failed:
        return Sending(1)
    return Sending(len(failed) + 1, lost=failed[-1].lost, after=str(failed[-1]))


async def _refusal(response: Response) -> Failed:
    return failures.answered(response.status, response.headers, await beginning(response))


def _received(data: bytes, on_delta: OnDelta) -> Assembling:
    assembling, text = plain_reply(data)
    if text:
        on_delta(text)
    return assembling


def bounded(size: int, bytes_max: int) -> int:
    if size > bytes_max:
        raise failures.too_large(bytes_max)
    return size


async def read_at_most(response: Response, bytes_max: int) -> bytes:
    """The body. Raises Failed for one that is too large, before it is all here."""
    if (body := response.whole()) is not None:
        bounded(len(body), bytes_max)
        return body
    bounded(response.content_length or 0, bytes_max)
    pieces: list[bytes] = []
    size = 0
    async for piece in response.pieces():
        pieces.append(piece)
        size = bounded(size + len(piece), bytes_max)
    return b"".join(pieces)


async def beginning(response: Response) -> bytes:
    """As much of an error's body as is wanted. The status says enough if it does not arrive."""
    beginning = bytearray()
    with suppress(HttpError):
        async for chunk in response.pieces():
            beginning += chunk
            if len(beginning) >= ERROR_BYTES_MAX:
                break
    return bytes(beginning[:ERROR_BYTES_MAX])


async def _drain(response: Response) -> None:
    """Let the end that follows [DONE] arrive, so that the connection can be used again; it is not waited for long."""
    with suppress(HttpError, TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS_MAX):
            await response.skip()
