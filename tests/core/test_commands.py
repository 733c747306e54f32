"""What people and clients may do to a run, in every state that it can be in."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gateway.core import commands
from gateway.core.calls import waiting_for_verdict
from gateway.core.codec import args_hash, decode_event, encode
from gateway.core.commands import RaisedLimits, ToolOutput
from gateway.core.errors import BadRequest, NotFound, RequestError, WrongState
from gateway.core.run import Cancelled, Limits, Status, ToolOutputs
from tests.core import stories
from tests.core.stories import STATES
from tests.core.world import Came, Player, World, answers, asks, calls, names, says, world_that_asked

Command = Callable[[World], Any]


def resume(world: World) -> Any:
    return world.resume()


def approve(world: World) -> Any:
    return world.approve("n1:1:0")


def cancel(world: World) -> Any:
    return world.cancel()


def outputs(world: World) -> Any:
    return world.post_all([ToolOutput(call_id="n1:1:0", output="ok")])


def recover(world: World) -> Any:
    return world.recover()


GOES_ON = ["run_resumed"]
STOPS = ["run_stopped"]
NOTHING: list[str] = []

TABLE: list[tuple[str, Command, list[str] | tuple[type[RequestError], str]]] = [
    ("running", resume, (WrongState, "run n1 is running: there is nothing to resume.")),
    ("completed", resume, (WrongState, "run n1 is completed and cannot be resumed: start a new one.")),
    ("failed", resume, (WrongState, "run n1 is failed and cannot be resumed: start a new one.")),
    ("max_turns", resume, (WrongState, "run n1 has used 2 turns and max_turns is 2: raise it above 2.")),
    ("max_budget", resume, (WrongState, "run n1 has spent $0.00064 and max_budget_usd is 0.0006: raise it.")),
    ("approval", resume, (WrongState, "run n1 waits for a verdict on n1:1:0: approve or reject it.")),
    ("cancelled", resume, GOES_ON),
    ("client_outputs", resume, (WrongState, "run n1 waits for tool outputs: post them.")),
    (
        "in_doubt",
        resume,
        (WrongState, "run n1 waits for a doubt to be settled: post its output, approve or reject it."),
    ),
    ("deadline", resume, (WrongState, "run n1 was driven for 12.500 s and deadline_seconds is 10.0: raise it.")),
    ("provider_down", resume, GOES_ON),
    ("running", approve, (NotFound, "run n1 has no call n1:1:0 in its last turn.")),
    ("completed", approve, (NotFound, "run n1 has no call n1:1:0 in its last turn.")),
    ("failed", approve, (WrongState, "call n1:1:0 does not wait for a verdict.")),
    ("max_turns", approve, (NotFound, "run n1 has no call n1:1:0 in its last turn.")),
    ("max_budget", approve, (NotFound, "run n1 has no call n1:1:0 in its last turn.")),
    ("approval", approve, ["verdict", "run_resumed"]),
    ("cancelled", approve, ["verdict"]),
    ("client_outputs", approve, (WrongState, "call n1:1:0 does not wait for a verdict.")),
    ("in_doubt", approve, ["verdict", "run_resumed"]),
    ("deadline", approve, (WrongState, "call n1:1:0 does not wait for a verdict.")),
    ("provider_down", approve, (NotFound, "run n1 has no call n1:1:0 in its last turn.")),
    ("running", cancel, (WrongState, "run n1 is running: whoever drives it stops it.")),
    ("completed", cancel, (WrongState, "run n1 has stopped already: completed.")),
    ("failed", cancel, (WrongState, "run n1 has stopped already: failed.")),
    ("max_turns", cancel, (WrongState, "run n1 has stopped already: max_turns_exceeded.")),
    ("max_budget", cancel, (WrongState, "run n1 has stopped already: budget_exceeded.")),
    ("approval", cancel, STOPS),
    ("cancelled", cancel, NOTHING),
    ("client_outputs", cancel, STOPS),
    ("in_doubt", cancel, STOPS),
    ("deadline", cancel, STOPS),
    ("provider_down", cancel, STOPS),
    ("running", outputs, (WrongState, "run n1 does not wait for tool outputs: it is running.")),
    ("completed", outputs, (WrongState, "run n1 does not wait for tool outputs: it is completed.")),
    ("failed", outputs, (WrongState, "run n1 does not wait for tool outputs: it is failed.")),
    ("max_turns", outputs, (WrongState, "run n1 does not wait for tool outputs: it is max_turns_exceeded.")),
    ("max_budget", outputs, (WrongState, "run n1 does not wait for tool outputs: it is budget_exceeded.")),
    ("approval", outputs, (WrongState, "run n1 does not wait for tool outputs: it is interrupted.")),
    ("cancelled", outputs, (WrongState, "run n1 does not wait for tool outputs: it is interrupted.")),
    ("client_outputs", outputs, ["tool_result"]),
    ("in_doubt", outputs, ["tool_result", "run_resumed"]),
    ("deadline", outputs, (WrongState, "run n1 does not wait for tool outputs: it is interrupted.")),
    ("provider_down", outputs, (WrongState, "run n1 does not wait for tool outputs: it is interrupted.")),
    *((state, recover, GOES_ON if state == "running" else NOTHING) for state in STATES),
]


@pytest.mark.parametrize(
    ("state", "command", "expected"), TABLE, ids=[f"{state}-{command.__name__}" for state, command, _ in TABLE]
)
def test_what_each_command_does_in_each_state(
    state: str, command: Command, expected: list[str] | tuple[type[RequestError], str]
) -> None:
    world = STATES[state]()
    before = world.run

    if isinstance(expected, list):
        assert names(command(world)) == expected
        assert (world.run.status is Status.RUNNING) == ("run_resumed" in expected or before.status is Status.RUNNING)
        return
    with pytest.raises(RequestError) as caught:
        command(world)
    assert (type(caught.value), str(caught.value)) == expected
    assert world.run == before


def test_every_command_is_tested_in_every_state() -> None:
    commands_tested = {command for _, command, _ in TABLE}

    assert {(state, command) for state, command, _ in TABLE} == set(itertools.product(STATES, commands_tested))


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


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "raised", "figure"),
    [
        ("max_turns", {"max_turns": 1}, "has used 2 turns and max_turns is 1"),
        ("max_turns", {"max_budget_usd": Decimal(5)}, "has used 2 turns and max_turns is 2"),
        ("max_turns", {"max_turns": 9, "max_budget_usd": Decimal("0.0000001")}, r"max_budget_usd is 0\.0000001"),
        ("max_budget", {"max_budget_usd": Decimal("0.00064")}, r"has spent \$0\.00064 and max_budget_usd is 0\.00064"),
        ("max_budget", {"max_turns": 2}, "has used 2 turns and max_turns is 2"),
        ("deadline", {"deadline_seconds": 11.0}, r"driven for 12\.500 s and deadline_seconds is 11\.0"),
        ("cancelled", {"max_turns": 1}, "has used 1 turns and max_turns is 1"),
    ],
)
def test_a_cap_that_is_not_raised_is_refused_with_its_figure(state: str, raised: dict[str, Any], figure: str) -> None:
    with pytest.raises(WrongState, match=figure):
        STATES[state]().resume(**raised)


@pytest.mark.parametrize(
    ("state", "raised"),
    [
        ("max_turns", {"max_turns": 3}),
        ("max_turns", {"max_turns": None, "max_budget_usd": Decimal(1)}),
        ("max_budget", {"max_budget_usd": Decimal("0.000641")}),
        ("max_budget", {"max_budget_usd": None, "max_turns": 20}),
        ("deadline", {"deadline_seconds": 13.0}),
        ("deadline", {"deadline_seconds": None}),
    ],
)
def test_a_raised_cap_drives_the_run_on(state: str, raised: dict[str, Any]) -> None:
    world = STATES[state]()
    (event,) = world.resume(**raised)

    assert world.run.status is Status.RUNNING
    assert world.run.limits == commands.with_limits(STATES[state]().run.limits, RaisedLimits(**raised))
    assert decode_event(encode(event)) == event


def test_a_resume_that_changes_no_limit_records_none() -> None:
    (event,) = stories.cancelled().resume(max_turns=20)

    assert b"limits" not in encode(event)


@pytest.mark.parametrize(
    ("limits", "param"),
    [
        (Limits(max_turns=None), "limits"),
        (Limits(max_turns=0), "limits.max_turns"),
        (Limits(max_turns=-1), "limits.max_turns"),
        (Limits(max_turns=10**7), "limits.max_turns"),
        *(
            (Limits(max_budget_usd=Decimal(figure)), "limits.max_budget_usd")
            for figure in ("0", "-1", "NaN", "sNaN", "Infinity", "-Infinity", "1e9")
        ),
        *(
            (Limits(deadline_seconds=figure), "limits.deadline_seconds")
            for figure in (0.0, -1.0, float("nan"), float("inf"), 1e9)
        ),
    ],
)
def test_limits_that_make_no_sense_are_refused(limits: Limits, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        commands.check_limits(limits)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "raised",
    [
        {"max_turns": None},
        {"max_turns": 10**7},
        {"max_budget_usd": Decimal("NaN")},
        {"max_budget_usd": Decimal("Infinity")},
        {"deadline_seconds": float("nan")},
    ],
)
def test_a_resume_cannot_raise_a_limit_out_of_range(raised: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        stories.cancelled().resume(**raised)


@pytest.mark.parametrize(
    "limits",
    [
        Limits(),
        Limits(max_turns=1),
        Limits(max_turns=10**6),
        Limits(max_turns=None, max_budget_usd=Decimal("1E-9")),
        Limits(max_budget_usd=Decimal(999_999_999), deadline_seconds=0.001),
    ],
)
def test_limits_that_make_sense_are_taken_and_can_be_read_again(limits: Limits) -> None:
    world = World(limits=commands.check_limits(limits))
    world.reload()

    assert world.run.limits == limits


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

    assert (event.ok, event.source, answers(world.run)) == (False, "client", ["no answer"])  # type: ignore[union-attr]


def test_a_settled_output_counts_as_an_execution() -> None:
    world = stories.in_doubt()
    (event, *_) = world.post(c1="it was written")

    assert event.source == "settled"  # type: ignore[union-attr]
    assert world.run.tool_runs == 1


# --- recovery -------------------------------------------------------------------------------------------------------


def test_a_recovery_takes_up_the_run_where_it_was() -> None:
    world = world_that_asked(asks("read", path="a"), asks("list"))
    world.record(world.result(world.run.calls[1], Came("files")))
    before = world.decide()
    world.recover()

    assert world.decide() == before
    assert world.run.recoveries == 1
