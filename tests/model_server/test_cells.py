"""Single moves of the model's memory. Whole histories of it are in test_scheduler.py."""

from __future__ import annotations

from model_server.cells import Cells, Line


def parked(cells: Cells, *tokens: int) -> Line:
    line = cells.seat(None, 0)
    assert cells.extend(line, list(tokens))
    cells.park(line)
    return line


def test_an_idle_sequence_that_is_left_with_no_cell_is_dropped_and_frees_its_number() -> None:
    cells = Cells(cells_max=6, lines_max=2)
    oldest, newest = parked(cells, 1, 2), parked(cells, 3, 4)

    assert cells.make_room(4)  # just what the oldest has, besides what is free

    assert list(cells.lines.values()) == [newest]
    assert (oldest.tokens, cells.in_use) == ([], 2)
    assert cells.seat(None, 0).id != newest.id


def test_an_idle_sequence_gives_no_more_of_its_end_than_is_needed() -> None:
    cells = Cells(cells_max=6, lines_max=2)
    oldest, newest = parked(cells, 1, 2, 3), parked(cells, 4, 5)

    assert cells.make_room(2)

    assert (oldest.tokens, newest.tokens) == ([1, 2], [4, 5])
    assert cells.evicted == 1
