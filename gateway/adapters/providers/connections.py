"""HTTP/1.1 to one server: a pool of connections that are kept alive, one exchange at a time on each.

aiohttp's client, which does far more, was a third of what a run cost the gateway (configs/PERFORMANCE.md). So what
every turn waits for has a client of its own, as small as its task (what comes is parsed in exchange.py). It knows no
redirects, cookies or proxies, sends nothing twice, and knows nothing of providers.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Mapping
from types import TracebackType
from typing import Any, Self

from yarl import URL

from gateway.adapters.providers.exchange import NotConnected, Patience, Response

KEPT_SECONDS = 15.0
"""How long an idle connection is kept: shorter than servers keep theirs, so that they seldom hang up first."""

LOOK_SECONDS = 1.0
"""How exact the limits of time are, at most; an eighth of the shortest of them where that is less."""

SENT_AHEAD_BYTES = 64 * 1024
"""What the transport is given of a body before the server has taken what came before it."""

NOTHING = memoryview(b"")


def header_lines(headers: Mapping[str, str]) -> bytes:
    """Headers as they are sent. Raises ValueError for one that would end early, and another begin."""
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if text.count("\n") != len(headers) or text.count("\r") != len(headers) or "\0" in text:
        raise ValueError("a header has a line break or a null in it")
    return text.encode(errors="surrogateescape")


# --- the server -----------------------------------------------------------------------------------------------------


class Server:
    """The server at a URL, and the connections to it; at most `connections_max` at a time. Its own context manager."""

    def __init__(self, base_url: str, patience: Patience, *, connections_max: int) -> None:
        self._url = URL(base_url)
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._places = asyncio.Semaphore(connections_max)
        self._idle: deque[Connection] = deque()
        self._busy: set[Connection] = set()
        self._tidying: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._look_seconds = min(LOOK_SECONDS, patience.silence_seconds / 8, patience.total_seconds / 8)
        self._tls: ssl.SSLContext | None = None
        self._closed = False
        self._path = self._url.raw_path.rstrip("/").encode()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing more is asked, and what is under way ends as dropped."""
        self._closed = True
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()
        for timer in (self._tidying, self._looking):
            if timer is not None:
                timer.cancel()

    def get(self, path: str, headers: bytes) -> Awaitable[Response]:
        head = b"GET %b/%b HTTP/1.1\r\n%b\r\n"
        return self._exchange(head % (self._path, path.encode(), headers), b"")

    def post(self, path: str, headers: bytes, body: bytes) -> Awaitable[Response]:
        """The response as soon as its headers are here; whoever has it reads it to its end or closes it. `path` goes
        behind that of the URL, `headers` are what `header_lines` makes, with a Host. Raises HttpError."""
        head = b"POST %b/%b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n"
        return self._exchange(head % (self._path, path.encode(), headers, len(body)), body)

    async def _exchange(self, head: bytes, body: bytes) -> Response:
        began = self._loop.time()
        connection = await self._connection(began)
        response = connection.send(head, body, self._patience, began)
        try:
            await response.begin()
        except BaseException:
            response.close()
            raise
        return response

    # --- connections ------------------------------------------------------------------------------------------------

    async def _connection(self, now: float) -> Connection:
        """One that is free, and whose place is taken until it comes back."""
        if self._places.locked():
            await self._place(now + self._patience.total_seconds)
        else:
            await self._places.acquire()
        try:
            self._require_open()
            connection = self._kept(now) or await self._connect()
        except BaseException:
            self._places.release()
            raise
        self._busy.add(connection)
        if self._looking is None:
            self._looking = self._loop.call_later(self._look_seconds, self._look)
        return connection

    def _require_open(self) -> None:
        if self._closed:
            raise NotConnected("the connections are closed")

    async def _place(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._places.acquire()
        except TimeoutError:
            raise NotConnected("no connection became free in time") from None

    def _kept(self, now: float) -> Connection | None:
        """The one that was used last: the others may be closed when there are too many of them."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now - connection.idle_since < KEPT_SECONDS:
                return connection
            connection.close()
        return None

    async def _connect(self) -> Connection:
        host, port = self._url.raw_host or "", self._url.port or 0
        try:
            async with asyncio.timeout(self._patience.connect_seconds):
                _, connection = await self._loop.create_connection(
                    lambda: Connection(self, self._loop), host, port, **self._security(host)
                )
        except TimeoutError:
            raise NotConnected(f"no connection to {host}:{port} in {self._patience.connect_seconds:g} s") from None
        except OSError as error:
            raise NotConnected(f"cannot connect to {host}:{port}: {error.strerror or error}") from error
        except UnicodeError as error:
            raise NotConnected(f"cannot connect to {host}: it is no name of a server") from error
        if self._closed:
            connection.close()
        self._require_open()
        return connection

    def _security(self, host: str) -> dict[str, Any]:
        """Certificates know no names with a dot behind them."""
        if self._url.scheme != "https":
            return {}
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return {"ssl": self._tls, "server_hostname": host.rstrip(".")}

    def _look(self) -> None:
        """Whether a server has been silent for too long. One clock for all: to wind one up for each costs more."""
        now = self._loop.time()
        for connection in tuple(self._busy):
            connection.look(now)
        self._looking = self._loop.call_later(self._look_seconds, self._look) if self._busy else None

    def take_back(self, connection: Connection, *, usable: bool) -> None:
        """Called once for every exchange."""
        self._places.release()
        self._busy.discard(connection)
        if not usable or self._closed:
            connection.close()
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._tidying is None:
            self._tidying = self._loop.call_later(KEPT_SECONDS, self._tidy)

    def _tidy(self) -> None:
        """Close what nobody has used for too long; the oldest are in front."""
        oldest = self._loop.time() - KEPT_SECONDS
        while self._idle and self._idle[0].idle_since <= oldest:
            self._idle.popleft().close()
        self._tidying = self._loop.call_at(self._idle[0].idle_since + KEPT_SECONDS, self._tidy) if self._idle else None


class Connection(asyncio.Protocol):
    """One connection, and the exchange that is under way on it."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._response: Response | None = None
        self._unsent = NOTHING
        self._may_send = True
        self.idle_since = 0.0
        self.is_open = False

    def send(self, head: bytes, body: bytes, patience: Patience, began: float) -> Response:
        response = self._response = Response(self._transport, self._loop, patience, began=began, ended=self._end)
        if not body:
            self._transport.write(head)
        elif len(body) <= SENT_AHEAD_BYTES:
            self._transport.writelines((head, body))
        else:
            self._transport.write(head)
            self._unsent = memoryview(body)
            self._send_on()
        return response

    def _send_on(self) -> None:
        """As much as the server takes. What it has taken cannot be asked of a transport under TLS, which has always
        sent everything; so a body is given in pieces."""
        while self._unsent and self._may_send and self.is_open:
            piece, self._unsent = self._unsent[:SENT_AHEAD_BYTES], self._unsent[SENT_AHEAD_BYTES:]
            self._transport.write(piece)

    def _end(self, usable: bool) -> None:
        """A server that answers before it has read the request may never read it: then nothing follows it."""
        all_sent = not self._unsent and not self._transport.get_write_buffer_size()
        self._response = None
        self._unsent = NOTHING
        self._server.take_back(self, usable=usable and self.is_open and all_sent)

    def look(self, now: float) -> None:
        if self._response is not None:
            self._response.look(now)

    def close(self) -> None:
        self.is_open = False
        if self._response is not None:
            self._response.close()  # else what has come would be taken for all of it
        self._transport.abort()

    # --- called by the event loop -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(high=SENT_AHEAD_BYTES)
        self._transport = transport
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._response is None:
            self.close()  # nothing was asked
        else:
            self._response.feed(data)

    def pause_writing(self) -> None:
        self._may_send = False

    def resume_writing(self) -> None:
        self._may_send = True
        if self._response is not None:
            self._response.hear()
        self._send_on()

    def eof_received(self) -> None:
        """Nothing more comes; what has not gone out would be waited for."""
        self.is_open = False
        if self._response is not None:
            self._response.cut(clean=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._response is not None:
            self._response.cut(clean=exc is None)
