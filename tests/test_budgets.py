"""Hard budgets over HTTP: replies are capped, nothing is overspent, and a provider that does is reported."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.serving import PRICES, Gateway, refused

BUDGETS = [Decimal(n) / 10_000 for n in (3, 5, 8, 11, 15, 19, 30)]


def hard(usd: Decimal | float, **more: Any) -> dict[str, Any]:
    return {"max_budget_usd": float(usd), "budget_mode": "hard", **more}


@pytest.mark.parametrize("budget", BUDGETS)
async def test_a_hard_budget_is_never_overspent(gateway: Gateway, budget: Decimal) -> None:
    run = await gateway.run("runaway", limits=hard(budget, max_turns=None))

    assert (run["status"], run["reason"]) == ("budget_exceeded", "max_budget")
    assert run["cost_usd"] + run["unconfirmed_cost_usd"] <= budget
    assert all("fault" not in event for event in await gateway.trace(run["id"]))


@pytest.mark.parametrize("budget", BUDGETS)
async def test_a_soft_budget_is_overspent_by_less_than_one_turn(gateway: Gateway, budget: Decimal) -> None:
    run = await gateway.run("runaway", limits={"max_budget_usd": float(budget), "max_turns": None})
    turns = [event for event in await gateway.trace(run["id"]) if event["type"] == "turn"]

    assert run["status"] == "budget_exceeded"
    assert budget <= run["cost_usd"] < budget + turns[-1]["turnCostUsd"]


async def test_every_reply_is_capped_by_what_is_left(gateway: Gateway) -> None:
    run = await gateway.run("plan", limits=hard(0.05))
    turns = [event for event in await gateway.trace(run["id"]) if event["type"] == "turn"]

    assert run["status"] == "completed"
    for turn in turns:
        spent_before = turn["costUsd"] - turn["turnCostUsd"]
        assert turn["completion_tokens"] <= turn["maxTokens"]
        assert Decimal("0.04") < spent_before + turn["maxTokens"] * PRICES["*"].output / 1_000_000 < Decimal("0.05")


async def test_an_answer_that_the_budget_cut_is_no_answer_and_a_raised_budget_goes_on(gateway: Gateway) -> None:
    runs = [await gateway.run("wordy", limits=hard(usd, max_turns=9)) for usd in (0.003, 0.1)]

    assert [run["status"] for run in runs] == ["budget_exceeded", "completed"]
    assert runs[0]["output"] == ""
    got = await gateway.command(runs[0]["id"], "resume", {"limits": {"max_budget_usd": 0.1}})
    assert got.json["status"] == "completed"


async def test_resuming_a_hard_budget_that_buys_no_reply_is_refused_with_the_figures(gateway: Gateway) -> None:
    run = await gateway.run("runaway", limits=hard(0.002, max_turns=None))
    got = await gateway.command(run["id"], "resume", {"limits": {"max_budget_usd": 0.00201}})

    refused(got, 409, param="limits.max_budget_usd", words="raise it")


async def test_a_provider_that_ignores_the_cap_is_reported(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    run = await gateway.run("deaf", limits=hard(0.004))
    turns = [event for event in await gateway.trace(run["id"]) if event["type"] == "turn"]

    assert turns[0]["fault"].startswith("the reply cost $")
    assert "a fault of the provider" in caplog.text
