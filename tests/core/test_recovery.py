"""What is done again after a crash, what is not, and what a person must settle."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from gateway.core import commands
from gateway.core.commands import ToolOutput
from gateway.core.loop import AskModel
from gateway.core.run import (
    Cancelled,
    InDoubt,
    Policies,
    Status,
)
from gateway.core.stopping import Stop
from tests.core import stories
from tests.core.world import (
    POLICIES,
    Asked,
    Came,
    Player,
    World,
    answers,
    asks,
    batch,
    calls,
    says,
    world_that_asked,
)

READ = asks("read", path="a")
DELETE = asks("delete", path="a")
WRITE = asks("write", path="a")


def crashed_in(asked: Asked, policies: Policies = POLICIES) -> World:
    """A run that is taken up again after its process died between the intent and the result of a call."""
    world = world_that_asked(asked, policies=policies)
    if asked.tool == "delete" and policies.approval == "ask":
        world.drive(Player())
        world.approve("n1:1:0")
    world.record(world.intent(world.run.calls[0]))
    world.recover()
    return world


@pytest.mark.parametrize("asked", [READ, asks("poll"), asks("put", path="a")], ids=lambda asked: asked.tool)
def test_an_intent_without_a_result_is_run_again_if_that_does_no_harm(asked: Asked) -> None:
    world = crashed_in(asked)

    assert batch(world) == [asked.tool]
    world.drive(Player([says("done")]))
    assert world.run.tool_runs == 1


@pytest.mark.parametrize("approval", ["ask", "auto"])
@pytest.mark.parametrize("asked", [WRITE, DELETE], ids=lambda asked: asked.tool)
def test_a_write_without_a_result_is_in_doubt(asked: Asked, approval: Any) -> None:
    world = crashed_in(asked, Policies(approval=approval))

    assert world.decide() == Stop(Status.INTERRUPTED, InDoubt("n1:1:0", asked.tool, {"path": "a"}))


def test_a_call_that_had_not_begun_is_simply_run() -> None:
    world = world_that_asked(WRITE)
    world.recover()

    assert batch(world) == ["write"]


def settle_run_again(world: World) -> None:
    world.approve("n1:1:0")


def settle_skip(world: World) -> None:
    world.reject("n1:1:0", "it happened.")


def settle_output(world: World) -> None:
    world.post_all([ToolOutput(call_id="c1", output="it was written")])


@pytest.mark.parametrize(
    ("settle", "tool_runs", "answer"),
    [
        (settle_run_again, 1, "done"),
        (settle_skip, 0, "The user declined this call: it happened."),
        (settle_output, 1, "it was written"),
    ],
)
def test_a_doubt_is_settled_by_a_person(settle: Callable[[World], None], tool_runs: int, answer: str) -> None:
    world = stories.in_doubt()
    settle(world)
    world.drive(Player([says("done")]))

    assert world.run.status is Status.COMPLETED
    assert world.run.tool_runs == tool_runs
    assert answers(world.run) == [answer]


def test_a_doubt_outlives_a_cancel() -> None:
    world = stories.in_doubt()
    world.cancel()
    world.resume()
    world.drive(Player())

    assert world.run.reason == "in_doubt"


def test_a_write_that_was_run_again_and_crashed_again_is_in_doubt_again() -> None:
    world = stories.in_doubt()
    world.approve("n1:1:0")
    world.record(world.intent(world.run.calls[0]))
    world.recover()
    world.drive(Player())

    assert world.run.reason == "in_doubt"


def test_what_was_read_beside_a_crash_is_read_again_and_the_rest_is_kept() -> None:
    world = world_that_asked(asks("read", path="a"), asks("read", path="b"))
    first, second = world.run.calls
    world.record(world.intent(first), world.intent(second), world.result(second, Came("b")))
    world.recover()
    world.drive(Player([says("done")], {"read": [Came("a")]}))

    assert answers(world.run) == ["a", "b"]
    assert world.run.tool_runs == 2


def test_a_lost_reply_stays_in_the_unconfirmed_cost_and_is_never_paid_twice() -> None:
    world = World()
    flight = world.perform(world.decide(), Player())
    world.record(next(flight))
    estimate = world.run.unconfirmed_cost_usd
    world.recover()
    world.drive(Player([says("done")]))

    assert estimate > 0
    assert world.run.unconfirmed_cost_usd == estimate
    assert (world.run.turns, world.run.cost_usd) == (1, Decimal("0.00032"))


def test_three_recoveries_without_progress_are_poison() -> None:
    world = World()
    for _ in range(2):
        world.recover()
        assert world.decide() == AskModel()
    world.recover()
    world.drive(Player())

    assert world.run.status is Status.FAILED
    assert world.run.error == "the run was recovered 3 times in a row without any progress."


def test_a_process_that_closed_in_good_order_says_nothing_of_the_run() -> None:
    world = World()
    world.recover()
    world.recover()
    for _ in range(3):
        world.recover("handover")
        assert world.decide() == AskModel()
    world.recover()

    assert isinstance(world.decide(), Stop)


@pytest.mark.parametrize("progress", ["turn", "tool_result"])
def test_progress_makes_recoveries_harmless(progress: str) -> None:
    world = World() if progress == "turn" else world_that_asked(READ)
    world.recover()
    world.recover()
    world.step(Player([calls(READ)]))
    world.recover()

    assert not isinstance(world.decide(), Stop)


def test_a_person_who_resumes_makes_recoveries_harmless() -> None:
    world = World()
    world.recover()
    world.recover()
    world.record(commands.stop(world.run, Stop(Status.INTERRUPTED, Cancelled("stop")), world.now))
    world.resume()
    world.recover()

    assert world.decide() == AskModel()


def test_an_answer_is_not_lost_to_poison() -> None:
    world = World()
    world.step(Player([says("hello")]))
    for _ in range(5):
        world.recover()

    assert world.decide() == Stop(Status.COMPLETED)
