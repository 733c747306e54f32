"""How the process holds what it has imported, which stays for as long as it runs: out of the garbage collector's sight
and on large pages. A turn touches most of it, which on pages of 4 KiB is more than a processor remembers the addresses
of (its TLB); and a miss costs most in a virtual machine."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

GC_THRESHOLDS = (20_000, 20, 50)  # runs make few cycles
LARGE_PAGE_BYTES = 2 * 1024 * 1024
MADV_HUGEPAGE = 14
MADV_COLLAPSE = 25  # Linux 6.1: now, and not whenever the kernel comes round


def settle() -> None:
    """Once, when everything is imported and nothing has begun."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    if sys.platform == "linux":
        with suppress(OSError, AttributeError, ValueError):  # an older kernel: then as it was
            use_large_pages()


def use_large_pages() -> None:
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for start, length in large(private(Path("/proc/self/maps").read_text().splitlines())):
        advise(start, length, MADV_HUGEPAGE)
        advise(start, length, MADV_COLLAPSE)


def private(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """The heap: what is written, and nobody's file. A line is `start-end rw-p offset device inode path`."""
    for line in lines:
        addresses, permissions, _, _, _, *path = line.split(maxsplit=5)
        if permissions == "rw-p" and path in ([], ["[heap]"]):
            start, end = addresses.split("-")
            yield int(start, 16), int(end, 16)


def large(mappings: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The whole large pages within each, as start and length."""
    for start, end in mappings:
        first = -(-start // LARGE_PAGE_BYTES) * LARGE_PAGE_BYTES
        length = (end - first) // LARGE_PAGE_BYTES * LARGE_PAGE_BYTES
        if length > 0:
            yield first, length
