"""A model behind any endpoint that speaks OpenAI's chat completions. It knows nothing of prices, budgets or the record.

One request is one `ask`: attempts with waits between them, each announced before it is sent, until there is a whole
reply or it is clear that there will be none.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress

import aiohttp
from aiohttp import ClientResponse, ClientSession
from multidict import CIMultiDict

from gateway.adapters.providers import failures, wire
from gateway.adapters.providers.assembling import Assembling, SseReply, plain_reply
from gateway.adapters.providers.attempts import timeout_of, wait_seconds
from gateway.adapters.providers.failures import Failed
from gateway.adapters.providers.requests import Bodies
from gateway.adapters.providers.settings import ProviderSettings
from gateway.adapters.providers.usage import usage_of
from gateway.core.ports import Reply, Sending
from gateway.core.run import Run
from gateway.core.tracing import TRACEPARENT, traceparent_of

ERROR_BYTES_MAX = 64 * 1024
DRAIN_SECONDS_MAX = 0.25
DNS_CACHE_SECONDS = 60
BYTES_BODY_MAX = 2**20  # aiohttp warns of larger ones, and wants a file

OnDelta = Callable[[str], None]
HeadersOf = Callable[[Run], Mapping[str, str]]
"""Headers that a run's requests carry besides the configured ones."""


def traceparent(run: Run) -> dict[str, str]:
    """A run that hangs in a trace asks the provider in that trace."""
    parent = traceparent_of(run)
    return {TRACEPARENT: parent} if parent else {}


def make_session(settings: ProviderSettings) -> ClientSession:
    """A pool of connections that are kept alive. No cookies; the timeouts come with each request."""
    connector = aiohttp.TCPConnector(limit=settings.connections_max, ttl_dns_cache=DNS_CACHE_SECONDS)
    return ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


class OpenAIModel:
    """Satisfies `ports.Model`. The session is the caller's, to share and to close."""

    def __init__(self, session: ClientSession, settings: ProviderSettings, headers_of: HeadersOf = traceparent) -> None:
        self._session = session
        self._headers_of = headers_of
        self._settings = settings
        self._bodies = Bodies(settings.extra_body, cap_name=settings.cap_name)
        self._headers = make_headers(settings)
        self._chat_url = settings.url("chat/completions")
        self._timeout = timeout_of(settings)

    async def ask(
        self, run: Run, on_delta: OnDelta | None, max_tokens: int | None = None
    ) -> AsyncGenerator[Sending | Reply, None]:
        body = self._bodies.build(run, stream=on_delta is not None, max_tokens=max_tokens)
        failed: list[Failed] = []
        while True:
            yield _sending(failed)
            try:
                reply = await self._attempt(run, body, len(failed), on_delta)
            except Failed as failure:
                failed.append(failure)
                seconds = wait_seconds(failed, self._settings)
                if seconds is None:
                    raise failures.concluded(failed, self._settings.retry_after_max_seconds) from failure.__cause__
                await asyncio.sleep(seconds)
            else:
                yield reply
                return

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
        clock = _Clock()
        assembling = await self._post(body, self._numbered(run, retry), clock, on_delta)
        ms = clock.ms()
        message = assembling.message()
        usage, estimated = await usage_of(assembling.usage, run, message)
        return Reply(
            message=message,
            usage=usage,
            finish=assembling.finish,
            ms=ms,
            estimated=estimated,
            first_token_ms=clock.first_token_ms,
            provider_ms=assembling.provider_ms,
        )

    async def _post(
        self, body: bytes, headers: CIMultiDict[str], clock: _Clock, on_delta: OnDelta | None
    ) -> Assembling:
        """Send and receive. Whatever ends this early, cancellation too, closes the connection: aiohttp keeps none that
        is half read."""
        try:
            async with self._session.post(
                self._chat_url,
                data=body if len(body) <= BYTES_BODY_MAX else io.BytesIO(body),
                headers=headers,
                timeout=self._timeout,
                allow_redirects=False,
            ) as response:
                await _raise_for_status(response)
                if _is_stream(response, on_delta):
                    return await self._receive_stream(response, clock, on_delta or _ignore)
                return await self._receive_plain(response, on_delta or _ignore)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise failures.unanswered(error) from error

    def _numbered(self, run: Run, retry: int) -> CIMultiDict[str]:
        """The headers of one attempt. What is configured goes before what the run brings."""
        headers = self._headers.copy()
        headers["X-Attempt"] = str(retry)
        for name, value in self._headers_of(run).items():
            headers.setdefault(name, value)
        return headers

    async def _get(self, path: str) -> bytes:
        try:
            async with self._session.get(
                self._settings.url(path), headers=self._headers, timeout=self._timeout, allow_redirects=False
            ) as response:
                await _raise_for_status(response)
                return await read_at_most(response, self._settings.reply_bytes_max)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise failures.unanswered(error) from error

    async def _receive_plain(self, response: ClientResponse, on_delta: OnDelta) -> Assembling:
        assembling, text = plain_reply(await read_at_most(response, self._settings.reply_bytes_max))
        if text:
            on_delta(text)
        return assembling

    async def _receive_stream(self, response: ClientResponse, clock: _Clock, on_delta: OnDelta) -> Assembling:
        reply = SseReply()
        try:
            await self._feed(reply, response, clock, on_delta)
        except (aiohttp.ClientError, TimeoutError):
            if not reply.whole:  # one that is whole is kept: to ask again would be to pay twice
                raise
        for text in reply.end():
            on_delta(text)
        return reply.assembling

    async def _feed(self, reply: SseReply, response: ClientResponse, clock: _Clock, on_delta: OnDelta) -> None:
        size = 0
        async for chunk in response.content.iter_any():
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
        """To the microsecond: what is left of a turn without it is the harness's, and that is little."""
        return round((time.perf_counter() - self._started) * 1000, 3)

    def first_token(self) -> None:
        if self.first_token_ms is None:
            self.first_token_ms = self.ms()


def make_headers(settings: ProviderSettings) -> CIMultiDict[str]:
    headers = CIMultiDict({"Content-Type": "application/json", "User-Agent": "agent-sidecar"})
    if settings.api_key:
        headers["Authorization"] = f"Bearer {settings.api_key}"
    headers.update(settings.headers)
    return headers


def _is_stream(response: ClientResponse, on_delta: OnDelta | None) -> bool:
    """What arrived, and not what was asked for: there are servers that always stream, and some that never do."""
    asked = on_delta is not None and response.content_type != "application/json"
    return asked or response.content_type == "text/event-stream"


def _ignore(_: str) -> None:
    pass


def _sending(failed: list[Failed]) -> Sending:
    """The attempt behind these."""
    if not failed:
        return Sending(1)
    return Sending(len(failed) + 1, lost=failed[-1].lost, after=str(failed[-1]))


async def _raise_for_status(response: ClientResponse) -> None:
    if 200 <= response.status < 300:
        return
    raise failures.answered(response.status, response.headers, await beginning(response))


def bounded(size: int, bytes_max: int) -> int:
    if size > bytes_max:
        raise failures.too_large(bytes_max)
    return size


async def read_at_most(response: ClientResponse, bytes_max: int) -> bytes:
    """The body. Raises Failed for one that is too large, before it is all here; one that says its length is read in one
    go, unless it is compressed and will grow."""
    if response.content_length is not None and "Content-Encoding" not in response.headers:
        bounded(response.content_length, bytes_max)
        return await response.read()
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        bounded(len(body), bytes_max)
    return bytes(body)


async def beginning(response: ClientResponse) -> bytes:
    """As much of an error's body as is wanted. The status says enough if it does not arrive."""
    beginning = bytearray()
    with suppress(aiohttp.ClientError, TimeoutError):
        async for chunk in response.content.iter_any():
            beginning += chunk
            if len(beginning) >= ERROR_BYTES_MAX:
                break
    return bytes(beginning[:ERROR_BYTES_MAX])


async def _drain(response: ClientResponse) -> None:
    """Let the end that follows [DONE] arrive, so that the connection can be used again; it is not waited for long."""
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS_MAX):
            while await response.content.readany():
                pass
