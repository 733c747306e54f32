"""One gateway a file: a lock that the kernel takes back when the process ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from gateway.core.errors import Unavailable


class FileLock:
    """Holds `PATH.lock`. The file stays when the lock is released: removing it would race with the next opener. It
    names its holder until that lets go of it in good order; where a name is found in it, a process has died."""

    def __init__(self, descriptor: int, was_left_in_order: bool) -> None:
        self._descriptor = descriptor
        self.was_left_in_order = was_left_in_order

    @classmethod
    def take(cls, database: Path) -> FileLock:
        """Raises Unavailable if another process, or another store of this one, has it."""
        descriptor = os.open(database.with_name(database.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            words = f"another gateway{holder} uses it; choose another with --store"
            raise Unavailable(f"The store {database} is in use: {words}.") from None
        was_left_in_order = not os.pread(descriptor, 1, 0)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        return cls(descriptor, was_left_in_order)

    def release(self, *, in_order: bool) -> None:
        if in_order:
            os.truncate(self._descriptor, 0)
        os.close(self._descriptor)


def _holder(descriptor: int) -> str:
    """Who has it, for people; a lock is as good without."""
    with contextlib.suppress(OSError, ValueError):
        return f" (process {int(os.pread(descriptor, 20, 0))})"
    return ""
