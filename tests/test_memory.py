"""Where the large pages are put. That it helps is measured by `gateway bench overhead`."""

from __future__ import annotations

import subprocess
import sys

from gateway.memory import LARGE_PAGE_BYTES, large, private

MIB = 1024 * 1024
MAPS = """\
55d0c0000000-55d0c0001000 r-xp 00000000 fe:00 1234 /usr/bin/python3
55d0c0400000-55d0c1000000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000300000 rw-p 00000000 00:00 0
7f0000300000-7f0000301000 ---p 00000000 00:00 0
7f0000400000-7f0000800000 rw-p 00000000 fe:00 99 /var/lib/x.so
7f0000900000-7f0000a00000 rw-s 00000000 00:01 7 /dev/zero (deleted)
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]
"""


def test_only_what_is_private_and_written_and_no_file_counts() -> None:
    assert list(private(MAPS.splitlines())) == [(0x55D0C0400000, 0x55D0C1000000), (0x7F0000000000, 0x7F0000300000)]


def test_only_whole_large_pages_within_a_mapping_are_taken() -> None:
    edge = 10 * LARGE_PAGE_BYTES

    assert list(large([(edge, edge + 5 * MIB)])) == [(edge, 4 * MIB)]
    assert list(large([(edge + 1, edge + 5 * MIB)])) == [(edge + 2 * MIB, 2 * MIB)]
    assert list(large([(edge + 1, edge + 3 * MIB), (edge, edge + MIB)])) == []


def test_a_process_that_has_settled_works_as_before() -> None:
    code = "import gateway.app, gateway.memory as m, gc; m.settle(); print(gc.get_freeze_count() > 1000, len('x' * 9))"

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert (ran.stdout, ran.stderr) == ("True 9\n", "")
