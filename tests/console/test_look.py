"""How the console looks and whether everybody can use it: pictures in both themes and at two widths, and axe."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.console.driving import Console, Open
from tests.console.test_totals import stub_stats
from tests.serving import Gateway


async def some_runs(gateway: Gateway) -> dict[str, str]:
    """One run of each kind, and their ids."""
    runs = {
        "budget": await gateway.run("runaway", limits={"max_budget_usd": 0.003}),
        "answer": await gateway.run("plan"),
        "failed": await gateway.run("denied", policies={"on_permanent_error": "stop"}),
        "long": await gateway.run("runaway", limits={"max_turns": 24}),
        "recover": await gateway.run("recover"),
        "turns": await gateway.run("runaway", limits={"max_turns": 3}),
        "nonsense": await gateway.run("nonsense"),
        "approval": await gateway.run("destructive"),
        "running": await gateway.run("slow", wait=0),
    }
    return {name: run["id"] for name, run in runs.items()}


async def visit(console: Console, ids: dict[str, str], name: str) -> None:
    """Shows a page, complete."""
    match name:
        case "runs":
            await expect(console.get("table.runs tbody tr")).to_have_count(len(ids))
        case "start":
            await console.button("New run").click()
            await console.get("dialog").get_by_text("Policies").click()
        case "totals":
            await console.go("#/totals")
            await console.get("svg.chart").first.wait_for()
        case _:
            await console.go(f"#/runs/{ids[name]}")
            await console.get(".step.stopped").wait_for()


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_page_looks_right_and_has_no_serious_accessibility_findings(
    gateway: Gateway, open_console: Open, theme: str, width: int
) -> None:
    ids = await some_runs(gateway)
    console = await open_console(gateway, width=width, theme=theme)
    await stub_stats(console)
    findings: dict[str, list[str]] = {}

    for name in ("runs", "approval", "answer", "long", "failed", "totals", "start"):
        await visit(console, ids, name)
        await console.picture(f"{name}-{width}-{theme}", whole=name != "start")
        findings[name] = await console.accessibility_findings()
        assert await console.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name

    assert not any(findings.values()), findings


async def test_everything_is_reached_from_the_keyboard_and_the_theme_is_kept(console: Console) -> None:
    page = console.page
    await page.keyboard.press("Tab")
    await expect(console.get("#skip")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(console.get("#main")).to_be_focused()

    await page.keyboard.press("?")
    await console.sees("dialog", "Keyboard shortcuts")
    await page.keyboard.press("n")  # not behind a dialog
    await expect(console.get("dialog")).to_have_count(1)
    await page.keyboard.press("Escape")

    for theme in ("light", "dark"):
        await page.keyboard.press("t")
        await expect(console.get("html")).to_have_attribute("data-theme", theme)
    await page.reload()
    await expect(console.get("html")).to_have_attribute("data-theme", "dark")
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 17, 19)"
    await console.button("Theme: dark").click()
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(246, 246, 243)"
