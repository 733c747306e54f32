"""What is durable and not yet in the database: a file beside it, to which writes are appended.

A commit of SQLite's is some twenty system calls, and three times as dear where the processor has just been woken; one
write to a file is one call. What was written is with the kernel, and so outlives the process as a commit with
`synchronous = NORMAL` does; after the death of the machine a prefix of it may be left. Knows nothing of what it holds.

Everything in it bears a mark, a number that grows: that of the database which it goes on from.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

MAGIC = b"AgSC tail 1\n"
HEAD = Struct("<QI")
"""Before each payload: its mark and its length in bytes; then follows the CRC-32 of these and the payload."""

CHECKSUM_BYTES = 4

BYTES_MAX = 2**20
ROOM_BYTES = 4 * BYTES_MAX
"""What the file takes of the disk: enough to move to the database what it may hold, though the disk is full."""


class Tail:
    """`PATH.tail`. It takes nothing before it is begun. It is begun anew by writing over what is in it: behind what was
    written last there are payloads of smaller marks, or one that is not whole."""

    def __init__(self, path: Path, mark: int) -> None:
        self.mark = mark
        self._path = path
        self._descriptor: int | None = None
        self._has_room = False
        self._end = len(MAGIC)

    def begin(self, mark: int) -> None:
        """Nothing in it is needed any more. Where the disk has no room for it, it takes nothing."""
        self.mark = mark
        self._end = len(MAGIC)
        if not self._has_room:
            self._has_room = self._takes_room()

    def _takes_room(self) -> bool:
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            keep_room(self._descriptor, ROOM_BYTES)
            return os.pwrite(self._descriptor, MAGIC, 0) == len(MAGIC)
        except OSError:
            self._shrink()
            return False

    def gives_way(self) -> bool:
        """Give back the room that is kept for the database. Whether there was any."""
        had_room, self._has_room = self._has_room, False
        if had_room:
            self._shrink()
        return had_room

    def _shrink(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._end)

    def append(self, payload: bytes) -> bool:
        """Whether it is durable now. If the disk refuses it or the file is full it is not, and the file as it was."""
        head = HEAD.pack(self.mark, len(payload))
        frame = head + checksum(head, payload) + payload
        if self._descriptor is None or not self._has_room or self._end + len(frame) > BYTES_MAX:
            return False
        try:
            written = os.pwrite(self._descriptor, frame, self._end)
        except OSError:
            return False
        if written < len(frame):
            return False
        self._end += len(frame)
        return True

    def close(self, *, needed: bool) -> None:
        """The file goes, unless somebody still has to read it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if not needed:
            self._path.unlink(missing_ok=True)


def keep_room(descriptor: int, size: int) -> None:
    """Raises OSError where there is none. Not every system can tell."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)


class Left(NamedTuple):
    """What was appended last under one mark, in order, up to the first payload that is not whole."""

    mark: int
    payloads: list[bytes]

    @property
    def end(self) -> int:
        """Where it ends in the file, in bytes."""
        return len(MAGIC) + sum(HEAD.size + CHECKSUM_BYTES + len(payload) for payload in self.payloads)


def left_in(path: Path) -> Left | None:
    """None if there is nothing, or no such file. Raises OSError, and ValueError for a file of another kind."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if not MAGIC.startswith(content[: len(MAGIC)].rstrip(b"\0")):  # its beginning may be all that came about
        raise ValueError(f"{path.name} is not of this version")
    frames = list(frames_of(content, len(MAGIC)))
    return Left(frames[0][0], [payload for mark, payload in frames if mark == frames[0][0]]) if frames else None


def frames_of(content: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """Those that are whole, with their marks."""
    while at + HEAD.size <= len(content):
        head = content[at : at + HEAD.size]
        mark, length = HEAD.unpack(head)
        begin = at + HEAD.size + CHECKSUM_BYTES
        at = begin + length
        payload = content[begin:at]
        if not payload or content[begin - CHECKSUM_BYTES : begin] != checksum(head, payload):
            return
        yield mark, payload


def checksum(head: bytes, payload: bytes) -> bytes:
    return zlib.crc32(payload, zlib.crc32(head)).to_bytes(CHECKSUM_BYTES, "little")
