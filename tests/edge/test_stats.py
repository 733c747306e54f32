"""/v1/stats: what the store says of many runs, the same as the runs themselves say."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import aiohttp
import pytest
from msgspec.structs import replace

from gateway.app import serving
from gateway.config import Config
from tests.serving import Gateway, refused


async def test_the_figures_are_those_of_the_runs(gateway: Gateway) -> None:
    runs = [await gateway.run("plan"), await gateway.run("runaway", limits={"max_turns": 12})]
    runs += [await gateway.run("destructive"), await gateway.run("plan@fault=401")]

    stats = (await gateway.get("/v1/stats")).json

    today = datetime.now(UTC).date()
    assert (stats["runs"], stats["cost_usd"]) == (4, sum(run["cost_usd"] for run in runs))
    assert len(stats["by_day"]) == 30
    assert stats["by_day"][-1] == {"day": str(today), "runs": 4, "cost_usd": stats["cost_usd"]}
    ways = {(row["status"], row["reason"]): row["runs"] for row in stats["by_status"]}
    assert ways == {(run["status"], run["reason"]): 1 for run in runs}
    assert stats["by_agent"] == [
        {"agent": "files", "runs": 4, "cost_usd": stats["cost_usd"], "turns": sum(run["turns"] for run in runs)}
    ]
    assert {row["model"] for row in stats["by_model"]} == {run["model"] for run in runs}
    assert stats["most_expensive"][0] == {
        name: runs[1][name] for name in ("id", "agent", "model", "turns", "cost_usd", "status")
    }
    assert (stats["turns"]["max"], stats["cost"]["max"]) == (12, runs[1]["cost_usd"])
    bars = {bar["le"]: bar["runs"] for bar in stats["turns"]["histogram"] if bar["runs"]}
    assert bars == {1: 1, 2: 1, 3: 1, 12: 1}


async def test_what_a_subagent_spent_is_counted_once(config: Config) -> None:
    files = config.agents["files"]
    agents = {
        "research": replace(files, about="Investigates.", tools=("list_files", "read_file")),
        "lead": replace(files, model="delegate", tools=(), subagents=("research",)),
    }
    async with serving(replace(config, agents={**config.agents, **agents})) as url, aiohttp.ClientSession() as session:
        gateway = Gateway(url, session, config)
        run = await gateway.run("delegate", agent="lead")
        stats = (await gateway.get("/v1/stats", days=1)).json

    costs = {row["agent"]: row["cost_usd"] for row in stats["by_agent"]}
    assert run["status"] == "completed"
    assert (stats["runs"], stats["cost_usd"]) == (1, run["cost_usd"])
    assert set(costs) == {"lead", "research"}
    assert all(cost > 0 for cost in costs.values())
    assert sum(costs.values()) == run["cost_usd"]
    assert [each["id"] for each in stats["most_expensive"]] == [run["id"]]


async def test_a_store_without_runs_has_figures_of_nothing(gateway: Gateway) -> None:
    stats = (await gateway.get("/v1/stats", days=7)).json

    assert (stats["runs"], stats["cost_usd"], len(stats["by_day"])) == (0, Decimal(0), 7)


@pytest.mark.parametrize("days", ["0", "367", "1.5", "week"])
async def test_days_must_be_a_whole_number_within_a_year(gateway: Gateway, days: str) -> None:
    refused(await gateway.get("/v1/stats", days=days), 400, param="days")


async def test_a_parameter_that_means_nothing_is_refused(gateway: Gateway) -> None:
    refused(await gateway.get("/v1/stats", weeks=1), 400, param="weeks")
