"""Tools that write, with an effect outside of everything that the gateway owns: a line in a file. Whenever the gateway
is killed, there is one line, or the run stops `in_doubt` for a person to settle; there are never two."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.checks import differences, essence, faults_of_log, faults_of_transcript
from tests.acceptance.client import Body, Person
from tests.acceptance.crashes import faults_after, finished, killed, points, undisturbed
from tests.acceptance.processes import Crash, Site
from tests.acceptance.scenarios import APPEND, PUT
from tests.acceptance.world import World, at_every

pytestmark = pytest.mark.asyncio(loop_scope="session")

WRITTEN = "Appended one line."
INTENT_DURABLE, RESULT_LOST = Crash(4, "after"), Crash(5, "before")
"""Around the call, whose `tool_start` is the fourth event: nothing is written yet, or all is but the result."""

NOT_WRITTEN = (INTENT_DURABLE, Crash(3, "after"))
WRITTEN_UNSAID = (RESULT_LOST, Crash(6, "before"))
"""The same two places by the other event of the write: a reply is one with the intent, a result with what follows."""


async def test_a_tool_that_is_not_idempotent_writes_once_or_its_run_stops_in_doubt(
    world: World, tmp_path: Path
) -> None:
    expected, trace = await undisturbed(world, world.site(tmp_path / "undisturbed", *APPEND.tools), APPEND)

    async def attempt(crash: Crash) -> list[str]:
        site = world.site(tmp_path / str(crash), *APPEND.tools)
        before = await killed(world, site, APPEND, crash)
        run, trace = await finished(world, site, APPEND)
        if crash in (*NOT_WRITTEN, *WRITTEN_UNSAID):
            doubt = {"status": "interrupted", "reason": "in_doubt"}
            written = 1 if crash in WRITTEN_UNSAID else 0
            return [*differences(doubt | {"lines": written}, run | {"lines": len(site.lines())})]
        return [
            *faults_after(before, site, trace, run, expected),
            *differences({"lines": [f"{run['id']}:1:0"]}, {"lines": site.lines()}),
        ]

    await at_every(points(len(trace)), attempt)


# --- settling a doubt -----------------------------------------------------------------------------------------------


def says_what_came_back(run: Body) -> tuple[str, Body] | None:
    return doubt(run) and ("tool_outputs", {"outputs": [{"call_id": doubt(run), "output": WRITTEN}]})


def runs_it_again(run: Body) -> tuple[str, Body] | None:
    return doubt(run) and ("approve", {"call_id": doubt(run)})


def skips_it(run: Body) -> tuple[str, Body] | None:
    return doubt(run) and ("reject", {"call_id": doubt(run), "reason": "leave it."})


def doubt(run: Body) -> str | None:
    return run["interruption"]["call_id"] if run["reason"] == "in_doubt" else None


SETTLED: dict[str, tuple[Person, int, str, int]] = {
    "what came back is posted": (says_what_came_back, 0, WRITTEN, 1),
    "it is run again": (runs_it_again, 1, WRITTEN, 1),
    "it is skipped": (skips_it, 0, "The user declined this call: leave it.", 0),
}
"""Who settles it: lines written by that, what the model reads, executions counted."""


@pytest.mark.parametrize("how", SETTLED)
@pytest.mark.parametrize("crash", [INTENT_DURABLE, RESULT_LOST], ids=["not written", "written"])
async def test_a_doubt_is_settled_and_the_run_completes(world: World, tmp_path: Path, how: str, crash: Crash) -> None:
    person, more_lines, answer, tool_runs = SETTLED[how]
    site = world.site(tmp_path, *APPEND.tools)
    await killed(world, site, APPEND, crash)
    lines = len(site.lines())

    run, trace = await finished(world, site, APPEND, person)

    assert (run["status"], run["output"]) == ("completed", "The line is written.")
    assert (run["turns"], run["tool_runs"], run["unconfirmed_cost_usd"]) == (2, tool_runs, 0)
    assert [message["content"] for message in run["messages"] if message["role"] == "tool"] == [answer]
    assert len(site.lines()) == lines + more_lines
    assert not [*faults_of_log(trace), *faults_of_transcript(run["messages"])]


def somebody_who_looks(site: Site) -> Person:
    """Settles every doubt by what is in the file."""

    def look(run: Body) -> tuple[str, Body] | None:
        written = any(line.startswith(run["id"]) for line in site.lines())
        return says_what_came_back(run) if written else runs_it_again(run)

    return look


@pytest.mark.parametrize(("first", "events"), [(INTENT_DURABLE, 9), (RESULT_LOST, 7)], ids=["not written", "written"])
async def test_killed_again_while_a_doubt_is_settled_there_is_still_one_line(
    world: World, tmp_path: Path, first: Crash, events: int
) -> None:
    expected, _ = await undisturbed(world, world.site(tmp_path / "undisturbed", *APPEND.tools), APPEND)

    async def attempt(again: Crash) -> list[str]:
        site = world.site(tmp_path / str(again), *APPEND.tools)
        person = somebody_who_looks(site)
        await killed(world, site, APPEND, first, person)
        before = await killed(world, site, APPEND, again, person)
        run, trace = await finished(world, site, APPEND, person)
        run["approved"] = []  # that it was run again on somebody's word is the one difference
        return [
            *faults_after(before, site, trace, run, expected),
            *differences({"lines": [f"{run['id']}:1:0"]}, {"lines": site.lines()}),
        ]

    await at_every(points(events), attempt)


# --- a tool that takes the key --------------------------------------------------------------------------------------


async def test_an_idempotent_tool_is_run_again_with_the_same_key(world: World, tmp_path: Path) -> None:
    expected, trace = await undisturbed(world, world.site(tmp_path / "undisturbed", *PUT.tools), PUT)

    async def attempt(crash: Crash) -> list[str]:
        site = world.site(tmp_path / str(crash), *PUT.tools)
        before = await killed(world, site, PUT, crash)
        run, trace = await finished(world, site, PUT)
        key = f"{run['id']}:1:0"
        keys = [key, key] if crash in WRITTEN_UNSAID else [key]
        return [
            *faults_after(before, site, trace, run, expected),
            *differences({"lines": [key], "keys": keys}, {"lines": site.lines(), "keys": site.lines("journal.asked")}),
        ]

    await at_every(points(len(trace)), attempt)
    assert essence(expected)["tool_runs"] == 1
