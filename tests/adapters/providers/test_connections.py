"""HTTP/1.1 to one server: a peer of a few lines says byte for byte what a server may say, and when."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from itertools import pairwise
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.providers import connections
from gateway.adapters.providers.connections import Server, header_lines
from gateway.adapters.providers.exchange import (
    GZIP_OR_ZLIB,
    HEAD_BYTES_MAX,
    READ_AHEAD_BYTES,
    Dropped,
    Inflating,
    Malformed,
    NotConnected,
    Patience,
    Response,
    TooSlow,
)

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HOST = b"Host: peer\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nfir\r\n2\r\nst\r\n0\r\nX-Behind: 1\r\n\r\n"


class Peer:
    """A server that reads a request and plays the next part of its script; the last part is played for ever."""

    def __init__(self, *plays: Play) -> None:
        self.plays = list(plays)
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                self.bodies.append(await reader.readexactly(length_in(head)))
                await (self.plays.pop(0) if len(self.plays) > 1 else self.plays[0])(reader, writer)
                await writer.drain()
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            writer.close()


def length_in(head: bytes) -> int:
    lines = dict(line.split(b": ", 1) for line in head.splitlines()[1:] if line)
    return int(lines.get(b"Content-Length", b"0"))


def says(*pieces: bytes, hang_up: bool = False) -> Play:
    async def play(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.005 if len(pieces) > 1 else 0)
        if hang_up:
            writer.close()

    return play


async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@asynccontextmanager
async def connected(
    peer: Peer, *, connections_max: int = 8, path: str = "/v1", **patience: float
) -> AsyncIterator[Server]:
    listening = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    chosen = Patience(**({"connect_seconds": 2.0, "silence_seconds": 2.0, "total_seconds": 5.0} | patience))
    async with listening, Server(f"http://127.0.0.1:{port}{path}", chosen, connections_max=connections_max) as server:
        yield server


async def body_of(server: Server, body: bytes = b"{}") -> bytes:
    with closing(await server.post("ask", HOST, body)) as response:
        return await response.read()


# --- what is sent ---------------------------------------------------------------------------------------------------


async def test_a_request_is_one_head_and_its_body() -> None:
    peer = Peer(says(OK))

    async with connected(peer, path="/base/v1/") as server:
        await body_of(server, b'{"a":1}')
        await (await server.get("models", header_lines({"Host": "a", "X-One": "1"}))).read()

    assert peer.heads[0] == b"POST /base/v1/ask HTTP/1.1\r\nHost: peer\r\nContent-Length: 7\r\n\r\n"
    assert peer.heads[1] == b"GET /base/v1/models HTTP/1.1\r\nHost: a\r\nX-One: 1\r\n\r\n"
    assert peer.bodies == [b'{"a":1}', b""]


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nb", "a\rb", "a\0b"])
def test_a_header_cannot_smuggle_another_one_in(value: str) -> None:
    with pytest.raises(ValueError, match="line break or a null"):
        header_lines({"X-One": value})


def test_headers_may_be_text_of_any_kind() -> None:
    assert header_lines({"X-One": "é", "X-Two": ""}) == "X-One: é\r\nX-Two: \r\n".encode()


# --- responses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "body"),
    [
        (OK, b"ok"),
        (CHUNKED, b"first"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + CHUNKED, b"first"),
    ],
    ids=["length", "chunks", "empty", "no content", "continue", "hints"],
)
async def test_a_whole_response_leaves_its_connection_for_the_next_request(said: bytes, body: bytes) -> None:
    peer = Peer(says(said), says(OK))

    async with connected(peer) as server:
        assert await body_of(server) == body
        assert await body_of(server) == b"ok"

    assert peer.connections == 1


@given(st.lists(st.integers(1, len(CHUNKED) - 1), max_size=6))
def test_wherever_a_response_is_cut_into_pieces_it_is_the_same(cuts: list[int]) -> None:
    edges = sorted({0, *cuts, len(CHUNKED)})
    pieces = [CHUNKED[start:end] for start, end in pairwise(edges)]

    async def exchange() -> tuple[bytes, int]:
        peer = Peer(says(*pieces), says(OK))
        async with connected(peer) as server:
            body = await body_of(server)
            await body_of(server)
            return body, peer.connections

    assert asyncio.run(exchange()) == (b"first", 1)


async def test_a_body_of_no_known_length_ends_with_its_connection() -> None:
    peer = Peer(says(b"HTTP/1.1 200 OK\r\n\r\n", b"one ", b"two", hang_up=True))

    async with connected(peer) as server:
        assert await body_of(server) == b"one two"
        assert await body_of(server) == b"one two"

    assert peer.connections == 2


@pytest.mark.parametrize("head", [b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\n"])
async def test_a_connection_that_is_not_to_be_kept_is_not(head: bytes) -> None:
    peer = Peer(says(head + b"Content-Length: 2\r\n\r\nok"))

    async with connected(peer) as server:
        for _ in range(2):
            assert await body_of(server) == b"ok"

    assert peer.connections == 2


async def test_what_comes_behind_a_response_is_not_taken_for_the_next_one() -> None:
    peer = Peer(says(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"), says(OK))

    async with connected(peer) as server:
        assert [await body_of(server), await body_of(server)] == [b"ok", b"ok"]

    assert peer.connections == 2


async def test_what_nobody_asked_for_closes_the_connection() -> None:
    peer = Peer(says(OK, b"more"), says(OK))

    async with connected(peer) as server:
        assert await body_of(server) == b"ok"
        await asyncio.sleep(0.05)
        assert await body_of(server) == b"ok"

    assert peer.connections == 2


@pytest.mark.parametrize(
    "said",
    [
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"hello\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["tls", "prose", "no status", "upgrade", "bad chunk", "two lengths"],
)
async def test_what_is_no_response_is_said_to_be_none(said: bytes) -> None:
    async with connected(Peer(says(said))) as server:
        with pytest.raises(Malformed):
            await body_of(server)


async def test_headers_without_an_end_are_not_read_for_ever() -> None:
    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-More: " + b"x" * 1000 + b"\r\n")
            await writer.drain()

    async with connected(Peer(endless)) as server:
        with pytest.raises(Malformed, match="more than 65536 bytes"):
            await body_of(server)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"", "before it"),
        (b"HTTP/1.1 200 OK\r\nContent-", "before it"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "in the middle of it"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "in the middle of it"),
    ],
)
async def test_a_connection_that_drops_is_an_error_and_what_came_before_it_is_read(said: bytes, words: str) -> None:
    async with connected(Peer(says(said, hang_up=True))) as server:
        read = bytearray()
        with pytest.raises(Dropped, match=f"the connection dropped {words}"):
            await read_into(read, server)

    assert read == (b"half" if "half" in said.decode() else b"")


async def read_into(read: bytearray, server: Server) -> None:
    with closing(await server.post("ask", HOST, b"{}")) as response:
        async for piece in response.pieces():
            read += piece


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2  \r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-One: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX-One: a\x01b\r\nContent-Length: 2\r\n\r\nok",
    ],
    ids=["bare line feeds", "no reason", "blanks behind a size", "folded header", "control byte"],
)
async def test_what_is_not_quite_http_is_understood_as_other_clients_do(said: bytes) -> None:
    peer = Peer(says(said))

    async with connected(peer) as server:
        for _ in range(2):
            with closing(await server.post("ask", HOST, b"{}")) as response:
                assert await response.read() == b"ok"
                assert response.headers.get("X-One", "a b") == "a b"

    assert peer.connections == 1


async def test_a_header_that_is_no_text_can_still_be_told() -> None:
    async with connected(Peer(says(b"HTTP/1.1 200 OK\r\nX-One: \xff\r\nContent-Length: 0\r\n\r\n"))) as server:
        with closing(await server.post("ask", HOST, b"{}")) as response:
            assert response.headers["X-One"] == "\ufffd"


@pytest.mark.parametrize(
    "start", [b"0\r\nX-Behind: ", b"2;of="], ids=["a header behind the body", "what stands behind a size"]
)
async def test_what_is_no_body_is_not_read_for_ever(start: bytes) -> None:
    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n" + start)
        while True:
            writer.write(b"x" * 1000)
            await writer.drain()

    async with connected(Peer(endless)) as server:
        with pytest.raises(Malformed):
            await body_of(server)


async def test_a_long_stream_of_small_pieces_is_no_endless_head() -> None:
    pieces = [piece for _ in range(HEAD_BYTES_MAX // 30) for piece in (b"2;" + b"x" * 30 + b"\r\n", b"ok\r\n")]

    async def stream(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (*pieces, b"0\r\n\r\n"):
            writer.write(piece)
            await asyncio.sleep(0)

    async with connected(Peer(stream)) as server:
        assert await body_of(server) == b"ok" * (len(pieces) // 2)


# --- compressed -----------------------------------------------------------------------------------------------------


def compressed(encoding: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b" % (encoding, len(body), body)


def of_two_parts(body: bytes) -> bytes:
    return gzip.compress(body[:100]) + gzip.compress(body[100:])


def bare(body: bytes) -> bytes:
    squeezing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return squeezing.compress(body) + squeezing.flush()


def padded(body: bytes) -> bytes:
    return gzip.compress(body) + bytes(7)


SQUEEZED = pytest.mark.parametrize(
    ("encoding", "squeeze"),
    [
        (b"gzip", gzip.compress),
        (b"x-gzip", of_two_parts),
        (b"gzip", padded),
        (b"deflate", zlib.compress),
        (b"deflate", bare),
        (b"deflate", gzip.compress),
    ],
    ids=["gzip", "two parts", "padded", "zlib", "bare deflate", "gzip by another name"],
)


@SQUEEZED
@pytest.mark.parametrize("text", [b"", b"{}", b"one two three " * 50_000], ids=["empty", "short", "long"])
async def test_a_compressed_body_is_read_as_it_was(
    encoding: bytes, squeeze: Callable[[bytes], bytes], text: bytes
) -> None:
    async with connected(Peer(says(compressed(encoding, squeeze(text))))) as server:
        assert await body_of(server) == text


@SQUEEZED
def test_wherever_a_compressed_body_is_cut_it_is_the_same(encoding: bytes, squeeze: Callable[[bytes], bytes]) -> None:
    body = bytes(range(256))
    squeezed = squeeze(body)

    for cut in range(len(squeezed) + 1):
        inflating = Inflating()
        assert b"".join([*inflating.feed(squeezed[:cut]), *inflating.feed(squeezed[cut:])]) == body
        inflating.end()


@pytest.mark.parametrize("excess", [0, 1, *range(20, 26), 256, 257, 258, 280])
def test_what_is_just_longer_than_one_piece_comes_whole(excess: int) -> None:
    body = bytes(READ_AHEAD_BYTES + excess)

    inflating = Inflating()
    assert b"".join(inflating.feed(bare(body))) == body
    inflating.end()


def test_what_stands_behind_the_end_is_no_part_of_it_however_it_comes() -> None:
    behind = b"no gzip" + gzip.compress(b"two")
    for cut in range(len(behind)):
        inflating = Inflating()
        pieces = (gzip.compress(b"one"), behind[:cut], behind[cut:])
        assert b"".join(got for piece in pieces for got in inflating.feed(piece)) == b"one"
        inflating.end()


def test_a_body_in_very_many_parts_is_refused() -> None:
    with pytest.raises(Malformed, match="in more than 1000 parts"):
        list(Inflating().feed(gzip.compress(b"") * 26_000))


async def test_a_compressed_body_of_no_bytes_is_empty() -> None:
    async with connected(Peer(says(compressed(b"gzip", b"")))) as server:
        assert await body_of(server) == b""


async def test_a_compressed_stream_that_is_not_read_to_its_end_leaves_its_connection_too() -> None:
    squeezing = zlib.compressobj(wbits=GZIP_OR_ZLIB - 16)
    first = squeezing.compress(b"data: [DONE]\n\n") + squeezing.flush(zlib.Z_SYNC_FLUSH)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (first, squeezing.flush())]
    peer = Peer(says(head, *chunks, b"0\r\n\r\n"))

    async with connected(peer) as server:
        for _ in range(3):
            with closing(await server.post("ask", HOST, b"{}")) as response:
                assert await anext(response.pieces()) == b"data: [DONE]\n\n"
                await response.skip()

    assert peer.connections == 1


@pytest.mark.parametrize(
    ("encoding", "body", "words"),
    [
        (b"gzip", b"no gzip", "not compressed as it says"),
        (b"gzip", gzip.compress(b"one two three")[:-4], "is cut off"),
        (b"br", b"anything", "compressed as br, which is not known here"),
    ],
)
async def test_a_body_that_is_not_compressed_as_it_says_is_malformed(encoding: bytes, body: bytes, words: str) -> None:
    async with connected(Peer(says(compressed(encoding, body)))) as server:
        with pytest.raises(Malformed, match=words):
            await body_of(server)


async def test_few_bytes_that_become_very_many_come_a_little_at_a_time() -> None:
    bomb = gzip.compress(bytes(200_000_000), compresslevel=9)

    async with connected(Peer(says(compressed(b"gzip", bomb)))) as server:
        with closing(await server.post("ask", HOST, b"{}")) as response:
            assert response.content_length is None
            async for piece in response.pieces():
                assert 0 < len(piece) <= READ_AHEAD_BYTES
                break


# --- time -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("play", "patience", "words"),
    [
        (says_nothing, {"silence_seconds": 0.1}, "nothing came for too long"),
        (says_nothing, {"total_seconds": 0.1}, "the time ran out"),
    ],
)
async def test_a_server_that_says_nothing_is_hung_up_on(play: Play, patience: dict[str, float], words: str) -> None:
    peer = Peer(play)

    async with connected(peer, **patience) as server:
        with pytest.raises(TooSlow, match=words):
            await body_of(server)
        await asyncio.sleep(0.05)


async def test_a_body_may_take_longer_than_the_longest_silence() -> None:
    pieces = [b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n", *[b"x"] * 60]

    async with connected(Peer(says(*pieces)), silence_seconds=0.15) as server:
        assert await body_of(server) == b"x" * 60


async def test_a_reader_that_takes_its_time_is_no_silence_of_the_servers() -> None:
    size = 8 * READ_AHEAD_BYTES
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size

    async with connected(Peer(says(head + bytes(size))), silence_seconds=0.1) as server:
        with closing(await server.post("ask", HOST, b"{}")) as response:
            await asyncio.sleep(0.35)
            assert unread_of(response) < size
            assert len(await response.read()) == size


def unread_of(response: Response) -> int:
    return response._unread_bytes  # pyright: ignore[reportPrivateUsage]  what is held back cannot be seen from outside


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_large_request_on_a_slow_line_is_no_silence_while_it_goes_on(
    scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    body = bytes(24 * 1024 * 1024)
    seconds, silence_seconds = 2.5, 1.0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        assert length_in(await reader.readuntil(b"\r\n\r\n")) == len(body)
        began, taken = loop.time(), 0
        while taken < len(body):
            taken += len(await reader.read(1024 * 1024))
            await asyncio.sleep(began + seconds * taken / len(body) - loop.time())
        writer.write(OK)
        writer.close()

    async with listening(slow, scheme, monkeypatch, tmp_path) as url:
        patience = Patience(connect_seconds=5, silence_seconds=silence_seconds, total_seconds=30)
        async with Server(url, patience, connections_max=1) as server:
            assert await body_of(server, body) == b"ok"


async def test_a_large_request_that_the_server_does_not_take_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def reads_the_beginning(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await given_up.wait()
        writer.close()

    given_up = asyncio.Event()
    async with listening(reads_the_beginning, "http", monkeypatch, tmp_path) as url:
        async with Server(
            url, Patience(connect_seconds=5, silence_seconds=0.2, total_seconds=30), connections_max=1
        ) as server:
            with pytest.raises(TooSlow, match="nothing came for too long"):
                await body_of(server, bytes(50_000_000))
        given_up.set()


@asynccontextmanager
async def listening(serve: Play, scheme: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[str]:
    """The URL of a server that has little room for what it has not read yet."""
    security = None
    if scheme == "https":
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.pem"))
        security = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(security)
    entrance = socket.create_server(("127.0.0.1", 0))
    entrance.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 * 1024)
    async with await asyncio.start_server(serve, sock=entrance, ssl=security):
        yield f"{scheme}://localhost:{entrance.getsockname()[1]}"


# --- connections ----------------------------------------------------------------------------------------------------


async def test_no_more_connections_than_allowed_and_each_request_has_its_turn() -> None:
    at_once, most = 0, 0

    async def slow(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        writer.write(OK)

    peer = Peer(slow)
    async with connected(peer, connections_max=2) as server:
        assert await asyncio.gather(*(body_of(server) for _ in range(10))) == [b"ok"] * 10

    assert (peer.connections, most) == (2, 2)


async def test_who_waits_for_a_connection_for_too_long_has_sent_nothing() -> None:
    peer = Peer(says_nothing)

    async with connected(peer, connections_max=1, total_seconds=0.3) as server:
        first, *_, last = await asyncio.gather(*(body_of(server) for _ in range(4)), return_exceptions=True)

    assert isinstance(first, TooSlow)
    assert isinstance(last, NotConnected)
    assert str(last) == "no connection became free in time"


async def test_whoever_gives_up_hangs_up_and_leaves_the_place_to_the_next() -> None:
    peer = Peer(says_nothing, says(OK))

    async with connected(peer, connections_max=1) as server:
        first = asyncio.create_task(body_of(server))
        await asyncio.sleep(0.05)
        first.cancel()
        assert await body_of(server) == b"ok"

    assert first.cancelled()
    assert peer.connections == 2


async def test_a_response_that_is_closed_half_read_takes_its_connection_with_it() -> None:
    peer = Peer(says(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), says(OK))

    async with connected(peer, connections_max=1) as server:
        with closing(await server.post("ask", HOST, b"{}")) as response:
            assert await anext(response.pieces()) == b"half"
        assert await body_of(server) == b"ok"

    assert peer.connections == 2


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_answer_to_a_request_that_has_not_gone_out_yet_is_read_and_nothing_follows_the_request(
    scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connections = 0

    async def answers_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        with suppress(ConnectionError):  # the client hangs up; until then, what it sends is not read
            await writer.drain()
            await asyncio.wait_for(hung_up.wait(), 2)
        writer.close()

    hung_up = asyncio.Event()
    patience = Patience(connect_seconds=2, silence_seconds=2, total_seconds=5)
    async with (
        listening(answers_at_once, scheme, monkeypatch, tmp_path) as url,
        Server(url, patience, connections_max=1) as server,
    ):
        for _ in range(2):
            with closing(await server.post("ask", HOST, bytes(50_000_000))) as response:
                assert (response.status, await response.read()) == (413, b"no")
        hung_up.set()
        await asyncio.sleep(0.05)

    assert connections == 2


async def test_a_name_with_a_dot_behind_it_is_the_same_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **named: real(host.rstrip("."), *rest, **named))  # type: ignore[misc]

    async with listening(Peer(says(OK)).serve, "https", monkeypatch, tmp_path) as url:
        patience = Patience(connect_seconds=2, silence_seconds=2, total_seconds=5)
        async with Server(url.replace("localhost", "localhost."), patience, connections_max=1) as server:
            assert await body_of(server) == b"ok"


async def test_a_server_that_hung_up_meanwhile_is_connected_to_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(says(OK, hang_up=True))

    async with connected(peer) as server:
        for _ in range(3):
            assert await body_of(server) == b"ok"
            await asyncio.sleep(0.05)

    assert peer.connections == 3


async def test_a_connection_that_nobody_uses_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEPT_SECONDS", 0.1)
    peer = Peer(says(OK))

    async with connected(peer) as server:
        await asyncio.gather(*(body_of(server) for _ in range(3)))
        await asyncio.wait_for(peer.left.wait(), 2)
        await asyncio.sleep(0.2)
        connections_before = peer.connections
        assert await body_of(server) == b"ok"

    assert peer.connections == connections_before + 1


async def test_a_closed_server_takes_no_request_and_keeps_no_connection() -> None:
    peer = Peer(says(OK))

    async with connected(peer) as server:
        await body_of(server)
        server.close()
        await asyncio.wait_for(peer.left.wait(), 2)
        with pytest.raises(NotConnected, match="are closed"):
            await body_of(server)


async def test_who_waits_while_the_server_is_closed_sends_nothing_and_what_is_under_way_ends() -> None:
    async def keeps_silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        if len(peer.bodies) == 2:
            both_asked.set()
        await reader.read()

    peer = Peer(keeps_silent)
    both_asked = asyncio.Event()

    async with connected(peer, connections_max=2) as server:
        asked = [asyncio.create_task(body_of(server)) for _ in range(4)]
        await both_asked.wait()
        server.close()
        ended = await asyncio.gather(*asked, return_exceptions=True)

    assert [type(each) for each in ended] == [Dropped, Dropped, NotConnected, NotConnected]
    assert len(peer.bodies) == 2


async def test_what_has_come_of_a_body_of_no_known_length_is_not_all_of_it_if_the_server_is_closed() -> None:
    async with connected(Peer(says(b"HTTP/1.1 200 OK\r\n\r\npart"))) as server:
        with closing(await server.post("ask", HOST, b"{}")) as response:
            server.close()
            with pytest.raises(Dropped, match="was closed"):
                await response.read()


async def test_an_answer_that_ends_by_half_a_goodbye_is_whole_though_the_request_has_not_gone_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def answers_and_reads_no_more(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\n\r\nno")
        writer.write_eof()
        await answered.wait()
        writer.close()

    answered = asyncio.Event()
    patience = Patience(connect_seconds=2, silence_seconds=2, total_seconds=5)
    async with (
        listening(answers_and_reads_no_more, "http", monkeypatch, tmp_path) as url,
        Server(url, patience, connections_max=1) as server,
    ):
        assert await body_of(server, bytes(50_000_000)) == b"no"
        answered.set()


async def test_who_is_being_connected_while_the_server_is_closed_sends_nothing() -> None:
    peer = Peer(says(OK))

    async with connected(peer) as server:
        asked = asyncio.create_task(body_of(server))
        await asyncio.sleep(0)
        server.close()
        with pytest.raises(NotConnected, match="are closed"):
            await asked

    assert peer.bodies == []
