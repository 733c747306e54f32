"""What is durable and not yet in the database: a file beside it, to which writes are appended.

A commit of SQLite's is some twenty system calls, and three times as dear where the processor has just been woken; one
write to a file is one call. What was written is with the kernel, and so outlives the process as a commit with
`synchronous = NORMAL` does; after the death of the machine a prefix of it may be left. Knows nothing of what it holds.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from struct import Struct
from typing import Self

MAGIC = b"AgSC tail 1\n"
HEAD = Struct("<II")
"""Before each payload: its length in bytes, and its CRC-32."""

BYTES_MAX = 4 * 2**20


class Tail:
    """`PATH.tail`. It is begun anew by writing over what is in it: until then a reader finds, behind what was written
    last, payloads of before, or one that is not whole."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._end = len(MAGIC)

    @classmethod
    def begin(cls, path: Path) -> Self:
        """Empty, whatever was in it. Raises OSError."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.pwrite(descriptor, MAGIC, 0)
        except OSError:
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    @property
    def name(self) -> str:
        return self._path.name

    def append(self, payload: bytes) -> bool:
        """Whether it is durable now. If the disk refuses it or the file is full it is not, and the file as it was."""
        frame = HEAD.pack(len(payload), zlib.crc32(payload)) + payload
        if self._end + len(frame) > BYTES_MAX:
            return False
        try:
            written = os.pwrite(self._descriptor, frame, self._end)
        except OSError:
            return False
        if written < len(frame):
            return False
        self._end += len(frame)
        return True

    def begin_anew(self) -> None:
        """Nothing in it is needed any more."""
        self._end = len(MAGIC)

    def close(self, *, needed: bool) -> None:
        """The file goes, unless somebody still has to read it."""
        os.close(self._descriptor)
        if not needed:
            self._path.unlink(missing_ok=True)


def payloads_in(path: Path) -> list[bytes]:
    """What was appended to a tail, in order, up to the first that is not whole. Empty if there is no such file. Raises
    OSError, and ValueError for a file of another kind."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    if not MAGIC.startswith(content[: len(MAGIC)].rstrip(b"\0")):  # its beginning may be all that came about
        raise ValueError(f"{path.name} is not of this version")
    found: list[bytes] = []
    at = len(MAGIC)
    while at + HEAD.size <= len(content):
        length, checksum = HEAD.unpack_from(content, at)
        payload = content[at + HEAD.size : at + HEAD.size + length]
        if not 0 < length == len(payload) or zlib.crc32(payload) != checksum:
            break
        found.append(payload)
        at += HEAD.size + length
    return found
