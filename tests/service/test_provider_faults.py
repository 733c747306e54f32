"""Each fault of a provider through /v1/runs, plain and streamed: the right way out, in the right words, with an intact
transcript and the right money."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.serving import Gateway, Serve, refused

ANSWER = "errors.log mentions a timeout: worker 7 timed out after 30000 ms."
STREAMING = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])

PASSING = ["429,retry_after=0", "500", "503"]
"""The provider says that it did nothing: worth asking again, and nothing was billed."""

LOSING = ["drop_before", "drop_middle", "truncate", "bad_json"]
"""The reply never arrived whole: worth asking again, and it may be billed."""

REFUSING = ["400", "401", "403"]
HARMLESS = ["no_usage", "no_finish", "finish_stop", "no_index", "reissue_id", "stall,stall_ms=30"]


def require_intact(run: dict[str, Any]) -> None:
    """Every call has exactly one answer right behind its message, in order, and no message is half there."""
    waiting: list[str] = []
    for message in run["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting
        if message["role"] == "assistant":
            assert message["content"] or message["tool_calls"]
            calls = message.get("tool_calls", [])
            waiting = [call["id"] for call in calls]
            assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls)
    assert not waiting


def require_published(run: dict[str, Any]) -> None:
    """The figures of `plan`, to the token."""
    assert (run["status"], run["reason"], run["output"]) == ("completed", None, ANSWER)
    assert (run["turns"], run["tool_runs"]) == (3, 2)
    assert (run["usage"]["prompt_tokens"], run["usage"]["completion_tokens"]) == (815, 70)
    assert run["cost_usd"] == Decimal("0.00247")


async def estimates(gateway: Gateway, run: dict[str, Any]) -> list[Decimal]:
    """What each attempt that may be billed was recorded with before it was sent."""
    return [event["estimateUsd"] for event in await gateway.trace(run["id"]) if event["type"] == "turn_start"]


# --- for good -------------------------------------------------------------------------------------------------------


@STREAMING
@pytest.mark.parametrize("turn", [0, 1, 2])
@pytest.mark.parametrize("fault", PASSING)
async def test_a_provider_that_stays_unavailable_interrupts_the_run(
    gateway: Gateway, fault: str, turn: int, stream: bool
) -> None:
    run = await gateway.run(f"plan@fault={fault},turn={turn}", stream=stream)

    status = fault[:3]
    assert (run["status"], run["reason"], run["turns"]) == ("interrupted", "provider_unavailable", turn)
    words = run["interruption"]["message"]
    assert words.startswith(f"the provider answered {status} to 3 attempts: Scripted fault: {status}")
    assert run["why"] == f"The model cannot be reached: {words}"
    assert run["next"] == f"Go on: gateway resume {run['id']}"
    assert run["error"] is None
    assert run["unconfirmed_cost_usd"] == 0
    require_intact(run)


@STREAMING
@pytest.mark.parametrize("turn", [0, 1, 2])
@pytest.mark.parametrize("fault", LOSING)
async def test_replies_that_are_lost_interrupt_the_run_and_stand_in_its_unconfirmed_cost(
    gateway: Gateway, fault: str, turn: int, stream: bool
) -> None:
    run = await gateway.run(f"plan@fault={fault},turn={turn}", stream=stream)

    assert (run["status"], run["reason"], run["turns"]) == ("interrupted", "provider_unavailable", turn)
    assert "to 3 attempts" in run["why"]
    lost = (await estimates(gateway, run))[turn:]
    assert len(lost) == 3
    assert all(lost)
    assert run["unconfirmed_cost_usd"] == sum(lost)
    assert run["cost_usd"] == [Decimal(0), Decimal("0.000684"), Decimal("0.00157")][turn]
    require_intact(run)


@STREAMING
@pytest.mark.parametrize("turn", [0, 2])
@pytest.mark.parametrize("fault", REFUSING)
async def test_a_provider_that_refuses_fails_the_run_in_its_own_words_at_once(
    gateway: Gateway, fault: str, turn: int, stream: bool
) -> None:
    run = await gateway.run(f"plan@fault={fault},turn={turn}", stream=stream)

    assert (run["status"], run["reason"], run["turns"]) == ("failed", None, turn)
    assert run["error"].startswith(f"the provider answered {fault}: Scripted fault: {fault}")
    assert run["why"] == f"It failed: {run['error']}"
    assert run["interruption"] is None
    assert run["unconfirmed_cost_usd"] == 0
    assert len(await estimates(gateway, run)) == turn + 1
    require_intact(run)
    refused(await gateway.command(run["id"], "resume"), 409)


@STREAMING
async def test_a_model_that_the_provider_does_not_have_fails_the_run(gateway: Gateway, stream: bool) -> None:
    run = await gateway.run("gpt-x", stream=stream)

    assert run["status"] == "failed"
    assert "answered 404: The model 'gpt-x' does not exist" in run["error"]


@STREAMING
async def test_a_provider_that_cannot_be_connected_to_bills_nothing(serve: Serve, stream: bool) -> None:
    async with serve(settings={"base_url": "http://127.0.0.1:9/v1"}) as gateway:
        run = await gateway.run("plan", stream=stream)

    assert (run["status"], run["reason"]) == ("interrupted", "provider_unavailable")
    assert run["unconfirmed_cost_usd"] == 0


@STREAMING
async def test_a_provider_that_asks_to_wait_for_too_long_is_not_waited_for(gateway: Gateway, stream: bool) -> None:
    run = await gateway.run("plan@fault=429,retry_after=3600", stream=stream)

    assert run["reason"] == "provider_unavailable"
    assert "asks to wait 3600 s" in run["why"]
    assert len(await estimates(gateway, run)) == 1


@STREAMING
async def test_a_reply_that_stalls_is_given_up_as_lost(serve: Serve, stream: bool) -> None:
    async with serve(settings={"read_timeout_seconds": 0.05, "retries_max": 1}) as gateway:
        run = await gateway.run("once@fault=stall,turn=1,stall_ms=600", stream=stream)

        assert (run["reason"], run["turns"], run["tool_runs"]) == ("provider_unavailable", 1, 1)
        assert "nothing came for too long" in run["why"]
        assert run["unconfirmed_cost_usd"] == sum((await estimates(gateway, run))[1:])
        require_intact(run)


# --- once -----------------------------------------------------------------------------------------------------------


@STREAMING
@pytest.mark.parametrize("fault", PASSING)
async def test_after_a_fault_that_passes_the_run_has_the_published_figures(
    gateway: Gateway, fault: str, stream: bool
) -> None:
    run = await gateway.run(f"plan@fault={fault},attempt=1", stream=stream)

    require_published(run)
    require_intact(run)
    assert run["unconfirmed_cost_usd"] == 0
    assert len(await estimates(gateway, run)) == 3


@STREAMING
@pytest.mark.parametrize("fault", LOSING)
async def test_after_lost_replies_the_run_has_the_published_figures_and_says_what_they_may_have_cost(
    gateway: Gateway, fault: str, stream: bool
) -> None:
    run = await gateway.run(f"plan@fault={fault},attempt=1", stream=stream)

    require_published(run)
    require_intact(run)
    each = await estimates(gateway, run)
    assert len(each) == 6
    assert run["unconfirmed_cost_usd"] == sum(each) / 2


@STREAMING
@pytest.mark.parametrize("fault", HARMLESS)
async def test_what_a_provider_leaves_out_or_says_oddly_changes_no_figure(
    gateway: Gateway, fault: str, stream: bool
) -> None:
    run = await gateway.run(f"plan@fault={fault}", stream=stream)

    require_published(run)
    require_intact(run)
    assert run["unconfirmed_cost_usd"] == 0
    turns = [event for event in await gateway.trace(run["id"]) if event["type"] == "turn"]
    assert all(event.get("estimated", False) == fault.startswith("no_usage") for event in turns)
    assert [event["finish"] for event in turns] == ["tool_calls", "tool_calls", "stop"]


async def test_calls_with_an_id_that_came_before_are_told_apart(gateway: Gateway) -> None:
    run = await gateway.run("destructive@fault=reissue_id")
    call_id = run["pending_approvals"][0]["call_id"]

    got = await gateway.command(run["id"], "approve", {"call_id": call_id})

    assert got.json["status"] == "completed"
    assert got.json["approved"] == [f"{run['id']}:2:0"]
    assert [event["call"] for event in await gateway.trace(run["id"]) if event["type"] == "tool_start"] == [
        f"{run['id']}:1:0",
        f"{run['id']}:2:0",
    ]


# --- and then -------------------------------------------------------------------------------------------------------


@STREAMING
async def test_a_run_that_the_provider_let_down_goes_on_where_it_was(gateway: Gateway, stream: bool) -> None:
    """The fault is in the model's name and stays: turn 3 fails again, and nothing before it is asked or run twice."""
    run = await gateway.run("plan@fault=503,turn=2", stream=stream)

    again = await gateway.command(run["id"], "resume")

    assert (again.json["reason"], again.json["turns"], again.json["tool_runs"]) == ("provider_unavailable", 2, 2)
    assert again.json["cost_usd"] == Decimal("0.00157")
    require_intact(again.json)


async def test_a_budget_counts_replies_that_were_lost(gateway: Gateway) -> None:
    """A lost reply may be billed, so a run that loses them does not even ask again once it may have spent enough."""
    run = await gateway.run("plan@fault=drop_before,turn=1", limits={"max_budget_usd": 0.002})

    assert (run["status"], run["reason"]) == ("budget_exceeded", "max_budget")
    assert run["cost_usd"] + run["unconfirmed_cost_usd"] > Decimal("0.002")
    refused(await gateway.command(run["id"], "resume"), 409, param="limits.max_budget_usd")


@pytest.mark.parametrize("fault", ["drop_middle", "truncate"])
async def test_text_of_a_reply_that_is_lost_is_in_no_message(gateway: Gateway, fault: str) -> None:
    got = await gateway.start(f"talks@fault={fault}", wait=0, headers={"Accept": "text/event-stream"})

    run = await gateway.look(got.headers["X-Run-Id"])
    assert [event.event for event in got.sse][-1] == "run_stopped"
    assert [message["role"] for message in run["messages"]] == ["system", "user"]
    assert run["output"] == ""
