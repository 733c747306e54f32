"""The file beside the database: what of it is read back, whatever has happened to it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.store.tail import BYTES_MAX, HEAD, MAGIC, Tail, payloads_in
from tests.adapters.store.test_sqlite import disk_full_at

COUNTER = itertools.count()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def written(folder: Path, payloads: list[bytes]) -> Path:
    path = folder / f"{next(COUNTER)}.tail"
    tail = Tail.begin(path)
    assert all(tail.append(payload) for payload in payloads)
    tail.close(needed=True)
    return path


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
    size = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:size] + b"\0" * data.draw(st.integers(0, 20)))

    ends = itertools.accumulate((HEAD.size + len(payload) for payload in payloads), initial=len(MAGIC))
    assert payloads_in(path) == payloads[: max(0, sum(end <= size for end in ends) - 1)]


@given(payloads=Payloads, data=st.data())
def test_what_was_damaged_is_not_read_nor_what_is_behind_it(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], data: st.DataObject
) -> None:
    path = written(tmp_path_factory.getbasetemp(), [*payloads, b"last"])
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(len(MAGIC), len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)

    found = payloads_in(path)
    assert len(found) <= len(payloads)
    assert found == payloads[: len(found)]


@given(before=Payloads, after=Payloads)
def test_a_tail_that_was_begun_anew_has_what_came_then_and_may_have_payloads_of_before_behind_it(
    tmp_path_factory: pytest.TempPathFactory, before: list[bytes], after: list[bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / f"{next(COUNTER)}.tail"
    tail = Tail.begin(path)
    assert all(tail.append(payload) for payload in before)
    tail.begin_anew()
    assert all(tail.append(payload) for payload in after)
    tail.close(needed=True)

    found = payloads_in(path)
    assert found[: len(after)] == after
    assert all(payload in before for payload in found[len(after) :])


def test_a_tail_has_no_more_than_so_many_bytes(path: Path) -> None:
    tail = Tail.begin(path)
    payload = b"x" * (BYTES_MAX // 4)

    assert [tail.append(payload) for _ in range(5)] == [True, True, True, False, False]
    tail.begin_anew()
    assert tail.append(payload)
    tail.close(needed=True)
    assert payloads_in(path)[0] == payload


def test_what_a_full_disk_cuts_off_is_not_in_and_the_next_stands_in_its_place(path: Path) -> None:
    tail = Tail.begin(path)
    assert tail.append(b"first")
    with disk_full_at(60):
        assert not tail.append(b"x" * 100)
    assert tail.append(b"second")
    tail.close(needed=True)

    assert payloads_in(path) == [b"first", b"second"]
