"""Starting a run from the console: every field, and what the API says about them."""

from __future__ import annotations

from playwright.async_api import expect

from tests.console.driving import Console, Open
from tests.serving import Gateway


async def test_a_run_is_started_with_its_limits_and_policies(gateway: Gateway, console: Console) -> None:
    await console.page.keyboard.press("n")
    dialog = console.get("dialog")
    await dialog.get_by_label("Input").fill("Which file mentions a timeout?")
    await expect(dialog.get_by_label("Model")).to_have_attribute("placeholder", "plan")
    await dialog.get_by_label("Model").fill("runaway")
    await dialog.get_by_label("Turns at most").fill("7")
    await dialog.get_by_text("More limits and stop rules").click()
    await dialog.get_by_label("US dollars at most").fill("0.5")
    await dialog.get_by_label("Seconds at most").fill("60")
    await dialog.get_by_label("Stop at repeated calls").fill("3")
    await dialog.get_by_text("Policies").click()
    await dialog.get_by_label("Calls that need approval").select_option("deny")
    await dialog.get_by_text("System prompt").click()
    await dialog.get_by_label("Instead of the agent's own").fill("Be brief.")
    await dialog.get_by_role("button", name="Start the run").click()

    await console.stopped("stop rule")
    run = await gateway.look(console.page.url.rsplit("/", 1)[1])
    assert run["model"] == "runaway"
    assert (run["limits"]["max_turns"], float(run["limits"]["max_budget_usd"])) == (7, 0.5)
    assert run["limits"]["deadline_seconds"] == 60
    assert run["stop_rules"] == {"repeated_calls": 3}
    assert run["policies"]["approval"] == "deny"
    assert run["messages"][0] == {"role": "system", "content": "Be brief."}


async def test_what_cannot_run_is_said_beside_its_field(console: Console) -> None:
    console.expect_failures()
    await console.button("New run").click()
    await console.button("Start the run").click()
    await console.sees("[data-field=input] .wrong", "length >= 1")
    await expect(console.page.get_by_label("Input")).to_be_focused()

    await console.page.get_by_label("Input").fill("Go on for ever.")
    await console.page.get_by_label("Turns at most").fill("none")
    await console.button("Start the run").click()
    await console.sees("dialog .wrong.general", "set one, or nothing ends a runaway.")

    await console.page.get_by_label("Turns at most").fill("-1")
    await console.button("Start the run").click()
    await console.sees("[data-field='limits.max_turns'] .wrong", "it must be from 1 to")

    await console.get("dialog").get_by_text("More limits and stop rules").click()
    await console.page.get_by_label("Turns at most").fill("")
    await console.page.get_by_label("Seconds at most").fill("0")
    await console.get("dialog").get_by_text("More limits and stop rules").click()
    await console.button("Start the run").click()
    await console.sees("[data-field='limits.deadline_seconds'] .wrong", "it must be above 0.")
    await console.page.keyboard.press("Escape")
    await expect(console.get("dialog")).to_have_count(0)


async def test_a_run_is_started_again_as_it_was(gateway: Gateway, open_console: Open) -> None:
    run = await gateway.run("once", input="Look again.")
    console = await open_console(gateway, f"#/runs/{run['id']}")
    await console.stopped("completed")

    await console.button("Start again").click()
    await expect(console.page.get_by_label("Input")).to_have_value("Look again.")
    await expect(console.page.get_by_label("Model")).to_have_value("once")
    await console.button("Start the run").click()

    await expect(console.page).not_to_have_url(f"{gateway.url}/#/runs/{run['id']}")
    await console.stopped("completed")
