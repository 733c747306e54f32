"""The list of runs: live, filtered, a page at a time."""

from __future__ import annotations

import re

from playwright.async_api import expect

from tests.console.driving import Console, Open
from tests.serving import Gateway, eventually


async def test_a_run_appears_and_changes_without_being_asked_for(patient: Gateway, open_console: Open) -> None:
    gateway, console = patient, await open_console(patient)
    await console.sees(".empty", "No runs yet.")

    run = await gateway.run("acts", wait=0)

    row = console.row("acts")
    await expect(row.locator(".pill")).to_have_text("running")
    await gateway.until(run["id"], "tool_start")
    await gateway.command(run["id"], "cancel", {"reason": "enough"})
    await expect(row.locator(".pill")).to_have_text("cancelled")
    await expect(row.locator(".turns")).to_have_text("1")
    await expect(row.locator(".cost")).to_have_text(re.compile(r"^\$0\.000\d+$"))
    await gateway.run("destructive")
    await console.sees("#announcer", "interrupted: approval")


async def test_filters_stand_in_the_address_and_are_kept(gateway: Gateway, console: Console) -> None:
    for model in ("once", "talks", "destructive"):
        await gateway.run(model)
    await gateway.run("runaway", limits={"max_turns": 1})
    rows = console.get("table.runs tbody tr")
    await expect(rows).to_have_count(4)

    await console.button("Completed").click()
    await expect(rows).to_have_count(2)
    await console.page.get_by_label("Search").fill("tal")
    await expect(rows).to_have_count(1)
    await expect(console.button("Completed")).to_have_attribute("aria-pressed", "true")
    assert console.page.url.endswith("#/runs?status=completed&q=tal")

    await console.page.reload()
    await expect(rows).to_have_count(1)
    await console.page.get_by_label("Search").fill("")
    await console.button("Waiting for you").click()
    await expect(rows).to_have_count(1)
    await expect(rows.first).to_contain_text("destructive")
    await console.page.get_by_label("Agent", exact=True).select_option("files")
    await expect(rows).to_have_count(1)
    await console.button("Failed").click()
    await console.sees(".empty", "No run is like that.")


async def test_older_runs_are_loaded_when_asked_for_and_found_from_the_keyboard(
    gateway: Gateway, open_console: Open
) -> None:
    runs = [await gateway.run("talks") for _ in range(60)]
    console = await open_console(gateway)
    rows = console.get("table.runs tbody tr")
    await expect(rows).to_have_count(50)

    await console.page.keyboard.press("m")
    await expect(rows).to_have_count(60)
    await expect(console.get("#more")).to_have_count(0)

    await console.page.keyboard.press("/")
    await console.page.keyboard.type(runs[0]["id"][-8:])
    await expect(rows).to_have_count(1)
    await console.page.keyboard.press("Escape")
    await console.page.keyboard.press("j")
    await console.page.keyboard.press("Enter")
    await console.stopped("completed")
    assert console.page.url.endswith(f"#/runs/{runs[0]['id']}")
    await console.page.keyboard.press("Escape")
    await expect(rows).to_have_count(50)


async def test_a_hundred_runs_at_once_are_all_shown(gateway: Gateway, console: Console) -> None:
    await console.sees(".empty", "No runs yet.")
    for _ in range(100):
        await gateway.start("talks", wait=0)

    async def all_done() -> bool:
        return len((await gateway.get("/v1/runs", status="completed", limit=200)).json["runs"]) == 100

    await eventually(all_done, "the runs are done")
    await expect(console.row("completed")).to_have_count(100)


async def test_a_search_finds_runs_by_what_was_asked_also_beyond_what_is_loaded(
    gateway: Gateway, open_console: Open
) -> None:
    old = await gateway.run("talks", input="Who rotates the LOGS on Sundays?")
    for _ in range(60):
        await gateway.run("talks")
    console = await open_console(gateway)
    rows = console.get("table.runs tbody tr")
    await expect(rows).to_have_count(50)

    await console.page.get_by_label("Search").fill("sundays logs")
    await expect(rows).to_have_count(1)
    await expect(rows.first.locator(".task")).to_have_text("Who rotates the LOGS on Sundays?")
    await expect(rows.first.locator("code")).to_have_text(old["id"])

    await gateway.run("talks", input="Which logs are from Sundays?")
    await expect(rows).to_have_count(2)
    await gateway.run("talks", input="And the others?")
    await console.page.get_by_label("Search").fill("no such words")
    await console.sees(".empty", "No run is like that.")
    await console.page.get_by_label("Search").fill("")
    await expect(rows).to_have_count(50)
