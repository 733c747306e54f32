from __future__ import annotations

from tests.conformance.abilities import ABILITIES, CLIENTS, HERE
from tests.conformance.table import BEGIN, END, PAGE, written


def test_the_page_has_the_table_that_the_suite_holds_the_clients_to() -> None:
    page = PAGE.read_text()

    assert page.count(BEGIN) == page.count(END) == 1
    assert page == written(page), "run `python -m tests.conformance.table`"


def test_notes_and_reasons_are_about_abilities_that_there_are() -> None:
    ways = [way for client in CLIENTS for way in client.ways.values()]

    assert all({*way.notes, *way.cannot} <= ABILITIES.keys() for way in ways)
    assert not any(way.notes.keys() & way.cannot.keys() for way in ways)


def test_every_driver_is_of_a_client_and_every_client_has_one() -> None:
    drivers = {path.name for path in (HERE / "clients").glob("drive_*")}

    assert drivers == {client.driver for client in CLIENTS}
