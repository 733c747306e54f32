"""The steps of a crash test: a run that never crashes, one whose gateway dies, and a gateway that finishes it."""

from __future__ import annotations

from tests.acceptance.checks import differences, essence, faults_of_log, faults_of_transcript
from tests.acceptance.client import GONE, Body, Person
from tests.acceptance.processes import KILLED, Crash, Record, Site
from tests.acceptance.scenarios import Scenario, figures_of, published
from tests.acceptance.world import World

KEY = "the-clients-key"


def points(events: int) -> list[Crash]:
    """Before and after every one of so many events."""
    return [Crash(at, when) for at in range(1, events + 1) for when in ("before", "after")]


async def undisturbed(world: World, site: Site, scenario: Scenario) -> tuple[Body, list[Body]]:
    """The run that never crashes, and its events."""
    run, trace = await finished(world, site, scenario)
    if scenario.figures is not None:
        assert figures_of(run) == published(scenario.figures)
    assert run["unconfirmed_cost_usd"] == 0
    return run, trace


async def finished(
    world: World, site: Site, scenario: Scenario, person: Person | None = None
) -> tuple[Body, list[Body]]:
    """What a gateway that does not crash makes of the site. The client comes back with the same key."""
    async with world.gateway(site) as lived:
        run = await lived.client.carry_through(scenario.order(), KEY, person or scenario.person)
        return run, await lived.client.trace(run["id"])


async def killed(
    world: World, site: Site, scenario: Scenario, crash: Crash, person: Person | None = None
) -> list[Record]:
    """What is durable after a gateway has killed itself around this event. Raises AssertionError if it did not."""
    async with world.gateway(site, crash) as lived:
        try:
            run = await lived.client.carry_through(scenario.order(), KEY, person or scenario.person)
        except GONE:
            run = None
        assert run is None, f"there was no such event: the run is {run and run['status']}"
        assert await lived.process.ended() == KILLED
    return site.records()


def faults_after(before: list[Record], site: Site, trace: list[Body], run: Body, expected: Body) -> list[str]:
    """What a crash has changed: of the log, the transcript, or the end of the run."""
    durable = site.records()
    return [
        *faults_of_log(trace),
        *faults_of_transcript(run["messages"]),
        *differences(essence(expected), essence(run)),
        *([] if durable[: len(before)] == before else ["the events before the crash have changed"]),
        *([] if len({run_id for run_id, _, _ in durable}) == 1 else ["there is more than one run"]),
        *([] if len(durable) == len(trace) else ["the trace is not the log"]),
    ]
