"""Verdicts, cancels, outputs and recoveries."""

from __future__ import annotations

import itertools
from datetime import timedelta
from decimal import Decimal

import pytest
from msgspec.structs import replace

from gateway.core import commands
from gateway.core.calls import waiting_for_verdict
from gateway.core.codec import args_hash, encode
from gateway.core.commands import ToolOutput
from gateway.core.errors import BadRequest, NotFound, WrongState
from gateway.core.run import Approval, Cancelled, Status, ToolOutputs, reason_of
from tests.core import stories
from tests.core.stories import STATES
from tests.core.world import Came, Player, World, answers, asks, calls, names, says, world_that_asked

# --- verdicts -------------------------------------------------------------------------------------------------------


def test_the_same_verdict_twice_is_no_event() -> None:
    world = stories.approval()

    assert names(world.approve("n1:1:0")) == ["verdict", "run_resumed"]
    assert world.approve("n1:1:0") == []
    world.step(Player())
    assert world.approve("n1:1:0") == []


def test_the_opposite_verdict_is_refused() -> None:
    world = stories.approval()
    world.reject("n1:1:0", "no.")

    with pytest.raises(WrongState, match=r"call n1:1:0 was rejected already\."):
        world.approve("n1:1:0")


@pytest.mark.parametrize("end", ["goes on", "completes"])
def test_a_verdict_is_repeated_by_somebody_who_did_not_see_that_the_run_went_on(end: str) -> None:
    world = stories.approval()
    world.approve("n1:1:0")
    world.drive(Player([calls(asks("delete", path="b")) if end == "goes on" else says("done")]))
    before = world.run

    assert world.approve("n1:1:0") == []
    with pytest.raises(WrongState, match=r"call n1:1:0 was approved already\."):
        world.reject("n1:1:0")
    assert world.run == before


def test_a_verdict_may_name_the_call_as_the_provider_does() -> None:
    world = stories.approval()

    assert names(world.approve("c1")) == ["verdict", "run_resumed"]
    assert world.run.approved == ("n1:1:0",)


def test_an_id_of_the_provider_that_names_two_calls_is_refused_with_both() -> None:
    world = world_that_asked(asks("delete", "same", path="a"), asks("delete", "same", path="b"))
    world.drive(Player())

    with pytest.raises(WrongState, match=r"same names 2 calls: say which of n1:1:0, n1:1:1\."):
        world.approve("same")
    assert names(world.approve("n1:1:1")) == ["verdict"]


def test_our_id_goes_before_a_provider_that_uses_it() -> None:
    world = world_that_asked(asks("delete", "n1:1:1", path="a"), asks("delete", "n1:1:0", path="b"))
    world.drive(Player())
    world.approve("n1:1:0")

    assert world.run.approved == ("n1:1:0",)
    assert world.run.calls[0].verdict is not None
    assert world.run.calls[1].verdict is None


def test_an_id_that_the_provider_reissues_names_the_call_of_the_last_turn() -> None:
    world = stories.approval()
    world.approve("c1")
    world.drive(Player([calls(asks("delete", "c1", path="b"))]))
    world.reject("c1", "not b.")

    assert (world.run.approved, world.run.rejected) == (("n1:1:0",), ("n1:2:0",))


def test_a_verdict_on_other_arguments_than_were_seen_is_refused() -> None:
    world = stories.approval()

    with pytest.raises(WrongState, match="are not those that were seen") as caught:
        world.approve("n1:1:0", seen_hash=args_hash("delete", {"path": "b"}))
    assert caught.value.param == "args_hash"
    assert names(world.approve("n1:1:0", seen_hash=args_hash("delete", {"path": "a"}))) == ["verdict", "run_resumed"]


def test_an_unknown_call_is_not_found() -> None:
    with pytest.raises(NotFound) as caught:
        stories.approval().approve("n1:9:9")
    assert caught.value.param == "call_id"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("approved", list(itertools.product([True, False], repeat=3)))
def test_several_approvals_take_their_verdicts_in_any_order(order: tuple[int, ...], approved: tuple[bool, ...]) -> None:
    world = world_that_asked(*(asks("delete", path=name) for name in "abc"))
    world.drive(Player())
    for position, index in enumerate(order):
        given = world.approve(f"n1:1:{index}") if approved[index] else world.reject(f"n1:1:{index}", f"not {index}.")
        assert names(given) == (["verdict", "run_resumed"] if position == 2 else ["verdict"])
    world.drive(Player([says("done")]))

    words = [f"The user declined this call: not {index}." for index in range(3)]
    assert answers(world.run) == ["done" if approved[index] else words[index] for index in range(3)]
    assert world.run.tool_runs == sum(approved)


def test_each_approval_is_announced_once() -> None:
    world = world_that_asked(asks("delete", path="a"), asks("read", path="x"), asks("delete", path="b"))
    world.drive(Player())
    world.cancel()
    world.resume()
    world.drive(Player())

    assert names(world.events).count("approval_required") == 2
    assert [call.id for call in waiting_for_verdict(world.run)] == ["n1:1:0", "n1:1:2"]


def test_a_verdict_outlives_the_stop_by_a_cap() -> None:
    world = stories.max_turns()
    assert names(world.approve("n1:2:0")) == ["verdict"]
    assert world.run.status is Status.MAX_TURNS_EXCEEDED

    world.resume(max_turns=5)
    world.drive(Player([says("done")]))
    assert (world.run.status, world.run.tool_runs) == (Status.COMPLETED, 2)


def test_a_failed_run_takes_no_verdict() -> None:
    with pytest.raises(WrongState, match=r"call n1:1:1 does not wait for a verdict\."):
        stories.failed().approve("n1:1:1")


def test_a_run_that_waits_for_several_verdicts_names_the_first_that_is_missing() -> None:
    world = world_that_asked(*(asks("delete", path=name) for name in "abc"))
    world.drive(Player())
    world.approve("n1:1:2")
    assert reason_of(world.run.interruption) == "approval"
    assert world.run.interruption.call_id == "n1:1:0"

    world.approve("n1:1:0")
    assert world.run.interruption == Approval("n1:1:1", "delete", {"path": "b"}, args_hash("delete", {"path": "b"}))


@pytest.mark.parametrize("again", [True, False])
def test_an_approved_write_that_is_in_doubt_takes_another_verdict(again: bool) -> None:
    world = stories.approval()
    world.approve("n1:1:0")
    world.record(world.intent(world.run.calls[0]))
    world.recover()
    world.drive(Player())
    assert world.run.reason == "in_doubt"

    given = world.approve("n1:1:0") if again else world.reject("n1:1:0")
    assert names(given) == ["verdict", "run_resumed"]
    world.drive(Player([says("done")]))
    assert (world.run.tool_runs, world.run.approved, world.run.rejected) == (
        (1, ("n1:1:0",), ()) if again else (0, (), ("n1:1:0",))
    )


def test_a_verdict_does_not_wake_a_run_that_waits_for_something_else() -> None:
    world = world_that_asked(asks("write", path="a"), asks("delete", "c2", path="b"))
    world.record(world.intent(world.run.calls[0]))
    world.recover()
    world.drive(Player())
    assert world.run.reason == "in_doubt"

    assert names(world.approve("n1:1:1")) == ["verdict"]
    world.reject("n1:1:0", "skip it.")
    world.drive(Player([says("done")]))
    assert world.run.tool_runs == 1


# --- cancel, and what comes after -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["approval", "client_outputs", "in_doubt", "deadline", "provider_down"])
def test_a_cancel_while_waiting_keeps_the_words_and_counts_no_time(state: str) -> None:
    world = STATES[state]()
    driven = world.run.driven
    world.now += timedelta(hours=1)
    world.cancel("lunch")

    assert world.run.interruption == Cancelled("lunch")
    assert world.run.reason == "cancelled"
    assert world.run.driven == driven


def test_a_run_cancelled_while_it_waited_waits_again_when_resumed() -> None:
    world = stories.cancelled()
    world.resume()
    world.drive(Player())

    assert world.run.reason == "approval"


def test_a_verdict_given_to_a_cancelled_run_is_kept() -> None:
    world = stories.cancelled()
    world.approve("n1:1:0")
    assert world.run.reason == "cancelled"

    world.resume()
    world.drive(Player([says("done")]))
    assert (world.run.status, world.run.tool_runs) == (Status.COMPLETED, 1)


def test_after_a_cancel_outstanding_calls_go_on_and_a_write_that_had_begun_is_in_doubt() -> None:
    world = world_that_asked(asks("read", path="a"), asks("write", path="a"))
    world.step(Player())
    world.record(world.intent(world.run.calls[1]))
    world.record(commands.stop(world.run, commands.Stop(Status.INTERRUPTED, Cancelled("stop")), world.now))
    world.resume()
    world.drive(Player())

    assert world.run.reason == "in_doubt"
    assert answers(world.run) == ["done"]


# --- outputs --------------------------------------------------------------------------------------------------------


def test_outputs_may_come_one_by_one_and_in_any_order() -> None:
    world = stories.client_outputs()
    assert names(world.post(q2="second")) == ["tool_result"]
    assert world.run.status is Status.INTERRUPTED
    assert names(world.post(q1="first")) == ["tool_result", "run_resumed"]
    world.drive(Player([says("done")]))

    assert answers(world.run) == ["first", "second"]
    assert world.run.tool_runs == 0


def test_outputs_may_come_at_once() -> None:
    world = stories.client_outputs()

    assert names(world.post(q2="second", q1="first")) == ["tool_result", "tool_result", "run_resumed"]
    assert answers(world.run) == ["first", "second"]


def test_an_output_of_a_call_that_is_answered_already_is_refused() -> None:
    world = stories.client_outputs()
    world.post(q1="first")

    with pytest.raises(WrongState, match=r"call n1:1:0 does not wait for an output\."):
        world.post(q1="again")


@pytest.mark.parametrize("second", ["q1", "n1:1:0"])
def test_a_call_that_is_named_twice_is_refused(second: str) -> None:
    world = stories.client_outputs()

    with pytest.raises(BadRequest, match="a call is named twice"):
        world.post_all([ToolOutput(call_id="q1", output="a"), ToolOutput(call_id=second, output="b")])


def test_an_output_of_an_unknown_call_is_not_found_and_none_is_taken() -> None:
    world = stories.client_outputs()
    before = world.run

    with pytest.raises(NotFound):
        world.post(q1="first", q9="?")
    assert world.run == before


def test_no_outputs_are_no_event() -> None:
    assert stories.client_outputs().post_all([]) == []


def test_a_run_cancelled_while_the_client_worked_asks_again_for_what_is_missing() -> None:
    world = stories.client_outputs()
    world.post(q1="first")
    world.cancel()
    world.resume()
    world.drive(Player())

    assert world.run.interruption == ToolOutputs(("n1:1:1",))


def test_a_failure_of_the_client_is_told_as_it_came() -> None:
    world = stories.client_outputs()
    (event, *_) = world.post_all([ToolOutput(call_id="q1", output="no answer", ok=False)])

    assert (event.ok, event.source, answers(world.run)) == (False, "client", ["no answer"])


def test_a_settled_output_counts_as_an_execution() -> None:
    world = stories.in_doubt()
    (event, *_) = world.post(c1="it was written")

    assert event.source == "settled"
    assert world.run.tool_runs == 1


# --- recovery -------------------------------------------------------------------------------------------------------


def test_a_recovery_takes_up_the_run_where_it_was() -> None:
    world = world_that_asked(asks("read", path="a"), asks("list"))
    world.record(world.result(world.run.calls[1], Came("files")))
    before = world.decide()
    world.recover()

    assert world.decide() == before
    assert world.run.recoveries == 1


def test_a_stop_writes_its_figures_without_trailing_zeros() -> None:
    world = World()
    turn = replace(world.turn(says("hello")), cost_usd=Decimal("0.001570"), unconfirmed_usd=Decimal("0.000"))
    world.record(turn)
    world.drive(Player())

    assert b'"turns":1,"costUsd":0.00157,' in encode(world.events[-1])
    assert b"unconfirmedCostUsd" not in encode(world.events[-1])
