"""Appends of several times as one transaction writes them."""

from __future__ import annotations

from gateway.adapters.store.works import Append, joined, last_said


def append_of(run_id: str, seq: int, count: int, *, row: int | None = None, figures: int | None = None) -> Append:
    said = [None if value is None else (run_id, value) for value in (row, figures)]
    return Append((run_id, seq, count, b"\n".join([b"x"] * count)), True, said[0], said[1], None)


def test_of_each_run_the_last_row_is_said_and_the_figures_behind_it() -> None:
    appends = [
        append_of("a", 1, 1, row=1),
        append_of("b", 1, 1, row=2),
        append_of("a", 2, 1, figures=3),
        append_of("b", 2, 1, figures=4),
        append_of("a", 3, 1, figures=5),
        append_of("b", 3, 1, row=6),
        append_of("c", 9, 1),
    ]

    assert last_said(appends) == ([("a", 1), ("b", 6)], [("a", 5)])


def test_events_that_follow_one_another_are_one_row_and_others_are_not() -> None:
    rows = [append_of("a", 1, 2), append_of("b", 1, 1), append_of("a", 3, 1), append_of("a", 9, 1)]

    assert joined(append.events for append in rows) == [
        ("a", 1, 3, b"x\nx\nx"),
        ("a", 9, 1, b"x"),
        ("b", 1, 1, b"x"),
    ]
    large = [("a", 1, 1, b"x" * 40_000), ("a", 2, 1, b"x" * 40_000), ("a", 3, 1, b"x")]
    assert [(seq, count) for _, seq, count, _ in joined(large)] == [(1, 1), (2, 2)]
