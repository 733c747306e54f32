"""One folder of files, out of which no path leads. Every way out gets words: the model can act on them.

Only the folder's own regular files can be used: no subfolders, no links. So a path is one name, which is looked up in
the folder and never followed: nothing that takes a file's place meanwhile can make it mean one elsewhere.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from msgspec import Struct

from gateway.core.errors import ToolFailed

HINT = "Call list_files to see what exists."
NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 4096
ENTRIES_MAX = 5000
"""What a list looks at: some 4 ms, for which everything else in the process waits."""

READ_BYTES_MIN = 4096  # at a time: a file may say that it is empty and grow meanwhile

# A FIFO is opened without waiting for its other end; a link that took a file's place is not followed.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link, and links are not followed",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


class Listing(Struct, frozen=True):
    """Names, sorted. `whole`: all entries of the folder were looked at."""

    names: list[str]
    whole: bool


class Folder:
    """Lists, reads and deletes. Raises ToolFailed, permanent where no other wording of the call can help."""

    def __init__(self, path: Path, *, file_bytes_max: int) -> None:
        self._path = path
        self._file_bytes_max = file_bytes_max

    def listing(self, entries_max: int = ENTRIES_MAX) -> Listing:
        """The regular files. A name that is not UTF-8 cannot be said in JSON, so it is left out."""
        try:
            with os.scandir(self._path) as entries:
                files = [each.name for each in islice(entries, entries_max) if each.is_file(follow_symlinks=False)]
                return Listing(sorted(filter(_sayable, files)), whole=next(entries, None) is None)
        except OSError as error:
            raise in_words(error, "the directory") from error

    def read(self, path: str) -> str:
        name = name_in_folder(path)
        try:
            descriptor = self._open(f"{self._path}/{name}", name, path)
            try:
                found = os.fstat(descriptor)
                _require_regular(found, name)
                data = _read_at_most(descriptor, self._file_bytes_max + 1, expected=found.st_size)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise in_words(error, path) from error
        return self._text(name, data, max(found.st_size, len(data)))

    def _open(self, where: str, name: str, path: str) -> int:
        """What it is, is looked at once it is open: with these flags that follows no link, waits for nobody, and does
        nothing to a pipe."""
        try:
            return os.open(where, _READ)
        except FileNotFoundError:
            os.lstat(self._path)  # raises if it is the folder that is missing
            raise ToolFailed(f"no such file: {path}. {HINT}") from None
        except OSError:
            _require_regular(os.lstat(where), name)
            raise

    def identity(self, path: str) -> str | None:
        """What tells a file from another one that takes its name later; None if there is none."""
        name = name_in_folder(path)
        with self._opened(path) as folder:
            try:
                found = os.lstat(name, dir_fd=folder)
            except FileNotFoundError:
                return None
        return f"{found.st_dev}:{found.st_ino}:{found.st_mtime_ns}"

    def delete(self, path: str) -> bool:
        """Whether the file was there. A name is unlinked, never what it points to."""
        name = name_in_folder(path)
        with self._opened(path) as folder:
            try:
                _require_regular(os.lstat(name, dir_fd=folder), name)
                os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                return False
        return True

    def _text(self, name: str, data: bytes, size: int) -> str:
        if len(data) > self._file_bytes_max:
            raise ToolFailed(f"{name} is too large: {size} bytes, and at most {self._file_bytes_max} can be read.")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            raise ToolFailed(f"{name} is binary: only text in UTF-8 can be read.")
        return text

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """The folder, open, for what takes more than one step in it."""
        try:
            folder = os.open(self._path, _FOLDER)
            try:
                yield folder
            finally:
                os.close(folder)
        except OSError as error:
            raise in_words(error, path) from error


def in_words(error: OSError, path: str) -> ToolFailed:
    """What the operating system refuses, in words that name what was asked for."""
    match error:
        case PermissionError():
            return ToolFailed(f"permission denied: {path}", permanent=True)
        case FileNotFoundError():
            return ToolFailed("the directory of the files does not exist.", permanent=True)
        case _:
            return ToolFailed(f"{path} cannot be used: {error.strerror}. {HINT}")


def name_in_folder(path: str) -> str:
    """The one name that a path means. Raises ToolFailed for whatever is not a file right in the folder."""
    if not path:
        raise ToolFailed(f"the path is empty: name a file. {HINT}")
    if "\0" in path or not _sayable(path):
        raise ToolFailed(f"the path holds characters that no file name has. {HINT}")
    if len(path.encode()) > PATH_BYTES_MAX:
        raise ToolFailed(f"the path is too long: {len(path.encode())} bytes. {HINT}")
    if path.startswith("/"):
        raise ToolFailed(f"permission denied: {path}", permanent=True)
    name = posixpath.normpath(path)
    if name.split("/")[0] == "..":
        raise ToolFailed(f"{path} leads out of the directory. {HINT}")
    if "/" in name:
        raise ToolFailed(f"{path} is not in the directory itself: only its own files can be used. {HINT}")
    if len(name.encode()) > NAME_BYTES_MAX:
        raise ToolFailed(f"the file name is too long: {len(name.encode())} bytes, at most {NAME_BYTES_MAX}. {HINT}")
    return name


def _require_regular(found: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise ToolFailed(f"{name} is not a file: it is {kind}. {HINT}")


def _read_at_most(descriptor: int, bytes_max: int, *, expected: int) -> bytes:
    """To its end, which a file says by giving less than was asked for. What is asked for is set aside at once, so it is
    not much more than is there."""
    data = b""
    while (left := min(bytes_max - len(data), max(expected + 1, READ_BYTES_MIN))) > 0:
        more = os.read(descriptor, left)
        data += more
        if len(more) < left:
            break
    return data


def _sayable(name: str) -> bool:
    return name.isascii() or name == name.encode(errors="ignore").decode()
