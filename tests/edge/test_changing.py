"""Verdicts, resumes, cancels and outputs over HTTP."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.serving import Gateway, Serve, refused

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def answers(run: dict[str, Any]) -> list[str]:
    return [message["content"] for message in run["messages"] if message["role"] == "tool"]


# --- verdicts -------------------------------------------------------------------------------------------------------


async def test_a_call_that_needs_an_approval_stops_the_run_before_it_does_anything(gateway: Gateway) -> None:
    run = await gateway.run("destructive")

    call_id = f"{run['id']}:2:0"
    [pending] = run["pending_approvals"]
    assert (run["status"], run["reason"], run["turns"], run["tool_runs"]) == ("interrupted", "approval", 2, 1)
    assert run["interruption"] == {
        "type": "approval",
        "call_id": call_id,
        "tool_name": "delete_file",
        "args": {"path": "access.log"},
        "args_hash": pending["args_hash"],
    }
    assert pending["call_id"] == call_id
    assert pending["provider_call_id"] == "c2"
    assert run["why"] == 'delete_file {"path":"access.log"} waits for an approval.'
    assert f"gateway approve {run['id']} {call_id}" in run["next"]
    assert (gateway.workspace / "access.log").exists()


@pytest.mark.parametrize("by", ["call_id", "provider_call_id"])
async def test_an_approved_call_is_run_once(gateway: Gateway, by: str) -> None:
    run = await gateway.run("destructive")
    [pending] = run["pending_approvals"]

    got = await gateway.command(
        run["id"], "approve", {"call_id": pending[by], "args_hash": pending["args_hash"], "reason": "go ahead"}
    )

    assert got.status == 200
    assert got.json["status"] == "completed"
    assert got.json["output"] == "Deleted access.log to free space."
    assert got.json["cost_usd"] == Decimal("0.002328")
    assert got.json["tool_runs"] == 2
    assert got.json["approved"] == [pending["call_id"]]
    assert got.json["pending_approvals"] == []
    assert not (gateway.workspace / "access.log").exists()


async def test_a_rejected_call_is_answered_in_the_words_of_who_rejected_it(gateway: Gateway) -> None:
    run = await gateway.run("destructive")

    got = await gateway.command(run["id"], "reject", {"call_id": "c2", "reason": "keep the log."})

    assert answers(got.json)[-1] == "The user declined this call: keep the log."
    assert got.json["output"] == "I did not delete anything: you declined the deletion."
    assert got.json["cost_usd"] == Decimal("0.002388")
    assert (gateway.workspace / "access.log").exists()


async def test_a_rejection_without_words_gets_some(gateway: Gateway) -> None:
    run = await gateway.run("destructive")

    got = await gateway.command(run["id"], "reject", {"call_id": "c2"})

    assert answers(got.json)[-1] == "The user declined this call: no reason was given."


@pytest.mark.parametrize(("verdict", "opposite"), [("approve", "reject"), ("reject", "approve")])
async def test_the_same_verdict_twice_is_fine_and_the_opposite_one_is_refused(
    gateway: Gateway, verdict: str, opposite: str
) -> None:
    run = await gateway.run("destructive")
    call = {"call_id": run["pending_approvals"][0]["call_id"]}
    first = await gateway.command(run["id"], verdict, call)

    again = await gateway.command(run["id"], verdict, call)

    assert again.status == 200
    assert again.json["events"] == first.json["events"]
    said = "approved" if verdict == "approve" else "rejected"
    refused(await gateway.command(run["id"], opposite, call), 409, "wrong_state", words=f"{said} already")


async def test_the_same_verdict_twice_while_others_are_missing_is_fine(gateway: Gateway) -> None:
    run = await gateway.run("two_deletes")
    first, second = (pending["call_id"] for pending in run["pending_approvals"])

    waiting = await gateway.command(run["id"], "approve", {"call_id": first})
    again = await gateway.command(run["id"], "approve", {"call_id": first})
    opposite = await gateway.command(run["id"], "reject", {"call_id": first})

    assert (waiting.status, waiting.json["status"]) == (200, "interrupted")
    assert [pending["call_id"] for pending in waiting.json["pending_approvals"]] == [second]
    assert again.json["events"] == waiting.json["events"]
    refused(opposite, 409)
    done = await gateway.command(run["id"], "reject", {"call_id": second})
    assert done.json["status"] == "completed"
    assert not (gateway.workspace / "access.log").exists()
    assert (gateway.workspace / "notes.txt").exists()


async def test_a_verdict_on_a_call_that_does_not_exist_is_not_found(gateway: Gateway) -> None:
    run = await gateway.run("destructive")

    refused(await gateway.command(run["id"], "approve", {"call_id": "c9"}), 404, param="call_id", words="c9")


async def test_a_verdict_on_a_call_that_waits_for_none_is_refused(gateway: Gateway) -> None:
    run = await gateway.run("once")
    capped = await gateway.run("runaway", limits={"max_turns": 1})

    refused(await gateway.command(run["id"], "approve", {"call_id": f"{run['id']}:1:0"}), 404)
    refused(await gateway.command(capped["id"], "approve", {"call_id": "c0"}), 409, words="does not wait")


async def test_a_verdict_on_other_arguments_than_were_seen_is_refused(gateway: Gateway) -> None:
    run = await gateway.run("destructive")

    got = await gateway.command(run["id"], "approve", {"call_id": "c2", "args_hash": "0" * 16})

    refused(got, 409, param="args_hash", words="look again")
    assert (await gateway.look(run["id"]))["status"] == "interrupted"
    assert (gateway.workspace / "access.log").exists()


async def test_a_verdict_outlives_a_stop_at_a_cap(gateway: Gateway) -> None:
    run = await gateway.run("destructive", limits={"max_turns": 2})
    assert run["status"] == "max_turns_exceeded"

    judged = await gateway.command(run["id"], "approve", {"call_id": "c2"})
    assert judged.json["status"] == "max_turns_exceeded"
    resumed = await gateway.command(run["id"], "resume", {"limits": {"max_turns": 5}})

    assert resumed.json["status"] == "completed"
    assert not (gateway.workspace / "access.log").exists()


# --- resume ---------------------------------------------------------------------------------------------------------


async def test_a_run_at_its_turn_cap_goes_on_under_a_higher_one_and_runs_the_call_it_left_first(
    gateway: Gateway,
) -> None:
    run = await gateway.run("runaway", limits={"max_turns": 8})
    assert (run["status"], run["turns"], run["tool_runs"]) == ("max_turns_exceeded", 8, 7)
    assert run["interruption"] == {"type": "max_turns", "max_turns": 8}
    assert run["next"] == f"Raise the cap: gateway resume {run['id']} --max-turns 16"

    got = await gateway.command(run["id"], "resume", {"limits": {"max_turns": 20}})

    assert (got.json["status"], got.json["turns"], got.json["tool_runs"]) == ("max_turns_exceeded", 20, 19)
    assert got.json["cost_usd"] == Decimal("0.038038")
    trace = await gateway.trace(run["id"])
    position = [event["type"] for event in trace].index("run_resumed")
    assert trace[position + 1]["type"] == "tool_start"


async def test_a_run_over_its_budget_goes_on_under_a_higher_one(gateway: Gateway) -> None:
    limits = {"max_turns": None, "max_budget_usd": 0.01}
    run = await gateway.run("runaway", limits=limits)
    assert (run["status"], run["turns"], run["cost_usd"]) == ("budget_exceeded", 9, Decimal("0.01078"))
    assert run["why"] == "It spent $0.01078, and max_budget_usd is 0.01."

    got = await gateway.command(run["id"], "resume", {"limits": {"max_budget_usd": 0.05}})

    assert (got.json["status"], got.json["turns"], got.json["cost_usd"]) == ("budget_exceeded", 24, Decimal("0.05179"))


@pytest.mark.parametrize(
    ("limits", "raised", "words", "param"),
    [
        ({"max_turns": 3}, {}, "max_turns is 3", "limits.max_turns"),
        ({"max_turns": 3}, {"max_turns": 3}, "used 3 turns", "limits.max_turns"),
        ({"max_turns": 3}, {"max_turns": 2}, "above 3", "limits.max_turns"),
        ({"max_budget_usd": 0.001}, {}, "$0.00157", "limits.max_budget_usd"),
        ({"max_budget_usd": 0.001}, {"max_budget_usd": 0.0015}, "max_budget_usd is 0.0015", "limits.max_budget_usd"),
    ],
)
async def test_a_cap_that_is_not_raised_is_refused_with_its_figure(
    gateway: Gateway, limits: dict[str, Any], raised: dict[str, Any], words: str, param: str
) -> None:
    run = await gateway.run("runaway" if "max_turns" in limits else "plan", limits=limits)

    got = await gateway.command(run["id"], "resume", {"limits": raised})

    refused(got, 409, "wrong_state", words=words, param=param)
    assert (await gateway.look(run["id"]))["events"] == run["events"]


async def test_taking_both_caps_away_is_refused(gateway: Gateway) -> None:
    run = await gateway.run("runaway", limits={"max_turns": 1})

    refused(await gateway.command(run["id"], "resume", {"limits": {"max_turns": None}}), 400, words="both null")


@pytest.mark.parametrize(
    ("model", "words"),
    [("once", "is completed"), ("once@fault=400", "is failed"), ("destructive", "waits for a verdict")],
)
async def test_what_cannot_be_resumed_says_what_to_do_instead(gateway: Gateway, model: str, words: str) -> None:
    run = await gateway.run(model)

    refused(await gateway.command(run["id"], "resume"), 409, words=words)


async def test_a_run_under_way_cannot_be_resumed(gateway: Gateway) -> None:
    run = await gateway.run("plan@latency=200", wait=0)

    refused(await gateway.command(run["id"], "resume"), 409, words="is running")


async def test_a_deadline_stops_a_model_call_and_a_higher_one_goes_on(gateway: Gateway) -> None:
    run = await gateway.run("plan@latency=400,turn=0,fault=stall,stall_ms=0", limits={"deadline_seconds": 0.1})
    assert (run["status"], run["reason"]) == ("interrupted", "deadline")
    assert "--deadline-seconds 0.2" in run["next"]

    refused(await gateway.command(run["id"], "resume"), 409, param="limits.deadline_seconds")
    got = await gateway.command(run["id"], "resume", {"limits": {"deadline_seconds": 60}})

    assert got.json["status"] == "completed"


# --- cancel ---------------------------------------------------------------------------------------------------------


async def test_a_run_under_way_is_cancelled_in_the_words_given(gateway: Gateway) -> None:
    run = await gateway.run("plan@latency=5000", wait=0)

    got = await gateway.command(run["id"], "cancel", {"reason": "user pressed Stop"})

    assert got.status == 200
    assert (got.json["status"], got.json["reason"]) == ("interrupted", "cancelled")
    assert got.json["interruption"] == {"type": "cancelled", "reason": "user pressed Stop"}
    assert got.json["why"] == "It was cancelled: user pressed Stop"
    assert got.json["next"] == f"Go on: gateway resume {run['id']}"


async def test_a_run_that_waits_is_cancelled_and_its_call_still_waits_after_a_resume(gateway: Gateway) -> None:
    run = await gateway.run("destructive")

    cancelled = await gateway.command(run["id"], "cancel")
    resumed = await gateway.command(run["id"], "resume")

    assert cancelled.json["interruption"] == {"type": "cancelled", "reason": "cancelled by the client"}
    assert (resumed.json["status"], resumed.json["reason"]) == ("interrupted", "approval")


async def test_cancelling_twice_is_fine(gateway: Gateway) -> None:
    run = await gateway.run("destructive")
    first = await gateway.command(run["id"], "cancel", {"reason": "first"})

    again = await gateway.command(run["id"], "cancel", {"reason": "second"})

    assert again.status == 200
    assert again.json == first.json


@pytest.mark.parametrize("model", ["once", "once@fault=401"])
async def test_a_run_that_has_ended_cannot_be_cancelled(gateway: Gateway, model: str) -> None:
    run = await gateway.run(model)

    refused(await gateway.command(run["id"], "cancel"), 409, words="stopped already")


# --- outputs --------------------------------------------------------------------------------------------------------


async def test_calls_of_the_clients_own_tools_wait_for_their_outputs(gateway: Gateway) -> None:
    run = await gateway.run("asks_client", tools=[WEATHER, "read_file"])
    oslo, bergen = (f"{run['id']}:1:{index}" for index in (0, 1))
    assert (run["status"], run["reason"]) == ("interrupted", "tool_outputs")
    assert run["interruption"]["call_ids"] == [oslo, bergen]

    half = await gateway.command(run["id"], "tool_outputs", {"outputs": [{"call_id": "c2", "output": "rain"}]})
    assert half.json["reason"] == "tool_outputs"
    got = await gateway.command(run["id"], "tool_outputs", {"outputs": [{"call_id": oslo, "output": "sun"}]})

    assert got.json["status"] == "completed"
    assert answers(got.json) == ["sun", "rain"]
    assert got.json["tool_runs"] == 0


async def test_an_output_can_say_that_the_tool_failed(gateway: Gateway) -> None:
    run = await gateway.run("asks_client", tools=[WEATHER])
    outputs = [{"call_id": "c1", "output": "Error: no signal", "ok": False}, {"call_id": "c2", "output": "rain"}]

    got = await gateway.command(run["id"], "tool_outputs", {"outputs": outputs})

    results = [event for event in await gateway.trace(run["id"]) if event["type"] == "tool_result"]
    assert got.json["status"] == "completed"
    assert [(result["ok"], result["source"]) for result in results] == [(False, "client"), (True, "client")]


@pytest.mark.parametrize(
    ("outputs", "status", "words"),
    [
        ([{"call_id": "c9", "output": ""}], 404, "c9"),
        ([{"call_id": "c1", "output": "a"}, {"call_id": "c1", "output": "b"}], 400, "twice"),
    ],
)
async def test_outputs_that_fit_no_call_change_nothing(
    gateway: Gateway, outputs: list[dict[str, Any]], status: int, words: str
) -> None:
    run = await gateway.run("asks_client", tools=[WEATHER])

    got = await gateway.command(run["id"], "tool_outputs", {"outputs": outputs})

    refused(got, status, words=words)
    assert (await gateway.look(run["id"]))["events"] == run["events"]


async def test_outputs_that_nobody_waits_for_are_refused(gateway: Gateway) -> None:
    run = await gateway.run("destructive")

    got = await gateway.command(run["id"], "tool_outputs", {"outputs": [{"call_id": "c2", "output": "x"}]})

    refused(got, 409, words="does not wait for tool outputs")


async def test_calls_that_cannot_run_are_answered_in_words_and_never_shown_for_approval(gateway: Gateway) -> None:
    run = await gateway.run("nonsense")

    assert run["status"] == "completed"
    assert answers(run)[0].startswith("Error: there is no tool named no_such_tool. The tools are: list_files,")
    assert answers(run)[1].startswith("Error: invalid arguments for read_file:")
    assert run["tool_runs"] == 0


# --- commands that take long ----------------------------------------------------------------------------------------


async def test_a_command_answers_at_once_or_says_that_the_run_goes_on(gateway: Gateway) -> None:
    run = await gateway.run("runaway@latency=200", limits={"max_turns": 1})

    at_once = await gateway.post(f"/v1/runs/{run['id']}/resume", {"limits": {"max_turns": 2}})
    assert (at_once.status, at_once.json["status"]) == (200, "running")
    await gateway.look(run["id"], wait=20)
    waited = await gateway.command(run["id"], "resume", {"limits": {"max_turns": 3}}, wait=0.02)
    assert (waited.status, waited.json["status"]) == (202, "running")


@pytest.mark.parametrize("command", ["approve", "reject", "resume", "cancel", "tool_outputs"])
async def test_a_command_to_a_run_that_nobody_started_is_not_found(gateway: Gateway, command: str) -> None:
    body = {
        "approve": {"call_id": "c1"},
        "reject": {"call_id": "c1"},
        "tool_outputs": {"outputs": [{"call_id": "c1", "output": ""}]},
    }.get(command)

    refused(await gateway.command("run_0", command, body), 404, "not_found")


async def test_an_agent_that_never_asks_runs_its_calls_or_denies_them(serve: Serve) -> None:
    async with serve() as gateway:
        allowed = await gateway.run("destructive", policies={"approval": "auto"})
        denied = await gateway.run("destructive", policies={"approval": "deny"})

    assert allowed["output"] == "Deleted access.log to free space."
    assert answers(denied)[-1] == ("The user declined this call: this run may not use tools that need an approval.")
