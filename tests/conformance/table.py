"""The table of what each client can do, in configs/CLIENTS.md. `python -m tests.conformance.table` writes it anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.conformance.abilities import ABILITIES, API, CLIENTS, Client, Stop, Way

PAGE = Path(__file__).parent.parent.parent / "configs" / "CLIENTS.md"
BEGIN, END = "<!-- table: made by `python -m tests.conformance.table` -->\n", "<!-- end of table -->\n"
APIS: dict[API, str] = {"chat": "chat completions", "responses": "responses"}
HEAD = ["client", "API", *ABILITIES.values(), "tells of a stop by", "run id in", "takes headers in"]


class Notes:
    """Numbered in the order in which they are first needed; the same words have one number."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def number(self, words: str) -> int:
        if words not in self.words:
            self.words.append(words)
        return self.words.index(words) + 1


def table() -> str:
    notes = Notes()
    rows = [line(HEAD), line(["---"] * len(HEAD)), *(line(row) for row in rows_of(notes))]
    below = [f"{number}. {words[0].upper()}{words[1:]}.\n" for number, words in enumerate(notes.words, 1)]
    return "".join([*rows, "\n", *below])


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def rows_of(notes: Notes) -> Iterator[list[str]]:
    for client in CLIENTS:
        for api, way in client.ways.items():
            can = [cell(way, ability, notes) for ability in ABILITIES]
            how = [stop(way.stop), way.run_id or "the text", client.headers] if way.stop else [""] * 3
            yield [named(client), APIS[api], *can, *how]


def named(client: Client) -> str:
    return f"{client.name} {client.version}"


def cell(way: Way, ability: str, notes: Notes) -> str:
    if ability in way.cannot:
        return f"no ({notes.number(way.cannot[ability])})"
    return f"yes ({notes.number(way.notes[ability])})" if ability in way.notes else "yes"


def stop(stop: Stop) -> str:
    if stop.raised:
        return f"raises `{stop.word}`"
    return f"`{stop.where}`: `{stop.word}`" if stop.word else "the text"


def written(page: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
