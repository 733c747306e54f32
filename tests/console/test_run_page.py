"""One run as a timeline: what it shows, live and afterwards, and that it shows markup as text."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from playwright.async_api import expect

from gateway.adapters.tools.tool import Tool
from gateway.core.run import ToolSpec
from tests.console.conftest import MARKUP
from tests.console.driving import Open
from tests.console.providing import Speaker
from tests.serving import Gateway, Serve


async def test_a_run_is_shown_turn_by_turn_with_its_tokens_and_costs(gateway: Gateway, open_console: Open) -> None:
    run = await gateway.run("runaway", limits={"max_turns": 4})

    console = await open_console(gateway, f"#/runs/{run['id']}")

    await console.stopped("turn cap")
    await console.sees(".why", "It used 4 turns, and max_turns is 4.")
    await console.sees(".next code", f"gateway resume {run['id']} --max-turns 8")
    await expect(console.turn(1)).to_contain_text("204 → 23")
    await expect(console.turn(1)).to_contain_text("access.log")
    await expect(console.turn(2)).to_contain_text("+$0.000814$0.001498")
    await expect(console.turn(4)).to_contain_text("not run yet")
    chart = console.get("svg.chart")
    await expect(chart).to_have_attribute("aria-label", "Prompt tokens by turn: from 204 in turn 1 to 397 in turn 4.")
    await expect(chart.locator("circle")).to_have_count(4)
    await expect(console.get(".facts dd").first).to_contain_text("4of 4")


async def test_a_request_that_was_refused_says_why_and_nothing_of_a_bill(gateway: Gateway, open_console: Open) -> None:
    run = await gateway.run("once@fault=401")

    console = await open_console(gateway, f"#/runs/{run['id']}")

    assert run["unconfirmed_cost_usd"] == 0
    await console.stopped("failed")
    await expect(console.turn(1)).to_contain_text("the provider answered 401: Scripted fault: 401 Unauthorized")
    await expect(console.turn(1)).not_to_contain_text("billed")


async def test_a_reply_that_was_lost_may_have_been_billed(gateway: Gateway, open_console: Open) -> None:
    run = await gateway.run("once@fault=drop_middle")

    console = await open_console(gateway, f"#/runs/{run['id']}")

    assert run["unconfirmed_cost_usd"] > 0
    await console.stopped("provider unavailable")
    await expect(console.turn(1)).to_contain_text("no reply was recorded: it may have been billed")


async def test_text_is_shown_as_it_is_said(serve: Serve, open_console: Open) -> None:
    speaker = Speaker()
    async with speaker.serving() as base_url, serve(settings={"base_url": base_url}) as gateway:
        console = await open_console(gateway)
        await console.button("New run").click()
        await console.page.get_by_label("Input").fill("Say it.")
        await console.button("Start the run").click()
        await console.stopped("running")
        await console.sees(".card", "asking the model")
        speaker.begin.set()
        await console.sees(".says.live", "The quick ")
        speaker.go_on.set()
        await console.stopped("completed")
        await console.sees(".says", "The quick brown fox")
        await console.close()


async def test_the_progress_of_a_tool_is_shown(patient: Gateway, open_console: Open) -> None:
    run = await patient.run("acts", wait=0)
    console = await open_console(patient, f"#/runs/{run['id']}")

    await console.sees(".call.running .progress", "scanned 200 of 1200 files")
    await patient.command(run["id"], "cancel")
    await console.sees(".call.cut", "cut off")
    await patient.command(run["id"], "resume")
    await console.stopped("completed")
    await console.sees(".call.done", "All 1200 files were scanned.")
    await expect(console.turn(2)).to_contain_text("Done.")


async def test_markup_of_models_and_tools_is_shown_as_text(serve: Serve, open_console: Open) -> None:
    def echo(args: dict[str, Any], ctx: Any) -> str:
        return MARKUP

    act = Tool(ToolSpec(name="act", description=MARKUP, parameters={"type": "object"}, needs_approval=True), echo)
    async with serve(tools={"act": act}) as gateway:
        run = await gateway.run("evil", system=MARKUP, input=MARKUP, metadata={"note": MARKUP})
        console = await open_console(gateway, f"#/runs/{run['id']}")
        await console.stopped("approval")
        await console.sees(".outcome pre", "onerror")

        await console.get("input[name=reason]").fill(MARKUP)
        await console.button("Approve").click()

        await console.stopped("completed")
        await console.sees(".outcome .output", MARKUP)
        await console.sees(".call.done pre", "onerror")
        await expect(console.get("main :is(script, img, b[class])")).to_have_count(0)
        assert await console.page.title() == f"Run {run['id']} · Agent gateway"
        console.expect_failures()
        await console.go(f"#/runs/{quote(MARKUP, safe='')}")
        await console.sees(".problem", "there is no run <script>")
        assert await console.page.title() == f"Run {MARKUP} · Agent gateway"


async def test_a_subagents_run_is_linked_both_ways_and_what_it_waits_for_is_decided_above(
    leading: Gateway, open_console: Open
) -> None:
    run = (await leading.start("delegate", agent="lead")).json
    console = await open_console(leading, f"#/runs/{run['id']}")
    await console.stopped("approval")
    await console.sees(".outcome .asked", "in the run of a subagent")

    await console.get(".call a.child").click()
    await console.stopped("approval")
    await console.sees(".title", "research · destructive")
    await console.get(".facts a.parent").click()
    await console.sees(".title", "lead · delegate")
    await console.button("Reject").click()

    await console.stopped("completed")
    await console.sees(".outcome .output", "you declined the deletion")
    assert (leading.workspace / "access.log").exists()


async def test_a_long_run_is_folded_and_its_beginning_shown_on_request(gateway: Gateway, open_console: Open) -> None:
    run = await gateway.run("runaway", limits={"max_turns": 150})
    console = await open_console(gateway, f"#/runs/{run['id']}")
    turns = console.get("details.card")
    await expect(console.turn(150)).to_be_visible()
    await expect(console.turn(1)).to_have_count(0)

    await console.get(".earlier button").click()
    await expect(turns).to_have_count(150)
    assert await console.get("details.card[open]").count() < 3
    await console.page.keyboard.press("f")
    await console.page.keyboard.press("f")
    await expect(console.get("details.card[open]")).to_have_count(150)


async def test_a_run_that_does_not_exist_is_said_in_the_apis_words(gateway: Gateway, open_console: Open) -> None:
    console = await open_console(gateway)
    console.expect_failures()
    await console.go("#/runs/run_0")
    await console.sees(".problem", "there is no run run_0.")
