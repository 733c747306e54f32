"""SIGKILL just before every event that a run records and right after it; a second gateway finishes the run by itself,
and the run ends as one that never crashed. Every event of every scenario, none left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.core.codec import decode_event
from gateway.core.loop import replay
from tests.acceptance.checks import differences, in_flight
from tests.acceptance.crashes import faults_after, finished, killed, points, undisturbed
from tests.acceptance.processes import Crash
from tests.acceptance.scenarios import SCENARIOS, published
from tests.acceptance.world import World, at_every

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]


@pytest.mark.parametrize("name", SCENARIOS)
async def test_killed_around_any_event_a_run_ends_as_if_it_never_was(world: World, tmp_path: Path, name: str) -> None:
    scenario = SCENARIOS[name]
    expected, trace = await undisturbed(world, world.site(tmp_path / "undisturbed", *scenario.tools), scenario)

    async def attempt(crash: Crash) -> list[str]:
        site = world.site(tmp_path / str(crash), *scenario.tools)
        before = await killed(world, site, scenario, crash)
        lost = in_flight(site.log())
        run, trace = await finished(world, site, scenario)
        return [
            *faults_after(before, site, trace, run, expected),
            *differences({"unconfirmed_cost_usd": lost}, run),
            *differences({"files": expected_files(name)}, {"files": site.files()}),
        ]

    await at_every(points(len(trace)), attempt)


def expected_files(name: str) -> list[str]:
    deleted = name in ("destructive_approved", "double_delete")
    return ["errors.log", "notes.txt"] if deleted else ["access.log", "errors.log", "notes.txt"]


AGAIN = [Crash(1, "before"), Crash(1, "after"), Crash(2, "after")]
"""The first events of a gateway that takes a run up: `run_resumed`, and what the run does next."""


@pytest.mark.parametrize("again", AGAIN, ids=str)
async def test_killed_again_while_it_is_taken_up_a_run_still_ends_as_if_it_never_was(
    world: World, tmp_path: Path, again: Crash
) -> None:
    scenario = SCENARIOS["plan"]
    expected, trace = await undisturbed(world, world.site(tmp_path / "undisturbed"), scenario)

    async def attempt(crash: Crash) -> list[str]:
        site = world.site(tmp_path / str(crash))
        await killed(world, site, scenario, crash)
        lost = in_flight(site.log())
        before = await killed(world, site, scenario, again)
        lost += in_flight(site.log()) if again.at == 2 else 0
        run, trace = await finished(world, site, scenario)
        return [
            *faults_after(before, site, trace, run, expected),
            *differences({"unconfirmed_cost_usd": lost}, run),
        ]

    # A run that has begun and not ended: before its first event there is nothing to take up, after its last neither,
    # and the answer and the stop are written together.
    await at_every([Crash(at, "after") for at in range(1, len(trace) - 1)], attempt)


async def test_killed_after_the_second_turns_tool_result_a_run_is_restored_as_published(
    world: World, tmp_path: Path
) -> None:
    site = world.site(tmp_path)
    records = await killed(world, site, SCENARIOS["plan"], Crash(9, "after"))
    run = replay(records[0][0], (decode_event(body) for _, _, body in records))

    assert published("kill_after_turn_2") == {
        "turns": run.turns,
        "tool_runs": run.tool_runs,
        "messages": len(run.messages),
        "cost_usd": run.cost_usd,
        "status": run.status,
    }
