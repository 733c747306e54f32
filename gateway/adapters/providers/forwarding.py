"""Sends requests to the provider as they came, and brings back its replies as they are. It prices nothing.

A request is sent again only while nothing of a reply has come and the provider says that it did nothing, or was never
reached. A reply that was lost may be billed, and whether to pay for another is the client's to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

from gateway.adapters.providers import failures
from gateway.adapters.providers.attempts import wait_seconds
from gateway.adapters.providers.connections import Server, header_lines
from gateway.adapters.providers.exchange import HttpError, Response
from gateway.adapters.providers.failures import Failed
from gateway.adapters.providers.openai import beginning, make_headers, read_at_most
from gateway.adapters.providers.passing import PassingStream, Seen, look_at_plain
from gateway.adapters.providers.settings import ProviderSettings
from gateway.core.errors import ProviderError
from gateway.core.pricing import Usage

PASSED_HEADERS = frozenset({"content-type", "retry-after", "retry-after-ms", "x-should-retry", "x-request-id"})
PASSED_PREFIXES = ("openai-", "x-ratelimit-")
EVENT_STREAM = "text/event-stream"


class Answered(Failed):
    """The provider answered with an HTTP error, which is passed on if asking again does not help."""

    def __init__(self, failure: Failed, reply: Forwarded) -> None:
        Exception.__init__(self, str(failure))
        self.__dict__.update(failure.__dict__)
        self.reply = reply


class Forwarded:
    """One answer of the provider's. Whoever has it reads it, and closes it."""

    def __init__(self, response: Response, settings: ProviderSettings, body: bytes | None = None) -> None:
        self.status = response.status
        self.headers = passed_on(response.headers)
        self.streams = response.content_type == EVENT_STREAM and body is None
        self._response = response
        self._settings = settings
        self._body = body
        self._seen = Seen()

    def usage(self, request_bytes: int) -> Usage:
        return self._seen.usage(request_bytes)

    def close(self) -> None:
        """What is half read is cut off: the provider need not go on."""
        self._response.close()

    async def read(self) -> bytes:
        """A reply in one piece. Raises ProviderError if it is not whole."""
        if self._body is not None:
            return self._body
        try:
            data = await read_at_most(self._response, self._settings.reply_bytes_max)
            self._seen = look_at_plain(data)
        except HttpError as error:
            raise self._concluded(failures.unanswered(error)) from error
        except Failed as failure:
            raise self._concluded(failure) from failure
        return data

    async def events(self, *, hide_usage: bool) -> AsyncGenerator[bytes, None]:
        """A stream, whole events at a time. Raises ProviderError where it breaks off, behind what came before."""
        stream = PassingStream(hide_usage=hide_usage, event_bytes_max=self._settings.reply_bytes_max)
        self._seen = stream.seen
        broke: Failed | None = None
        try:
            async for data in self._response.pieces():
                passed, broke = stream.feed(data)
                if passed:
                    yield passed
                if broke is not None:
                    break
        except HttpError as error:
            broke = None if stream.done else failures.unanswered(error)
        if broke is None:
            passed, broke = stream.end()
            if passed:
                yield passed
        if broke is not None:
            raise self._concluded(broke) from broke

    def _concluded(self, failure: Failed) -> ProviderError:
        return failures.concluded([failure], self._settings.retry_after_max_seconds)


class Forwarder:
    """Satisfies `edge.openai.proxy.Upstream`. The server is the caller's, to share and to close."""

    def __init__(self, server: Server, settings: ProviderSettings) -> None:
        self._server = server
        self._settings = settings
        self._headers = make_headers(settings)
        self._headers["Accept-Encoding"] = "identity"

    async def send(self, path: str, body: bytes, headers: Mapping[str, str]) -> Forwarded:
        """The provider's answer, whatever its status. Raises ProviderError if there is none."""
        failed: list[Failed] = []
        while True:
            try:
                return await self._exchange(path, body, headers, len(failed))
            except Failed as failure:
                failed.append(failure)
                seconds = None if failure.lost else wait_seconds(failed, self._settings)
                if seconds is None:
                    return self._given_up(failed)
                await asyncio.sleep(seconds)

    def _given_up(self, failed: Sequence[Failed]) -> Forwarded:
        """What the provider answered to the last attempt is passed on."""
        last = failed[-1]
        if isinstance(last, Answered):
            return last.reply
        raise failures.concluded(failed, self._settings.retry_after_max_seconds) from last.__cause__

    async def _exchange(self, path: str, body: bytes, headers: Mapping[str, str], retry: int) -> Forwarded:
        sent = self._headers.copy()
        sent.update(headers)
        if retry:
            sent["X-Attempt"] = str(retry)
        try:
            response = await self._server.post(path, header_lines(sent), body)
        except HttpError as error:
            raise failures.unanswered(error) from error
        if response.is_success:
            return Forwarded(response, self._settings)
        with response:
            said = await beginning(response)
        answer = Forwarded(response, self._settings, said)
        raise Answered(failures.answered(response.status, response.headers, said), answer)


def passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    """What a reply's headers say to a client of the API: not what they say of this one connection."""
    return {
        name: value
        for name, value in headers.items()
        if (lower := name.lower()) in PASSED_HEADERS or lower.startswith(PASSED_PREFIXES)
    }
