"""SIGKILL just before every event and right after it, where more is under way than one call: a subagent's run below
its parent's, with and without a person in it, and a turn of reads, writes and several approvals. What is left is
exported and replayed as well: a run that crashed is a recording like any other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import chain
from pathlib import Path

import pytest

from gateway.core.codec import decode_event
from gateway.replay.exporting import recording_of
from gateway.replay.playing import play
from tests.acceptance.checks import differences, essence, faults_of_log, faults_of_transcript, in_flight
from tests.acceptance.client import Body, Person, approver, nobody
from tests.acceptance.crashes import KEY, killed, points
from tests.acceptance.processes import Crash, Record, Site
from tests.acceptance.scenarios import FILE_TOOLS, Scenario
from tests.acceptance.world import World, at_every

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]


def from_the(place: int) -> Person:
    """Whoever judges what waits one after the other, from the first or from the last, and declines the fifth call."""

    def judge(run: Body) -> tuple[str, Body] | None:
        if run["reason"] != "approval":
            return None
        call = run["pending_approvals"][place]
        if call["call_id"].endswith(":4"):
            return "reject", {"call_id": call["call_id"], "reason": "keep the notes."}
        return "approve", {"call_id": call["call_id"], "args_hash": call["args_hash"]}

    return judge


MIXED = Scenario(model="mixed", tools=(*FILE_TOOLS, "put_line"))
LEAD = Scenario(model="delegate", agent="lead", tools=None)
TREES = {
    "delegate": (LEAD, nobody),
    "an approval inside": (Scenario(model="asks_cleaner", agent="lead", tools=None), approver),
    "verdicts from the last to the first": (MIXED, from_the(-1)),
    "verdicts from the first to the last": (MIXED, from_the(0)),
}
FILES = {
    "delegate": ["access.log", "errors.log", "notes.txt"],
    "an approval inside": ["errors.log", "notes.txt"],
    "verdicts from the last to the first": ["errors.log", "notes.txt"],
    "verdicts from the first to the last": ["errors.log", "notes.txt"],
}


@pytest.mark.parametrize("name", TREES)
async def test_killed_around_any_event_of_any_run_of_a_tree_all_end_as_if_it_never_was(
    world: World, tmp_path: Path, name: str
) -> None:
    scenario, person = TREES[name]
    calm = world.site(tmp_path / "undisturbed", *FILE_TOOLS, "put_line")
    expected = await all_finished(world, calm, scenario, person)
    assert all(run["status"] == "completed" for run in expected.values())

    async def attempt(crash: Crash) -> list[str]:
        site = world.site(tmp_path / str(crash), *FILE_TOOLS, "put_line")
        before = await killed(world, site, scenario, crash, person)
        lost = [in_flight(list(log)) for log in logs(site).values()]
        runs = await all_finished(world, site, scenario, person)
        faults = chain.from_iterable(faults_of_run(run, site) for run in runs.values())
        return [
            *faults,
            *differences(essences(expected), essences(runs)),
            *differences({"unconfirmed_cost_usd": sum(lost)}, next(iter(runs.values()))),
            *differences({"files": FILES[name]}, {"files": site.files()}),
            *([] if continued(before, site) else ["the events before the crash have changed"]),
            *([] if len(site.lines()) == len(calm.lines()) else [f"lines are {site.lines()}"]),
            *([fault async for fault in faults_of_replays(site)] if crash.when == "after" else []),
        ]

    await at_every(points(len(calm.records())), attempt)


async def all_finished(world: World, site: Site, scenario: Scenario, person: Person) -> dict[str, Body]:
    """What a gateway that does not crash makes of the site: every run, the one that was ordered first."""
    async with world.gateway(site) as lived:
        run = await lived.client.carry_through(scenario.order(), KEY, person)
        below = [run_id for run_id in logs(site) if run_id != run["id"]]
        return {run["id"]: run} | {run_id: await lived.client.stopped(run_id) for run_id in below}


def logs(site: Site) -> dict[str, list[Body]]:
    found: dict[str, list[Body]] = {}
    for event in site.log():
        found.setdefault(event["runId"], []).append(event)
    return found


def essences(runs: dict[str, Body]) -> Body:
    """Of every run, under the name that it has in every such tree."""
    top = next(iter(runs))
    return {run_id.replace(top, "RUN"): essence(nameless(run, top)) for run_id, run in runs.items()}


def nameless(run: Body, top: str) -> Body:
    return run | {"id": top}


def faults_of_run(run: Body, site: Site) -> Iterator[str]:
    for fault in [*faults_of_log(logs(site)[run["id"]]), *faults_of_transcript(run["messages"])]:
        yield f"{run['id']}: {fault}"


def continued(before: list[Record], site: Site) -> bool:
    """Whether every run still has the events that it had, and none has become two."""
    now = {(run_id, seq): body for run_id, seq, body in site.records()}
    return all(now.get((run_id, seq)) == body for run_id, seq, body in before)


async def faults_of_replays(site: Site) -> AsyncIterator[str]:
    for run_id in logs(site):
        events = [decode_event(body) for owner, _, body in site.records() if owner == run_id]
        played = await play(recording_of(run_id, events), stall_seconds=5)
        if played.difference is not None:
            yield f"the replay of {run_id} differs: {played.difference}"
