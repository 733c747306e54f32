"""One exchange of HTTP/1.1: what a server answers to one request, as it comes; parsed by llhttp, through httptools.
Knows its transport, and nothing of connections that are kept."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator
from types import TracebackType
from typing import Any, Self

import httptools
from msgspec import Struct
from multidict import CIMultiDict

HEAD_BYTES_MAX = 64 * 1024
"""Of what is no body, in a row: a head, or what stands behind a body in chunks."""

READ_AHEAD_BYTES = 256 * 1024
"""What is kept of a body that is not read, and what is decompressed at a time."""

INFLATED = frozenset({"gzip", "x-gzip", "deflate"})
GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
BARE_DEFLATE = -zlib.MAX_WBITS
GZIP_MAGIC = b"\x1f\x8b"
PARTS_MAX = 1000
"""Each costs a copy of what is behind it."""

LENIENT = {
    "lenient_headers": True,
    "lenient_optional_cr_before_lf": True,
    "lenient_spaces_after_chunk_size": True,
}
"""What some servers say that is not quite HTTP, and that every client understands: folded headers and control bytes in
them, bare line feeds, blanks behind the size of a chunk."""

Ended = Callable[[bool], None]
"""Told once when the exchange is over, and whether its connection can be used again."""


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


class Response:
    """What the server answers. Whatever ends it early closes the connection: none is kept that is half read. Its own
    context manager, which closes it."""

    __slots__ = (
        "_begun",
        "_complete",
        "_ended",
        "_error",
        "_head",
        "_head_bytes",
        "_heard",
        "_inflating",
        "_keep_alive",
        "_loop",
        "_news",
        "_parser",
        "_patience",
        "_paused",
        "_pieces",
        "_transport",
        "_unread_bytes",
        "_until",
        "status",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        patience: Patience,
        *,
        began: float,
        ended: Ended,
    ) -> None:
        self.status = 0
        self._head: list[tuple[bytes, bytes]] = []
        self._ended = ended
        self._transport = transport
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**LENIENT)
        self._head_bytes = 0
        self._begun = False
        self._complete = False
        self._keep_alive = False
        self._error: HttpError | None = None
        self._pieces: list[bytes] = []
        self._inflating: Inflating | None = None
        self._unread_bytes = 0
        self._paused = False
        self._news: asyncio.Future[None] | None = None
        self._loop = loop
        self._patience = patience
        self._until = began + patience.total_seconds
        self._heard = self._loop.time()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def headers(self) -> CIMultiDict[str]:
        return CIMultiDict([(name.decode("latin-1"), as_text(value)) for name, value in self._head])

    def header(self, name: bytes) -> str:
        """One of them, nothing if it is missing; `name` in lower case. Few are asked for, so none is kept decoded."""
        for known, value in self._head:
            if known.lower() == name:
                return as_text(value)
        return ""

    @property
    def content_type(self) -> str:
        return self.header(b"content-type").partition(";")[0].strip().lower()

    @property
    def content_length(self) -> int | None:
        """The bytes that are to come, where they are known beforehand; compressed ones will grow."""
        length = self.header(b"content-length")
        return int(length) if length.isdecimal() and not self.header(b"content-encoding") else None

    async def begin(self) -> None:
        """Return when status and headers are here. Raises HttpError."""
        while not self._begun:
            await self._more()

    def whole(self) -> bytes | None:
        """What is left of the body, if all of it is here and as it was sent, as short ones nearly always are."""
        return self._taken() if self._complete and not self.header(b"content-encoding") else None

    async def read(self) -> bytes:
        """What is left of the body. Raises HttpError."""
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Raises HttpError behind what came before it."""
        inflating = self._inflating = self._inflating or self._compressed()
        while True:
            if self._pieces:
                for piece in (self._taken(),) if inflating is None else inflating.feed(self._taken()):
                    yield piece
            elif self._complete:
                if inflating is not None:
                    inflating.end()
                return
            else:
                await self._more()

    async def skip(self) -> None:
        """Let the rest of the body go by, unread. Raises HttpError."""
        while not self._complete:
            self._taken()
            await self._more()

    def close(self) -> None:
        """Nobody reads any more. What is half read is cut off: the server need not go on."""
        self._fail(Dropped("the response was closed"))

    # --- reading ----------------------------------------------------------------------------------------------------

    def _more(self) -> asyncio.Future[None]:
        """Done when something has come. Raises the error that ended it instead."""
        if self._error is not None:
            raise self._error
        self._news = self._loop.create_future()
        return self._news

    def _taken(self) -> bytes:
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._unread_bytes = 0
        if self._paused and not self._complete and self._error is None:
            self._paused = False
            self._heard = self._loop.time()
            self._transport.resume_reading()
        return data

    def _compressed(self) -> Inflating | None:
        encoding = self.header(b"content-encoding").strip().lower()
        if encoding in INFLATED:
            return Inflating()
        if encoding not in ("identity", ""):
            self.close()
            raise Malformed(f"it is compressed as {encoding}, which is not known here")
        return None

    # --- called by the connection -----------------------------------------------------------------------------------

    def hear(self) -> None:
        """The server is there: it takes what is sent, or answers."""
        self._heard = self._loop.time()

    def feed(self, data: bytes) -> None:
        self.hear()
        unread_before = self._unread_bytes
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._broken(error)
            return
        if self._complete:
            self._end(usable=self._keep_alive)
            return
        if self._unread_bytes > unread_before:
            self._head_bytes = 0
            self._hold_back()
        else:
            self._bound_head(len(data))
        self._tell()

    def _broken(self, error: Exception) -> None:
        """What came is no HTTP; or it goes on behind its end, which is not for us."""
        if self._complete:
            self._end(usable=False)
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
        if clean and self._begun and not self._has_an_end():
            self._complete = True
            self._end(usable=False)
        else:
            self._fail(Dropped(f"the connection dropped {'in the middle of' if self._begun else 'before'} it"))

    def _has_an_end(self) -> bool:
        return bool(self.header(b"content-length")) or "chunked" in self.header(b"transfer-encoding").lower()

    def look(self, now: float) -> None:
        """At the time, which is not wound up anew with everything that comes."""
        if self._paused:  # it waits for us
            self._heard = now
        if now >= self._until:
            self._fail(TooSlow("the time ran out"))
        elif now >= self._heard + self._patience.silence_seconds:
            self._fail(TooSlow("nothing came for too long"))

    def _end(self, *, usable: bool) -> None:
        self._ended(usable)
        self._tell()

    def _fail(self, error: HttpError) -> None:
        if not self._complete and self._error is None:
            self._error = error
            self._end(usable=False)

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # --- called by the parser ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("there is one response to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._begun:  # else it is behind a body in chunks
            self._head.append((name, value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200:  # an interim response: the real one follows
            self._head.clear()
            return
        self._begun = True

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._unread_bytes += len(body)

    def on_message_complete(self) -> None:
        self._complete = self._begun
        self._keep_alive = self._parser.should_keep_alive()


def as_text(value: bytes) -> str:
    """On one line, whatever it was: a header may be passed on, or be told in words."""
    text = value.decode(errors="replace")
    return text if text.isprintable() else " ".join("".join([c if c.isprintable() else " " for c in text]).split())


class Inflating:
    """A compressed body as it was: gzip of one part or of several, zlib, or the bare deflate that some servers send in
    its place. Nothing at all is an empty body."""

    def __init__(self) -> None:
        self._part: Any = None
        self._parts = 0
        self._kept = b""
        self._over = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """A little at a time: few bytes may become very many. What stands behind the end is no part of it. Raises
        Malformed."""
        data, self._kept = self._kept + data, b""
        more = False
        while (data or more) and (part := self._part_of(data)) is not None:
            try:
                piece = part.decompress(data, READ_AHEAD_BYTES)
            except zlib.error as error:
                raise Malformed(f"it is not compressed as it says: {error}") from error
            if piece:
                yield piece
            data = part.unconsumed_tail or part.unused_data
            more = len(piece) == READ_AHEAD_BYTES and not part.eof

    def _part_of(self, data: bytes) -> Any:
        """The part to which these bytes belong: the first, or another one of gzip; None for what stands behind the end.
        Of one byte that cannot be said yet."""
        if self._part is not None and not self._part.eof:
            return self._part
        if self._part is not None and data == GZIP_MAGIC[:1]:
            self._kept = data
            return None
        self._over = self._over or (self._part is not None and not data.startswith(GZIP_MAGIC))
        if self._over:
            return None
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise Malformed(f"it is compressed in more than {PARTS_MAX} parts")
        self._part = zlib.decompressobj(wrapping_of(data))
        return self._part

    def end(self) -> None:
        """Raises Malformed if more should have come."""
        if self._part is not None and not self._part.eof:
            raise Malformed("its compressed body is cut off")


def wrapping_of(data: bytes) -> int:
    """What zlib is to expect, by the first byte: no bare deflate begins as gzip or zlib do."""
    return GZIP_OR_ZLIB if data[0] == GZIP_MAGIC[0] or data[0] & 0x0F == zlib.DEFLATED else BARE_DEFLATE
