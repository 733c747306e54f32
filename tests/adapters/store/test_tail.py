"""The file beside the database: what of it is read back, whatever has happened to it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.store.tail import BYTES_MAX, CHECKSUM_BYTES, HEAD, MAGIC, ROOM_BYTES, Left, Tail, left_in
from tests.adapters.store.test_sqlite import disk_full_at

COUNTER = itertools.count()


def payloads_in(path: Path, mark: int = 7) -> list[bytes]:
    left = left_in(path)
    assert left is None or (left.mark == mark and left.payloads)
    return left.payloads if left else []


def begun(path: Path, mark: int = 7) -> Tail:
    tail = Tail(path, 0)
    tail.begin(mark)
    return tail


def written(folder: Path, payloads: list[bytes]) -> Path:
    path = folder / f"{next(COUNTER)}.tail"
    tail = begun(path)
    assert all(tail.append(payload) for payload in payloads)
    tail.close(needed=True)
    return path


def end_of(payloads: list[bytes]) -> int:
    return Left(7, payloads).end


Payloads = st.lists(st.binary(min_size=1, max_size=40), max_size=8)


def test_there_is_nothing_in_a_tail_that_is_not_there(path: Path) -> None:
    assert payloads_in(path) == []


@given(payloads=Payloads)
def test_what_was_appended_is_read_back_in_order(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes]
) -> None:
    assert payloads_in(written(tmp_path_factory.getbasetemp(), payloads)) == payloads


@given(payloads=Payloads, data=st.data())
def test_of_a_tail_that_was_cut_off_anywhere_a_prefix_is_read(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], data: st.DataObject
) -> None:
    path = written(tmp_path_factory.getbasetemp(), payloads)
    content = path.read_bytes()
    size = data.draw(st.integers(0, end_of(payloads) + 20))
    path.write_bytes(content[:size] + b"\0" * data.draw(st.integers(0, 20)))

    ends = itertools.accumulate((HEAD.size + CHECKSUM_BYTES + len(payload) for payload in payloads), initial=len(MAGIC))
    assert payloads_in(path) == payloads[: max(0, sum(end <= size for end in ends) - 1)]


@given(payloads=Payloads, data=st.data())
def test_what_was_damaged_is_not_read_nor_what_is_behind_it(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], data: st.DataObject
) -> None:
    path = written(tmp_path_factory.getbasetemp(), [*payloads, b"last"])
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(len(MAGIC), end_of([*payloads, b"last"]) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)

    found = payloads_in(path)
    assert len(found) <= len(payloads)
    assert found == payloads[: len(found)]


@given(before=Payloads, after=Payloads)
def test_of_a_tail_that_was_begun_anew_what_came_then_is_read_and_if_nothing_came_what_was_before(
    tmp_path_factory: pytest.TempPathFactory, before: list[bytes], after: list[bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / f"{next(COUNTER)}.tail"
    tail = begun(path)
    assert all(tail.append(payload) for payload in before)
    tail.begin(8)
    assert all(tail.append(payload) for payload in after)
    tail.close(needed=True)

    assert left_in(path) == (Left(8, after) if after else Left(7, before) if before else None)


def test_a_tail_has_no_more_than_so_many_bytes(path: Path) -> None:
    tail = begun(path)
    payload = b"x" * (BYTES_MAX // 4)

    assert [tail.append(payload) for _ in range(5)] == [True, True, True, False, False]
    tail.begin(8)
    assert tail.append(payload)
    tail.close(needed=True)
    assert payloads_in(path, mark=8) == [payload]


def test_a_tail_takes_nothing_before_it_is_begun(path: Path) -> None:
    tail = Tail(path, 7)

    assert not tail.append(b"x")
    tail.close(needed=False)


def test_a_tail_that_has_given_way_takes_nothing_until_it_is_begun_anew(path: Path) -> None:
    tail = begun(path)
    assert path.stat().st_size == ROOM_BYTES
    assert tail.append(b"kept")

    assert tail.gives_way()
    assert not tail.gives_way()
    assert path.stat().st_size == end_of([b"kept"])
    assert not tail.append(b"more")
    assert left_in(path) == Left(7, [b"kept"])

    tail.begin(8)
    assert path.stat().st_size == ROOM_BYTES
    assert tail.append(b"new")
    tail.close(needed=True)
    assert left_in(path) == Left(8, [b"new"])


def test_where_the_disk_has_no_room_for_what_a_tail_may_hold_it_takes_nothing(path: Path) -> None:
    with disk_full_at(ROOM_BYTES - 1):
        tail = begun(path)
        assert not tail.append(b"x")
        assert path.stat().st_size <= len(MAGIC)
        assert not tail.gives_way()
    tail.begin(8)
    assert tail.append(b"x")
    tail.close(needed=True)
    assert left_in(path) == Left(8, [b"x"])


def test_a_tail_that_cannot_be_made_takes_nothing(path: Path) -> None:
    path.mkdir()
    tail = begun(path)

    assert not tail.append(b"x")
    assert not tail.gives_way()


def test_what_a_full_disk_cuts_off_is_not_in_and_the_next_stands_in_its_place(path: Path) -> None:
    tail = begun(path)
    assert tail.append(b"first")
    with disk_full_at(60):
        assert not tail.append(b"x" * 100)
    assert tail.append(b"second")
    tail.close(needed=True)

    assert payloads_in(path) == [b"first", b"second"]
