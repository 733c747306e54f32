"""Eight runs under way at once, and a gateway that somebody kills from outside again and again."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.acceptance.checks import (
    differences,
    essence,
    faults_of_log,
    faults_of_transcript,
    lost_in_flight,
)
from tests.acceptance.client import GONE, Body, Client
from tests.acceptance.processes import Process, Site
from tests.acceptance.scenarios import APPEND, FILE_TOOLS, PUT, SCENARIOS, Scenario
from tests.acceptance.test_writing_tools import somebody_who_looks
from tests.acceptance.world import World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

ROUNDS_MAX = 40
KILLS_MIN = 3
READERS = ("plan", "plan_streamed", "recover_worded", "repeat", "repeat_cached")
LONGEST = Scenario(model="runaway", figures="runaway_cap_8", limits={"max_turns": 8})


class Case(Struct, frozen=True):
    """One of the runs. Its model's name is its own, so that the provider can say what it was asked for this run."""

    key: str
    scenario: Scenario

    def slowed(self, latency_ms: float) -> Case:
        return Case(self.key, replace(self.scenario, model=f"{self.scenario.model}@latency={latency_ms:g}"))


CASES = [
    *(Case(name, SCENARIOS[name]) for name in READERS),
    Case("longest", LONGEST),
    Case("append", APPEND),
    Case("put", PUT),
]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_killed_at_random_moments_all_runs_end_with_their_figures_and_no_turn_is_paid_twice(
    world: World, tmp_path: Path, seed: int
) -> None:
    calm, site = (world.site(tmp_path / name, *FILE_TOOLS, "append_line", "put_line") for name in ("calm", "site"))
    async with world.gateway(calm) as lived:
        expected = await all_carried(lived.client, calm, CASES)
    slowed = [case.slowed(300 + 10 * place + seed / 10) for place, case in enumerate(CASES)]

    ended, kills = await carried_through_kills(world, site, slowed, random.Random(seed))

    assert kills >= KILLS_MIN
    log = site.log()
    assert Counter(event["type"] for event in log)["run_started"] == len(CASES)
    faults = [
        f"{case.key}: {fault}"
        for case in slowed
        for fault in faults_of(ended[case.key], expected[case.key], log, world.asked, case.scenario.model)
    ]
    assert not faults, "\n".join(faults)
    assert sorted(line.split(":")[0] for line in site.lines()) == sorted(ended[key]["id"] for key in ("append", "put"))


def faults_of(run: Body, expected: Body, log: list[Body], asked: Counter[str], model: str) -> list[str]:
    own = [event for event in log if event["runId"] == run["id"]]
    announced = Counter(event["turn"] for event in own if event["type"] == "turn_start")
    sent = {turn: asked[f"{model} {turn}"] for turn in announced}
    return [
        *faults_of_log(own),
        *faults_of_transcript(run["messages"]),
        *differences(essence(expected | {"approved": []}), essence(run | {"approved": []})),
        *differences({"unconfirmed_cost_usd": lost_in_flight(own)}, run),
        *(
            f"turn {turn} was sent {times} times and announced {announced[turn]}"
            for turn, times in sent.items()
            if not 1 <= times <= announced[turn]
        ),
    ]


async def carried_through_kills(
    world: World, site: Site, cases: list[Case], chance: random.Random
) -> tuple[dict[str, Body], int]:
    """Every run at its end, and how many gateways it took besides the last."""
    ended: dict[str, Body] = {}
    for kills in range(ROUNDS_MAX):
        left = [case for case in cases if case.key not in ended]
        async with world.gateway(site) as lived:
            death = asyncio.create_task(kill_in(lived.process, moment(chance, kills)))
            ended |= await all_carried(lived.client, site, left)
            if len(ended) == len(cases):
                death.cancel()
                return ended, kills
            await death
    raise AssertionError(f"after {ROUNDS_MAX} gateways only {sorted(ended)} have ended")


def moment(chance: random.Random, kills: int) -> float:
    """Seconds to live. Every second gateway lives long enough for a turn: a run that is killed three times without
    progress is given up on purpose."""
    return chance.uniform(0.9, 1.1) if kills % 2 else chance.uniform(0.0, 0.45)


async def kill_in(process: Process, seconds: float) -> None:
    await asyncio.sleep(seconds)
    await process.kill()


async def all_carried(client: Client, site: Site, cases: list[Case]) -> dict[str, Body]:
    """Those runs that ended before the gateway died."""
    runs = await asyncio.gather(*(carried(client, site, case) for case in cases))
    return {case.key: run for case, run in zip(cases, runs, strict=True) if run is not None}


async def carried(client: Client, site: Site, case: Case) -> Body | None:
    person = somebody_who_looks(site) if case.key == "append" else case.scenario.person
    try:
        return await client.carry_through(case.scenario.order(), case.key, person)
    except GONE:
        return None
