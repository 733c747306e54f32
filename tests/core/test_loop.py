"""What happens next, and what each event does."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import get_args

import pytest
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.loop import AskModel, Rest, apply, decide, replay
from gateway.core.messages import Assistant, User
from gateway.core.run import (
    Deadline,
    Interruption,
    Limits,
    MaxBudget,
    MaxTurns,
    Policies,
    Status,
    StopRule,
)
from gateway.core.stopping import RULES, Stop
from tests.core import stories
from tests.core.stories import STATES
from tests.core.world import (
    MESSAGES,
    NOON,
    Came,
    Player,
    Said,
    World,
    asks,
    batch,
    calls,
    names,
    reloaded,
    says,
    world_that_asked,
)

READ = asks("read", path="a")
DELETE = asks("delete", path="a")


# --- the ways out ---------------------------------------------------------------------------------------------------

WAYS_OUT = [
    ("completed", Status.COMPLETED, None),
    ("failed", Status.FAILED, None),
    ("max_turns", Status.MAX_TURNS_EXCEEDED, "max_turns"),
    ("max_budget", Status.BUDGET_EXCEEDED, "max_budget"),
    ("approval", Status.INTERRUPTED, "approval"),
    ("cancelled", Status.INTERRUPTED, "cancelled"),
    ("client_outputs", Status.INTERRUPTED, "tool_outputs"),
    ("in_doubt", Status.INTERRUPTED, "in_doubt"),
    ("deadline", Status.INTERRUPTED, "deadline"),
    ("provider_down", Status.INTERRUPTED, "provider_unavailable"),
]


@pytest.mark.parametrize(("state", "status", "reason"), WAYS_OUT)
def test_each_way_out_has_its_status_and_its_reason(state: str, status: Status, reason: str | None) -> None:
    world = STATES[state]()
    last = world.events[-1]

    assert (world.run.status, world.run.reason) == (status, reason)
    assert isinstance(last, e.RunStopped)
    assert (last.status, last.reason, last.turns, last.cost_usd) == (
        status,
        reason,
        world.run.turns,
        world.run.cost_usd,
    )


def test_every_interruption_is_a_way_out_that_is_tested() -> None:
    reasons = {kind.__struct_config__.tag for kind in get_args(Interruption)}

    assert reasons == {reason for _, _, reason in WAYS_OUT if reason} | {"stop_rule"}


@pytest.mark.parametrize("state", [state for state in STATES if state != "running"])
def test_a_stopped_run_does_nothing_whatever_the_time(state: str) -> None:
    world = STATES[state]()

    assert decide(world.run, RULES, world.now) == Rest()
    assert decide(world.run, RULES, world.now + timedelta(days=1000)) == Rest()


def test_a_new_run_asks_the_model() -> None:
    assert World().decide() == AskModel()


@pytest.mark.parametrize("text", ["hello", "", None])
def test_prose_without_tool_calls_completes_the_run(text: str | None) -> None:
    world = World()
    world.record(world.turn(Said((), text)))

    assert world.decide() == Stop(Status.COMPLETED)
    world.drive(Player())
    assert world.run.output == (text or "")


def test_the_output_of_parts_is_their_text() -> None:
    world = World()
    turn = world.turn(says("x"))
    parts = [{"type": "text", "text": "one "}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "two"}]
    world.record(replace(turn, message=Assistant(parts)))
    world.drive(Player())

    assert world.run.output == "one two"


def test_prose_beside_tool_calls_is_not_the_answer() -> None:
    world = World()
    world.record(world.turn(Said((READ,), "I shall look.")))

    assert batch(world) == ["read"]


def test_a_run_without_an_answer_has_no_output() -> None:
    assert stories.max_turns().run.output == ""
    assert stories.failed().run.output == ""


def test_a_conversation_that_ends_with_the_assistant_is_answered_already() -> None:
    world = World(messages=(*MESSAGES, Assistant("hello")))

    assert world.decide() == Stop(Status.COMPLETED)


# --- the order inside decide ----------------------------------------------------------------------------------------


def test_an_answer_in_the_last_turn_of_the_cap_completes_the_run() -> None:
    world = World(limits=Limits(max_turns=1, max_budget_usd=Decimal("0.000001"), deadline_seconds=0.001))
    world.step(Player([says("hello")]))

    assert world.decide() == Stop(Status.COMPLETED)


def test_a_cap_leaves_the_last_call_outstanding_and_a_raised_cap_runs_that_call_first() -> None:
    world = World(limits=Limits(max_turns=12), policies=Policies(dedupe="off"))
    player = Player(calls(asks("list", f"c{turn}")) for turn in range(20))
    world.drive(player)

    assert (world.run.turns, world.run.tool_runs) == (12, 11)
    assert world.run.interruption == MaxTurns(12)

    world.resume(max_turns=13)
    assert batch(world) == ["list"]
    world.drive(player)
    assert (world.run.turns, world.run.tool_runs) == (13, 12)


def test_a_cap_comes_before_an_approval_and_the_raised_cap_then_asks_for_it() -> None:
    world = World(limits=Limits(max_turns=1))
    world.drive(Player([calls(DELETE)]))

    assert world.run.status is Status.MAX_TURNS_EXCEEDED
    assert "approval_required" not in names(world.events)
    world.resume(max_turns=2)
    world.drive(Player())
    assert world.run.reason == "approval"


def test_a_budget_stops_the_run_within_one_turn_of_it() -> None:
    world = World(limits=Limits(max_turns=None, max_budget_usd=Decimal("0.01")), policies=Policies(dedupe="off"))
    prompts = (204, 269, 333, 397, 461, 525, 589, 653, 717)
    world.drive(Player(calls(asks("list"), prompt=prompt, completion=23) for prompt in prompts))

    assert (world.run.turns, world.run.tool_runs, world.run.cost_usd) == (9, 8, Decimal("0.010780"))
    assert world.run.interruption == MaxBudget(Decimal("0.01"), Decimal("0.010780"))


def test_a_budget_counts_what_may_have_been_billed_besides() -> None:
    world = World(limits=Limits(max_budget_usd=Decimal("0.0001")))
    flight = world.perform(world.decide(), Player())
    world.record(next(flight))
    world.recover()

    assert world.run.cost_usd == 0
    assert isinstance(stop := world.decide(), Stop)
    assert stop.interruption == MaxBudget(Decimal("0.0001"), world.run.unconfirmed_cost_usd)


def test_a_budget_that_is_exactly_spent_is_exceeded() -> None:
    world = World(limits=Limits(max_budget_usd=Decimal("0.00032")))
    world.drive(Player([calls(READ)]))

    assert world.run.status is Status.BUDGET_EXCEEDED


def test_a_deadline_counts_the_time_in_which_the_run_is_driven_and_no_waits() -> None:
    world = World(limits=Limits(deadline_seconds=10.0))
    player = Player([calls(DELETE), says("done")])
    world.drive(player)
    world.now += timedelta(days=30)
    world.approve("n1:1:0")
    assert batch(world) == ["delete"]

    world.now += timedelta(seconds=11)
    assert world.decide() == Stop(Status.INTERRUPTED, Deadline(10.0))


def test_a_deadline_does_not_count_the_time_between_a_crash_and_its_recovery() -> None:
    world = World(limits=Limits(deadline_seconds=10.0))
    world.step(Player([calls(READ)]))
    world.now += timedelta(hours=8)
    world.recover()

    assert batch(world) == ["read"]


def test_a_deadline_counts_the_time_before_a_crash() -> None:
    world = World(limits=Limits(deadline_seconds=10.0))
    world.now += timedelta(seconds=9)
    world.step(Player([calls(READ)]))
    world.recover()
    world.now += timedelta(seconds=2)

    assert world.decide() == Stop(Status.INTERRUPTED, Deadline(10.0))


def test_the_turn_cap_is_named_when_the_budget_is_spent_as_well() -> None:
    world = World(limits=Limits(max_turns=1, max_budget_usd=Decimal("0.000001"), deadline_seconds=0.001))
    world.drive(Player([calls(READ)]))

    assert world.run.status is Status.MAX_TURNS_EXCEEDED


def test_a_rule_of_ones_own_is_asked_like_any_other() -> None:
    world = world_that_asked(READ)
    stop = Stop(Status.INTERRUPTED, StopRule("lunch", "it is noon."))

    assert decide(world.run, (*RULES, lambda run, now: stop), NOON) == stop


# --- logs that are none ---------------------------------------------------------------------------------------------


def test_a_log_without_events_is_no_run() -> None:
    with pytest.raises(ValueError, match="run n1 has no events"):
        replay("n1", [])


def test_a_log_must_begin_with_run_started() -> None:
    with pytest.raises(ValueError, match="does not begin with run_started"):
        replay("n1", [e.RunResumed(cause="resume", time=NOON)])


def test_a_run_starts_once() -> None:
    world = World()
    with pytest.raises(ValueError, match="has started already"):
        apply(world.run, world.events[0])


def test_a_result_of_a_call_that_was_never_asked_for_is_a_corrupt_log() -> None:
    world = world_that_asked(READ)
    stray = replace(world.result(world.run.calls[0], Came()), call="n1:7:0")

    with pytest.raises(ValueError, match="has no call n1:7:0 in turn 1"):
        apply(world.run, stray)


def test_progress_changes_nothing_but_the_time() -> None:
    world = world_that_asked(READ)
    before = world.run
    world.record(e.ToolProgress(tool_name="read", label="half", call="n1:1:0", time=world.now))

    assert world.run == replace(before, seq=before.seq + 1, updated_at=world.run.updated_at)


def test_what_a_run_is_pinned_to_comes_from_its_first_event() -> None:
    world = World(messages=(User("hi"),))
    first = world.events[0]

    assert isinstance(first, e.RunStarted)
    assert world.run.tools == first.tools
    assert (world.run.limits, world.run.policies, world.run.price) == (first.limits, first.policies, first.price)
    assert world.run.messages == first.messages


# --- reloading ------------------------------------------------------------------------------------------------------

PREFIXES = [(name, length) for name, make in stories.STORIES.items() for length in range(1, len(make().events) + 1)]


@pytest.mark.parametrize(("story", "length"), PREFIXES)
def test_a_run_reloaded_at_any_point_takes_the_same_next_action(story: str, length: int) -> None:
    world = stories.STORIES[story]()
    events = world.events[:length]
    run = replay(world.run.id, events)
    again = reloaded(world.run.id, events)

    assert again == run
    assert decide(again, RULES, run.updated_at) == decide(run, RULES, run.updated_at)
