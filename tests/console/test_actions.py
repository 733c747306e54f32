"""Everything that a person can do: each button, and what the API says when it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Route, expect

from gateway.adapters.tools.tool import Tool
from gateway.core.run import ToolSpec
from tests.console.driving import Console, Open
from tests.serving import Gateway, Serve

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


async def shown(open_console: Open, gateway: Gateway, model: str, **fields: Any) -> tuple[Console, str]:
    """The page of a run that has stopped, once it shows how: before that there is nothing to press a key for."""
    run = await gateway.run(model, **fields)
    console = await open_console(gateway, f"#/runs/{run['id']}")
    await expect(console.get(".outcome")).to_be_visible()
    return console, run["id"]


# --- verdicts -------------------------------------------------------------------------------------------------------


async def test_a_call_is_approved_as_it_was_shown(gateway: Gateway, open_console: Open) -> None:
    console, run_id = await shown(open_console, gateway, "destructive")
    await console.sees(".outcome pre", '"path": "access.log"')
    await console.get("input[name=reason]").fill("It is old.")

    async with console.page.expect_request("**/approve") as sent:
        await console.button("Approve").click()

    assert (await sent.value).post_data_json == {
        "call_id": f"{run_id}:2:0",
        "args_hash": "8c380ea7abbe8357",
        "reason": "It is old.",
    }
    await console.stopped("completed")
    await console.sees(".call.done .note", "Approved: It is old.")
    assert not (gateway.workspace / "access.log").exists()


async def test_a_call_is_rejected_with_a_reason_that_the_model_reads(gateway: Gateway, open_console: Open) -> None:
    console, run_id = await shown(open_console, gateway, "destructive")

    await console.page.keyboard.press("a")
    await console.page.keyboard.type("Keep the log.")
    await console.button("Reject").click()

    await console.stopped("completed")
    await console.sees(".outcome .output", "you declined the deletion")
    messages = (await gateway.look(run_id))["messages"]
    assert any("Keep the log." in str(message["content"]) for message in messages if message["role"] == "tool")


async def test_two_calls_are_judged_one_by_one_and_what_was_typed_stays(gateway: Gateway, open_console: Open) -> None:
    console, _ = await shown(open_console, gateway, "two_deletes")
    forms = console.get(".outcome form")
    await expect(forms).to_have_count(2)
    await forms.nth(1).locator("input[name=reason]").fill("Not the notes.")

    await forms.nth(0).get_by_role("button", name="Approve").click()

    await expect(forms).to_have_count(1)
    await expect(forms.locator("input[name=reason]")).to_have_value("Not the notes.")
    await forms.get_by_role("button", name="Reject").click()
    await console.stopped("completed")
    assert not (gateway.workspace / "access.log").exists()
    assert (gateway.workspace / "notes.txt").exists()


async def test_a_verdict_that_comes_too_late_is_refused_in_the_apis_words(gateway: Gateway, open_console: Open) -> None:
    console, run_id = await shown(open_console, gateway, "two_deletes")
    console.expect_failures()
    form = console.get(".outcome form").first

    async def somebody_was_faster(route: Route) -> None:
        await gateway.post(f"/v1/runs/{run_id}/reject", {"call_id": f"{run_id}:1:0"})
        await route.continue_()

    await console.page.route("**/approve", somebody_was_faster)
    await form.get_by_role("button", name="Approve").click()

    await console.sees(".problem[role=alert]", "was rejected already")
    await expect(console.get(".outcome form")).to_have_count(1)


# --- limits ---------------------------------------------------------------------------------------------------------


async def test_a_cap_that_is_not_raised_is_refused_beside_its_field_and_a_higher_one_resumes(
    gateway: Gateway, open_console: Open
) -> None:
    console, run_id = await shown(open_console, gateway, "runaway", limits={"max_turns": 3})
    console.expect_failures()
    field = console.page.get_by_label("Turns at most")
    await expect(field).to_have_value("6")
    await field.fill("3")
    await console.button("Raise the cap and resume").click()

    await console.sees("[data-field='limits.max_turns'] .wrong", "raise it above 3.")
    await expect(field).to_be_focused()
    await field.fill("three")
    await console.button("Raise the cap and resume").click()
    await console.sees("[data-field='limits.max_turns'] .wrong", "Expected `int | null`, got `str`.")
    await field.fill("5")
    await field.press("Enter")

    await console.sees(".why", "It used 5 turns, and max_turns is 5.")
    await console.sees(".step.resumed", "max_turns 5")
    assert (await gateway.look(run_id))["turns"] == 5


async def test_a_budget_is_raised_to_the_digit(gateway: Gateway, open_console: Open) -> None:
    console, _ = await shown(open_console, gateway, "runaway", limits={"max_budget_usd": 0.002})
    await console.stopped("budget")
    await console.page.get_by_label("US dollars at most").fill("0.0040000000000000001")
    await console.button("Raise the cap and resume").click()

    await console.sees(".why", "max_budget_usd is 0.0040000000000000001.")


# --- stop -----------------------------------------------------------------------------------------------------------


async def test_a_run_is_stopped_with_a_reason_and_resumed(patient: Gateway, open_console: Open) -> None:
    run = await patient.run("acts", wait=0)
    console = await open_console(patient, f"#/runs/{run['id']}")
    await console.stopped("running")
    await console.sees(".call.running", "act")
    await console.page.keyboard.press("s")
    await console.page.get_by_label("Reason").fill("The archive can wait.")
    await console.button("Stop the run").click()

    await console.stopped("cancelled")
    await console.sees(".why", "It was cancelled: The archive can wait.")
    await expect(console.get("dialog")).to_have_count(0)
    await console.button("Resume").click()
    await console.stopped("completed")
    await console.sees(".step.resumed", "Resumed")


# --- doubts and outputs ---------------------------------------------------------------------------------------------


@pytest.fixture
async def doubtful(serve: Serve) -> AsyncIterator[tuple[Gateway, list[str]]]:
    """A gateway whose tool `act` hangs the first time, and what it did."""
    done: list[str] = []

    async def act(args: dict[str, Any], ctx: Any) -> str:
        done.append("begun")
        await asyncio.sleep(3600 if len(done) == 1 else 0)
        return "It was written now."

    tool = Tool(ToolSpec(name="act", description="Writes.", parameters={"type": "object"}), act)
    async with serve(tools={"act": tool}) as gateway:
        yield gateway, done


@pytest.mark.parametrize(
    ("button", "kind", "words", "times"),
    [
        ("Use this output", "call done", "It had been written.", 1),
        ("Run it again", "call done", "It was written now.", 2),
        ("Skip it", "call failed", "", 1),
    ],
)
async def test_a_doubt_is_settled_three_ways(
    doubtful: tuple[Gateway, list[str]], open_console: Open, button: str, kind: str, words: str, times: int
) -> None:
    gateway, done = doubtful
    run = await gateway.run("acts", wait=0)
    await gateway.until(run["id"], "tool_start")
    await gateway.command(run["id"], "cancel")
    await gateway.command(run["id"], "resume")
    console = await open_console(gateway, f"#/runs/{run['id']}")
    await console.stopped("in doubt")
    await console.sees(".why", "act {} had begun, and whether it happened is not known.")
    await console.page.get_by_label("It happened, and this came back").fill("It had been written.")

    await console.button(button).click()

    await console.stopped("completed")
    await expect(console.get(f"[class='{kind}']")).to_contain_text(words)
    assert len(done) == times


async def test_what_the_client_ran_is_posted(gateway: Gateway, open_console: Open) -> None:
    console, _ = await shown(open_console, gateway, "asks_client", tools=[WEATHER])
    await console.stopped("tool outputs")
    fields = console.page.get_by_label("What came back")
    await fields.nth(0).fill("Rain.")
    await fields.nth(1).fill("No answer.")
    await console.page.get_by_label("it failed").nth(1).check()
    await console.button("Post the outputs").click()

    await console.stopped("completed")
    await console.sees(".call.done", "Rain.")
    await console.sees(".call.failed", "No answer.")
