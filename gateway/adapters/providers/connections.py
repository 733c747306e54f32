"""HTTP/1.1 to one server: a pool of connections that are kept alive, one exchange at a time on each.

aiohttp's client, which does far more, was a third of what a run cost the gateway (configs/PERFORMANCE.md). So what
every turn waits for has a client of its own, as small as its task: parsing is llhttp's, by httptools. It knows no
redirects, cookies or proxies, sends nothing twice, and knows nothing of providers.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httptools
from msgspec import Struct
from multidict import CIMultiDict
from yarl import URL

KEPT_SECONDS = 15.0
"""How long an idle connection is kept: shorter than servers keep theirs, so that they seldom hang up first."""

HEAD_BYTES_MAX = 64 * 1024
READ_AHEAD_BYTES = 256 * 1024
"""What is kept of a body that is not read, and what is decompressed at a time."""

INFLATED = frozenset({"gzip", "x-gzip", "deflate"})
GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class HttpError(Exception):
    """Why there is no response, or not a whole one, in words.

    HttpError
    ├── NotConnected    nothing was sent
    ├── TooSlow         the time ran out, or nothing came for too long
    ├── Dropped         the connection ended before the response did
    └── Malformed       what came is no response
    """


class NotConnected(HttpError):
    pass


class TooSlow(HttpError):
    pass


class Dropped(HttpError):
    pass


class Malformed(HttpError):
    pass


class Patience(Struct, frozen=True, kw_only=True):
    """How long is waited: for a connection, for the next bytes of a response, and for all of it."""

    connect_seconds: float
    silence_seconds: float
    total_seconds: float


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
        self._tidying: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None
        self._closed = False
        self._fixed = header_lines({"Host": self._url.host_port_subcomponent or ""})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        if self._tidying is not None:
            self._tidying.cancel()

    async def get(self, path: str, headers: bytes) -> Response:
        return await self._exchange(b"GET %b HTTP/1.1\r\n%b%b\r\n" % (self._target(path), self._fixed, headers), b"")

    async def post(self, path: str, headers: bytes, body: bytes) -> Response:
        """The response as soon as its headers are here; whoever has it reads it to its end or closes it. `path` goes
        behind that of the URL, `headers` are what `header_lines` makes. Raises HttpError."""
        head = b"POST %b HTTP/1.1\r\n%b%bContent-Length: %d\r\n\r\n"
        return await self._exchange(head % (self._target(path), self._fixed, headers, len(body)), body)

    def _target(self, path: str) -> bytes:
        return f"{self._url.raw_path.rstrip('/')}/{path}".encode()

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
        if self._closed:
            raise NotConnected("the connections are closed")
        if self._places.locked():
            await self._place(now + self._patience.total_seconds)
        else:
            await self._places.acquire()
        try:
            return self._kept(now) or await self._connect()
        except BaseException:
            self._places.release()
            raise

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
                    lambda: Connection(self, self._loop), host, port, ssl=self._security()
                )
        except TimeoutError:
            raise NotConnected(f"no connection to {host}:{port} in {self._patience.connect_seconds:g} s") from None
        except OSError as error:
            raise NotConnected(f"cannot connect to {host}:{port}: {error.strerror or error}") from error
        except UnicodeError as error:
            raise NotConnected(f"cannot connect to {host}: it is no name of a server") from error
        return connection

    def _security(self) -> ssl.SSLContext | None:
        if self._url.scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def take_back(self, connection: Connection, *, usable: bool) -> None:
        """Called once for every exchange."""
        self._places.release()
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
        self.idle_since = 0.0
        self.is_open = False

    def send(self, head: bytes, body: bytes, patience: Patience, began: float) -> Response:
        response = self._response = Response(self, self._transport, self._loop, patience, began)
        self._transport.writelines((head, body))
        return response

    def end(self, *, usable: bool) -> None:
        """The exchange is over."""
        if self._response is not None:
            self._response = None
            self._server.take_back(self, usable=usable and self.is_open)

    def close(self) -> None:
        self.is_open = False
        self._transport.abort()

    # --- called by the event loop -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._response is None:
            self.close()  # nothing was asked
        else:
            self._response.feed(data)

    def eof_received(self) -> None:
        self.is_open = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._response is not None:
            self._response.cut(clean=exc is None)


# --- one exchange ---------------------------------------------------------------------------------------------------


class Response:
    """What the server answers. Whatever ends it early closes the connection: none is kept that is half read."""

    __slots__ = (
        "_begun",
        "_complete",
        "_connection",
        "_error",
        "_head_bytes",
        "_heard",
        "_keep_alive",
        "_loop",
        "_news",
        "_parser",
        "_patience",
        "_paused",
        "_pieces",
        "_transport",
        "_unread_bytes",
        "_unsent_bytes",
        "_until",
        "_until_cut",
        "_watch",
        "headers",
        "status",
    )

    def __init__(
        self,
        connection: Connection,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        patience: Patience,
        began: float,
    ) -> None:
        self.status = 0
        self.headers: CIMultiDict[str] = CIMultiDict()
        self._connection = connection
        self._transport = transport
        self._parser = httptools.HttpResponseParser(self)
        self._head_bytes = 0
        self._begun = False
        self._until_cut = False
        self._complete = False
        self._keep_alive = False
        self._error: HttpError | None = None
        self._pieces: list[bytes] = []
        self._unread_bytes = 0
        self._paused = False
        self._news: asyncio.Future[None] | None = None
        self._loop = loop
        self._patience = patience
        self._until = began + patience.total_seconds
        self._heard = self._loop.time()
        self._unsent_bytes = 0
        self._watch = loop.call_at(min(self._heard + patience.silence_seconds, self._until), self._look)

    @property
    def content_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def content_length(self) -> int | None:
        """The bytes that are to come, where they are known beforehand; compressed ones will grow."""
        length = self.headers.get("Content-Length", "")
        return int(length) if length.isdecimal() and "Content-Encoding" not in self.headers else None

    async def begin(self) -> None:
        """Return when status and headers are here. Raises HttpError."""
        while not self._begun:
            await self._more()

    def whole(self) -> bytes | None:
        """What is left of the body, if all of it is here and as it was sent, as short ones nearly always are."""
        return self._taken() if self._complete and "Content-Encoding" not in self.headers else None

    async def read(self) -> bytes:
        """What is left of the body. Raises HttpError."""
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Raises HttpError behind what came before it."""
        inflating = self._inflating()
        while True:
            if self._pieces:
                for piece in (self._taken(),) if inflating is None else inflated(inflating, self._taken()):
                    yield piece
            elif self._complete:
                if inflating is not None and not inflating.eof:
                    raise Malformed("its compressed body is cut off")
                return
            else:
                await self._more()

    def close(self) -> None:
        """Nobody reads any more. What is half read is cut off: the server need not go on."""
        self._fail(Dropped("the response was closed"))

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _more(self) -> None:
        """Something came. Raises the error that ended it instead."""
        if self._error is not None:
            raise self._error
        self._news = self._loop.create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _taken(self) -> bytes:
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._unread_bytes = 0
        if self._paused and not self._complete and self._error is None:
            self._paused = False
            self._heard = self._loop.time()
            self._transport.resume_reading()
        return data

    def _inflating(self) -> Any:
        encoding = self.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding in INFLATED:
            return zlib.decompressobj(GZIP_OR_ZLIB)
        if encoding not in ("identity", ""):
            self.close()
            raise Malformed(f"it is compressed as {encoding}, which was not asked for")
        return None

    # --- called by the connection -----------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._broken(error)
            return
        if self._complete:
            self._end(usable=self._keep_alive)
        elif self._begun:
            self._hold_back()
        else:
            self._bound_head(len(data))
        self._tell()

    def _broken(self, error: Exception) -> None:
        """What came is no HTTP; or it goes on behind its end, which is not for us."""
        if self._complete:
            self._end(usable=False)
            self._tell()
        else:
            self._fail(Malformed(f"what came is not HTTP/1.1: {error}"))

    def _hold_back(self) -> None:
        if self._unread_bytes > READ_AHEAD_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _bound_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES_MAX:
            self._fail(Malformed(f"its headers have more than {HEAD_BYTES_MAX} bytes"))

    def cut(self, *, clean: bool) -> None:
        """The connection is gone. A body of no known length ends so."""
        if clean and self._begun and self._until_cut:
            self._complete = True
            self._end(usable=False)
            self._tell()
        else:
            self._fail(Dropped(f"the connection dropped {'in the middle of' if self._begun else 'before'} it"))

    def _look(self) -> None:
        """At the time: the clock is looked at now and then, and not wound up anew with everything that comes."""
        now = self._loop.time()
        unsent = self._transport.get_write_buffer_size()
        if self._paused or unsent != self._unsent_bytes:  # it waits for us; it takes what we send
            self._heard = now
        self._unsent_bytes = unsent
        due = min(self._heard + self._patience.silence_seconds, self._until)
        if now < due:
            self._watch = self._loop.call_at(due, self._look)
        else:
            self._fail(TooSlow("the time ran out" if now >= self._until else "nothing came for too long"))

    def _end(self, *, usable: bool) -> None:
        self._watch.cancel()
        self._connection.end(usable=usable)

    def _fail(self, error: HttpError) -> None:
        if not self._complete and self._error is None:
            self._error = error
            self._end(usable=False)
            self._tell()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # --- called by the parser ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("there is one response to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._begun:  # else it is behind a body in chunks
            self.headers.add(name.decode("latin-1"), value.decode(errors="surrogateescape"))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200:  # an interim response: the real one follows
            self.headers.clear()
            return
        self._begun = True
        chunked = "chunked" in self.headers.get("Transfer-Encoding", "").lower()
        self._until_cut = not chunked and "Content-Length" not in self.headers

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._unread_bytes += len(body)

    def on_message_complete(self) -> None:
        self._complete = self._begun
        self._keep_alive = self._parser.should_keep_alive()


def inflated(inflating: Any, data: bytes) -> Iterator[bytes]:
    """A little at a time: few bytes may become very many."""
    while data and not inflating.eof:
        try:
            piece = inflating.decompress(data, READ_AHEAD_BYTES)
        except zlib.error as error:
            raise Malformed(f"it is not compressed as it says: {error}") from error
        if piece:
            yield piece
        data = inflating.unconsumed_tail
