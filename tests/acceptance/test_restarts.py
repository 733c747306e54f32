"""What a restart does to a run that has stopped (nothing), that was asked to stop politely (nothing is lost), and that
kills every process that takes it up (it is given up)."""

from __future__ import annotations

import asyncio
import signal
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.core.stopping import RECOVERIES_MAX
from tests.acceptance.checks import essence, in_flight
from tests.acceptance.client import Client, nobody
from tests.acceptance.crashes import KEY, finished, killed, undisturbed
from tests.acceptance.processes import Crash
from tests.acceptance.scenarios import SCENARIOS, Scenario, figures_of, published
from tests.acceptance.world import Lived, World

pytestmark = pytest.mark.asyncio(loop_scope="session")

WAITING: dict[str, tuple[str, str]] = {
    "destructive_approved": ("interrupted", "approval"),
    "weather": ("interrupted", "tool_outputs"),
    "runaway": ("max_turns_exceeded", "max_turns"),
    "plan": ("completed", "None"),
}


@pytest.mark.parametrize("name", WAITING)
async def test_a_run_that_has_stopped_is_left_alone_by_restarts_and_goes_on_when_asked(
    world: World, tmp_path: Path, name: str
) -> None:
    scenario = SCENARIOS[name]
    expected, _ = await undisturbed(world, world.site(tmp_path / "undisturbed", *scenario.tools), scenario)
    site = world.site(tmp_path / "site", *scenario.tools)
    run, _ = await finished(world, site, scenario, nobody)
    assert (run["status"], str(run["reason"])) == WAITING[name]
    records = site.records()

    for _ in range(RECOVERIES_MAX + 1):
        async with world.gateway(site) as lived:
            await asyncio.sleep(0.05)
            assert await lived.client.get(run["id"]) == run
    assert site.records() == records
    assert site.files() == ["access.log", "errors.log", "notes.txt"]

    run, _ = await finished(world, site, scenario)
    assert essence(run) == essence(expected)


async def test_a_run_that_kills_three_processes_without_progress_is_given_up_in_words(
    world: World, tmp_path: Path
) -> None:
    """The first gateway dies once the model is asked, and each that takes the run up when it is asked again."""
    scenario, site = SCENARIOS["plan"], world.site(tmp_path)
    for _ in range(RECOVERIES_MAX):
        await killed(world, site, scenario, Crash(2, "after"))

    run, trace = await finished(world, site, scenario)

    assert (run["status"], run["output"], run["turns"], run["cost_usd"]) == ("failed", "", 0, 0)
    assert run["error"] == "the run was recovered 3 times in a row without any progress."
    assert run["error"] in run["why"]
    estimates = [event["estimateUsd"] for event in trace if event["type"] == "turn_start"]
    assert len(estimates) == RECOVERIES_MAX
    assert run["unconfirmed_cost_usd"] == sum(estimates, Decimal(0))
    records = site.records()
    await finished(world, site, scenario)
    assert site.records() == records


async def test_progress_between_crashes_keeps_a_run_from_being_given_up(world: World, tmp_path: Path) -> None:
    """Each gateway records one turn, and dies."""
    deaths, turns = 2 * RECOVERIES_MAX, 2 * RECOVERIES_MAX + 2
    scenario, site = replace(SCENARIOS["runaway"], limits={"max_turns": turns}), world.site(tmp_path)
    await killed(world, site, scenario, Crash(2, "after"))
    for _ in range(deaths):
        await killed(world, site, scenario, Crash(4, "after"))

    run, _ = await finished(world, site, scenario)

    assert (run["status"], run["reason"], run["turns"]) == ("max_turns_exceeded", "max_turns", turns)


# --- SIGTERM --------------------------------------------------------------------------------------------------------


async def started_and_under_way(client: Client, scenario: Scenario, kind: str) -> str:
    """A run whose newest event is of this kind."""
    run_id = await client.start(scenario.order(), KEY)
    async for event in client.watch(run_id):
        if event["type"] == kind:
            return run_id
    raise AssertionError(f"the run ended without {kind}")


async def told_to_end(lived: Lived) -> None:
    lived.process.send(signal.SIGTERM)
    assert await lived.process.ended() == 0


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_told_to_end_during_a_model_call_the_gateway_records_the_reply_and_the_next_one_goes_on(
    world: World, tmp_path: Path, stream: bool
) -> None:
    model = f"plan@latency={401 + stream}"
    scenario, site = replace(SCENARIOS["plan"], model=model, stream=stream), world.site(tmp_path)
    async with world.gateway(site) as lived:
        run_id = await started_and_under_way(lived.client, scenario, "turn_start")
        await told_to_end(lived)
    assert [event["type"] for event in site.log()] == ["run_started", "turn_start", "turn"]

    run, _ = await finished(world, site, scenario)

    assert run["id"] == run_id
    assert figures_of(run) == published("plan")
    assert run["unconfirmed_cost_usd"] == 0
    assert [world.asked[f"{model} {turn}"] for turn in (1, 2, 3)] == [1, 1, 1]


async def test_a_reply_that_takes_longer_than_the_grace_is_left_unconfirmed_and_asked_for_again(
    world: World, tmp_path: Path
) -> None:
    scenario = replace(SCENARIOS["plan"], model="plan@latency=1000")
    site = replace(world.site(tmp_path), grace_seconds=0.1)
    async with world.gateway(site) as lived:
        await started_and_under_way(lived.client, scenario, "turn_start")
        await told_to_end(lived)
    assert [event["type"] for event in site.log()] == ["run_started", "turn_start"]
    estimate = in_flight(site.log())

    run, _ = await finished(world, site, scenario)

    assert figures_of(run) == published("plan")
    assert run["unconfirmed_cost_usd"] == estimate > 0


async def test_told_to_end_during_a_tool_the_gateway_records_its_result_and_the_next_one_goes_on(
    world: World, tmp_path: Path
) -> None:
    scenario, site = SCENARIOS["slow"], world.site(tmp_path)
    async with world.gateway(site, scan_step_seconds=0.1) as lived:
        await started_and_under_way(lived.client, scenario, "tool_progress")
        await told_to_end(lived)
    assert site.log()[-1]["type"] == "tool_result"
    assert site.log()[-1]["content"] == "scanned 1200 of 1200 files"

    run, trace = await finished(world, site, scenario)

    assert (run["status"], run["turns"], run["tool_runs"]) == ("completed", 2, 1)
    assert sum(event["type"] == "tool_start" for event in trace) == 1


async def test_a_client_that_waits_is_answered_when_the_gateway_is_told_to_end(world: World, tmp_path: Path) -> None:
    scenario, site = replace(SCENARIOS["plan"], model="plan@latency=300"), world.site(tmp_path)
    async with world.gateway(site) as lived:
        run_id = await started_and_under_way(lived.client, scenario, "turn_start")
        waiting = asyncio.create_task(lived.client.stopped(run_id))
        await asyncio.sleep(0.05)
        await told_to_end(lived)
        run = await waiting
    assert (run["status"], run["turns"]) == ("running", 1)
