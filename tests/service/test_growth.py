"""What a long run costs: bytes that grow with what each turn adds, and requests that encode what is new."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import closing
from typing import Any

import pytest

from gateway.adapters.providers.requests import Bodies
from gateway.core import codec
from gateway.core.messages import Assistant, System, Tool, User
from tests.serving import Gateway, Serve

TURNS = (25, 50, 100)
BYTES_BY_CHANCE = 0.03
"""Times and milliseconds are written with more or fewer digits."""


async def capped_at_each(gateway: Gateway) -> dict[int, dict[int, int]]:
    """The bytes of each turn's events of runaways that were stopped by these caps."""
    runs = {turns: await gateway.run("runaway", limits={"max_turns": turns}) for turns in TURNS}
    assert [run["turns"] for run in runs.values()] == list(TURNS)
    return {turns: await bytes_by_turn(gateway, run["id"]) for turns, run in runs.items()}


async def stored(gateway: Gateway, statement: str, *args: Any) -> list[Any]:
    await gateway.get("/v1/runs")  # what is in the tail is moved before anybody reads
    with closing(sqlite3.connect(f"file:{gateway.config.store.path}?mode=ro", uri=True)) as connection:
        return connection.execute(statement, args).fetchall()


async def bytes_by_turn(gateway: Gateway, run_id: str) -> dict[int, int]:
    found: dict[int, int] = defaultdict(int)
    turn = 0
    for (body,) in await stored(gateway, "SELECT body FROM events WHERE run_id = ? ORDER BY seq", run_id):
        for line in body.splitlines():
            turn += b'"type":"turn_start"' in line
            found[turn] += len(line)
    return found


async def test_a_runaways_record_grows_linearly_with_its_turns(gateway: Gateway) -> None:
    found = await capped_at_each(gateway)
    fixed = found[25][0]
    per_turn = {turns: (sum(by_turn.values()) - fixed) / turns for turns, by_turn in found.items()}

    assert per_turn[100] == pytest.approx(per_turn[25], rel=BYTES_BY_CHANCE)
    assert per_turn[50] == pytest.approx(per_turn[25], rel=BYTES_BY_CHANCE)


async def test_the_hundredth_turn_writes_as_much_as_the_tenth(gateway: Gateway) -> None:
    run = await gateway.run("runaway", limits={"max_turns": 100})
    by_turn = await bytes_by_turn(gateway, run["id"])

    assert by_turn[99] == pytest.approx(by_turn[10], rel=2 * BYTES_BY_CHANCE)
    assert max(by_turn[turn] for turn in range(1, 100)) < 1.1 * min(by_turn[turn] for turn in range(1, 100))


async def test_the_row_that_lists_show_does_not_grow(gateway: Gateway) -> None:
    runs = [await gateway.run("runaway", limits={"max_turns": turns}) for turns in TURNS]
    sizes = [sum(len(str(value)) for value in row) for row in await stored(gateway, "SELECT * FROM runs")]

    assert len(sizes) == len(runs)
    assert max(sizes) - min(sizes) < 20


async def test_each_message_is_encoded_once_however_often_it_is_sent(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[Any] = []

    def counting(value: Any) -> bytes:
        encoded.append(value)
        return codec.encode(value)

    monkeypatch.setitem(Bodies.__init__.__kwdefaults__, "encode", counting)
    sent: dict[int, int] = {}
    async with serve() as gateway:
        for turns in TURNS:
            encoded.clear()
            run = await gateway.run("runaway", limits={"max_turns": turns})
            sent[turns] = sum(isinstance(value, Assistant | Tool | User | System) for value in encoded)
            assert sent[turns] == len(run["messages"]) - 1  # the last reply is sent with the next request
