"""The page of totals, over a stubbed answer: what it draws, and a gateway that has none."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from playwright.async_api import expect

from tests.console.driving import Console, Open
from tests.serving import Gateway

DAYS = [
    {"day": str(date(2026, 11, 1) + timedelta(at)), "runs": 20 + at * 7 % 31, "cost_usd": 0.4 + at * 13 % 17 / 10}
    for at in range(30)
]
STATS: dict[str, Any] = {
    "since": "2026-11-01T00:00:00Z",
    "runs": 1234,
    "cost_usd": 42.4242,
    "by_day": DAYS,
    "by_status": [
        {"status": "completed", "reason": None, "runs": 980},
        {"status": "max_turns_exceeded", "reason": "max_turns", "runs": 120},
        {"status": "interrupted", "reason": "approval", "runs": 64},
        {"status": "failed", "reason": None, "runs": 40},
        {"status": "budget_exceeded", "reason": "max_budget", "runs": 24},
        {"status": "interrupted", "reason": "in_doubt", "runs": 6},
    ],
    "by_agent": [
        {"agent": "files", "runs": 900, "cost_usd": 30.1, "turns": 4000},
        {"agent": "research", "runs": 333, "cost_usd": 12.2242, "turns": 900},
        {"agent": "lead", "runs": 1, "cost_usd": 0.1, "turns": 2},
    ],
    "by_model": [{"model": "plan", "runs": 1234, "cost_usd": 42.4242, "turns": 4900}],
    "turns": {
        "p50": 3, "p90": 9, "p99": 20, "max": 40,
        "histogram": [
            {"le": le, "runs": runs}
            for le, runs in ((1, 90), (2, 310), (4, 520), (8, 210), (16, 80), (32, 20), (64, 4))
        ],
    },
    "cost": {"p50": 0.00247, "p90": 0.02, "p99": 0.31, "max": 1.2},
    "most_expensive": [
        {
            "id": f"run_00000000000000{at}", "agent": "files", "model": "runaway", "status": "max_turns_exceeded",
            "turns": 40 - at, "cost_usd": 1.2 - at / 10,
        }
        for at in range(5)
    ],
}  # fmt: skip


async def stub_stats(console: Console) -> None:
    await console.page.route("**/v1/stats?*", lambda route: route.fulfill(json=STATS))


async def test_totals_are_drawn(gateway: Gateway, open_console: Open) -> None:
    console = await open_console(gateway)
    await stub_stats(console)
    await console.page.keyboard.press("g")
    await console.page.keyboard.press("t")

    await console.sees(".figures", "1,234")
    await console.sees(".figures", "$42.42")
    days = console.get("svg.chart[aria-label^='Cost per day over 30 days']")
    await expect(days.locator("rect")).to_have_count(30)
    await expect(console.get("svg.chart[aria-label^='Runs by number of turns']").locator("rect")).to_have_count(7)
    await expect(console.get("ul[aria-label='Runs by status and reason'] li")).to_have_count(6)
    await console.sees("ul[aria-label='Runs by status and reason']", "interrupted: in doubt")
    await console.sees("ul[aria-label='Cost by agent']", "lead$0.10 · 1 run")
    await expect(console.get("ul[aria-label='Cost by agent']")).not_to_contain_text("1 runs")
    await expect(console.get(".small td.cost")).to_have_text(
        [f"$1.{tenths}00000" for tenths in (2, 1, 0)] + ["$0.900000", "$0.800000"]
    )
    await console.button("7 days").click()
    assert console.page.url.endswith("#/totals?days=7")
    console.expect_failures()
    await console.get(".small a.open").first.click()
    await console.sees(".problem", "there is no run run_000000000000000.")


async def test_a_gateway_without_totals_says_so(gateway: Gateway, open_console: Open) -> None:
    console = await open_console(gateway)
    console.expect_failures()
    await console.page.route("**/v1/stats?*", lambda route: route.fulfill(status=404, json={"detail": "none"}))
    await console.go("#/totals")
    await console.sees(".empty", "No totals yet")
