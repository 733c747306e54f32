"""Which calls of a turn may be run, together or alone, and which are answered in words."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Literal

import pytest

from gateway.core import events as e
from gateway.core.calls import DEFAULT_REFUSAL, DENIED_BY_POLICY, PARALLEL_CALLS_MAX
from gateway.core.commands import ToolOutput
from gateway.core.loop import AskModel
from gateway.core.run import (
    Approval,
    Limits,
    Policies,
    Status,
    ToolOutputs,
    ToolSpec,
)
from tests.core import stories
from tests.core.world import (
    FAILED,
    Asked,
    Came,
    Player,
    World,
    answers,
    asks,
    batch,
    batches,
    calls,
    ids,
    names,
    says,
    the_answer,
    world_that_asked,
)

READ = asks("read", path="a")
DELETE = asks("delete", path="a")
WRITE = asks("write", path="a")


# --- what may go together -------------------------------------------------------------------------------------------

BATCHES = [
    ("neighbouring reads together", [READ, asks("list"), asks("poll")], [["read", "list", "poll"]]),
    ("a write alone", [READ, WRITE, asks("list")], [["read"], ["write"], ["list"]]),
    ("two writes one by one", [WRITE, asks("put", path="b")], [["write"], ["put"]]),
    ("an approval holds up what is behind it", [READ, DELETE, asks("list")], [["read"]]),
    ("an approval to read holds up as well", [asks("peek", path="a"), READ], []),
    ("the client's calls hold up nothing", [asks("ask_user", question="?"), WRITE, READ], [["write"], ["read"]]),
    ("invalid calls beside reads", [asks("nothing"), READ, asks("write")], [["(invalid)", "read", "(invalid)"]]),
    ("an invalid call of the client's is answered", [asks("ask_user"), READ], [["(invalid)", "read"]]),
    ("identical calls one after the other", [READ, READ, asks("list")], [["read"], ["(cache)", "list"]]),
    ("a write between two identical reads", [READ, WRITE, READ], [["read"], ["write"], ["read"]]),
    ("nothing", [], []),
]


@pytest.mark.parametrize(("asked", "expected"), [row[1:] for row in BATCHES], ids=[row[0] for row in BATCHES])
def test_which_calls_go_together(asked: list[Asked], expected: list[list[str]]) -> None:
    assert batches(world_that_asked(*asked)) == expected


def test_no_more_calls_go_together_than_the_maximum() -> None:
    world = world_that_asked(*(asks("read", path=str(index)) for index in range(PARALLEL_CALLS_MAX + 3)))

    assert [len(each) for each in batches(world)] == [PARALLEL_CALLS_MAX, 3]


def test_the_client_is_asked_when_all_else_is_done_and_for_all_its_calls_at_once() -> None:
    first, second = asks("ask_user", question="1?"), asks("ask_user", question="2?")
    world = world_that_asked(first, READ, second)
    world.drive(Player())

    assert world.run.interruption == ToolOutputs(("n1:1:0", "n1:1:2"))
    assert world.run.tool_runs == 1


def test_a_call_of_the_client_that_needs_an_approval_waits_for_it_first() -> None:
    world = world_that_asked(asks("sign", paper="will"))
    world.drive(Player())
    assert world.run.reason == "approval"

    world.approve("n1:1:0")
    world.drive(Player())
    assert world.run.interruption == ToolOutputs(("n1:1:0",))


def test_a_rejected_call_of_the_client_is_answered_in_words() -> None:
    world = world_that_asked(asks("sign", paper="will"))
    world.drive(Player())
    world.reject("n1:1:0", "not today.")

    assert the_answer(world).content == "The user declined this call: not today."


def test_a_call_of_the_client_is_refused_by_a_policy_that_denies() -> None:
    world = world_that_asked(asks("sign", paper="will"), policies=Policies(approval="deny"))

    assert the_answer(world).source == "refusal"


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_answers_keep_the_order_asked_whichever_came_first(order: tuple[int, ...]) -> None:
    world = world_that_asked(*(asks("read", f"c{index}", path=str(index)) for index in range(4)))
    for index in order:
        world.record(world.result(world.run.calls[index], Came(f"text of {index}")))
        arrived = sorted(order[: order.index(index) + 1])
        assert answers(world.run) == [f"text of {each}" for each in arrived]

    assert world.decide() == AskModel()


def test_calls_with_one_id_of_the_provider_keep_their_own_answers() -> None:
    world = world_that_asked(asks("read", "same", path="a"), asks("read", "same", path="b"))
    first, second = world.run.calls
    world.record(world.result(second, Came("b")), world.result(first, Came("a")))

    assert answers(world.run) == ["a", "b"]
    assert ids(world.run) == ["n1:1:0", "n1:1:1"]


# --- repeated calls -------------------------------------------------------------------------------------------------

Dedupe = Literal["off", "read_only", "all"]


def repeated(dedupe: Dedupe, *asked: Asked, came: dict[str, Sequence[Came]] | None = None) -> World:
    """A run whose model asks for one call a turn."""
    world = World(policies=Policies(dedupe=dedupe, approval="auto"))
    world.drive(Player([*(calls(each) for each in asked), says("done")], came))
    return world


@pytest.mark.parametrize(
    ("dedupe", "asked", "tool_runs"),
    [
        ("off", [READ, READ], 2),
        ("read_only", [READ, READ], 1),
        ("read_only", [READ, asks("read", path="b")], 2),
        ("read_only", [asks("poll"), asks("poll")], 2),
        ("read_only", [DELETE, DELETE], 2),
        ("read_only", [READ, WRITE, READ], 3),
        ("read_only", [READ, asks("list"), asks("poll"), READ], 3),
        ("all", [READ, READ], 1),
        ("all", [asks("poll"), asks("poll")], 1),
        ("all", [DELETE, DELETE], 1),
        ("all", [DELETE, asks("list"), DELETE], 2),
        ("all", [READ, WRITE, READ], 3),
    ],
)
def test_which_repeated_calls_are_run_again(dedupe: Dedupe, asked: list[Asked], tool_runs: int) -> None:
    world = repeated(dedupe, *asked)

    assert world.run.tool_runs == tool_runs
    assert len(answers(world.run)) == len(asked)


def test_a_remembered_answer_is_given_in_the_same_words_and_says_where_it_is_from() -> None:
    world = repeated("read_only", READ, READ, came={"read": [Came("first"), Came("second")]})
    sources = [event.source for event in world.events if isinstance(event, e.ToolResult)]

    assert answers(world.run) == ["first", "first"]
    assert sources == ["tool", "cache"]
    assert names(world.events).count("tool_start") == 1


def test_the_order_of_the_keys_makes_no_other_call() -> None:
    world = repeated(
        "read_only", Asked("read", '{"path":"a","n":{"x":1,"y":2}}'), Asked("read", '{"n": {"y":2, "x":1}, "path":"a"}')
    )

    assert world.run.tool_runs == 1


@pytest.mark.parametrize("dedupe", ["read_only", "all"])
def test_failures_are_never_remembered(dedupe: Dedupe) -> None:
    assert repeated(dedupe, READ, READ, came={"read": [FAILED, Came()]}).run.tool_runs == 2


@pytest.mark.parametrize("dedupe", ["read_only", "all"])
def test_identical_calls_of_one_turn_are_not_run_twice(dedupe: Dedupe) -> None:
    world = world_that_asked(READ, READ, READ, policies=Policies(dedupe=dedupe))
    world.drive(Player([says("done")]))

    assert world.run.tool_runs == 1
    assert len(answers(world.run)) == 3


def test_identical_calls_of_one_turn_are_run_together_without_dedupe() -> None:
    assert batch(world_that_asked(READ, READ, policies=Policies(dedupe="off"))) == ["read", "read"]


def test_a_write_that_failed_forgets_what_was_read_before() -> None:
    assert repeated("read_only", READ, WRITE, READ, came={"write": [FAILED]}).run.tool_runs == 3


def test_an_output_of_the_client_forgets_what_was_read_before() -> None:
    world = world_that_asked(READ, asks("ask_user", question="?"))
    world.drive(Player())
    world.post_all([ToolOutput(call_id="n1:1:1", output="yes")])
    world.step(Player([calls(READ)]))

    assert batch(world) == ["read"]


def test_a_write_in_doubt_that_is_skipped_forgets_what_was_read_before() -> None:
    world = world_that_asked(READ, WRITE)
    world.step(Player())
    world.record(world.intent(world.run.calls[1]))
    world.recover()
    world.drive(Player())
    world.reject("n1:1:1")
    world.step(Player())
    world.step(Player([calls(READ)]))

    assert batch(world) == ["read"]


# --- approvals ------------------------------------------------------------------------------------------------------


def test_a_call_that_needs_an_approval_stops_the_run_with_what_a_person_must_see() -> None:
    world = stories.approval()
    announced = [event for event in world.events if isinstance(event, e.ApprovalRequired)]

    assert isinstance(world.run.interruption, Approval)
    assert world.run.interruption.call_id == "n1:1:0"
    assert world.run.interruption.tool_name == "delete"
    assert world.run.interruption.args == {"path": "a"}
    assert [(event.tool_name, event.args, event.provider_id) for event in announced] == [
        ("delete", '{"path":"a"}', "c1")
    ]


def test_an_approved_call_is_run_once() -> None:
    world = stories.approval()
    world.approve("n1:1:0")
    world.drive(Player([says("done")]))

    assert (world.run.status, world.run.tool_runs, world.run.approved) == (Status.COMPLETED, 1, ("n1:1:0",))


@pytest.mark.parametrize(
    ("refusal", "reason", "words"),
    [
        ("worded", "keep the log.", "The user declined this call: keep the log."),
        ("worded", None, f"The user declined this call: {DEFAULT_REFUSAL}"),
        ("worded", "", f"The user declined this call: {DEFAULT_REFUSAL}"),
        ("silent", "keep the log.", ""),
    ],
)
def test_the_words_of_a_refusal(refusal: Any, reason: str | None, words: str) -> None:
    world = world_that_asked(DELETE, policies=Policies(refusal=refusal))
    world.drive(Player())
    world.reject("n1:1:0", reason)
    world.drive(Player([says("done")]))

    assert answers(world.run) == [words]
    assert (world.run.tool_runs, world.run.approved, world.run.rejected) == (0, (), ("n1:1:0",))


def test_approvals_are_given_by_a_policy_that_says_auto() -> None:
    world = world_that_asked(DELETE, policies=Policies(approval="auto"))

    assert batch(world) == ["delete"]


def test_approvals_are_refused_in_words_by_a_policy_that_says_deny() -> None:
    world = world_that_asked(DELETE, policies=Policies(approval="deny"))
    world.drive(Player([says("done")]))

    assert world.run.status is Status.COMPLETED
    assert answers(world.run) == [f"The user declined this call: {DENIED_BY_POLICY}"]
    assert world.run.tool_runs == 0


def test_a_refused_write_leaves_what_was_read_as_it_is() -> None:
    world = world_that_asked(READ, DELETE, policies=Policies(approval="deny"))
    world.step(Player())
    world.step(Player([calls(READ)]))

    assert batch(world) == ["(cache)"]


def test_a_subagent_for_which_nothing_is_left_waits_for_what_those_before_it_leave() -> None:
    research = ToolSpec(
        name="research",
        description="",
        parameters={"type": "object", "required": ["question"]},
        read_only=True,
        subagent="research",
        budget_usd=Decimal("0.05"),
    )
    questions = (asks("research", question="one"), asks("research", question="two"))

    world = world_that_asked(*questions, tools=(research,), limits=Limits(max_budget_usd=Decimal("0.05")))

    assert batch(world) == ["research"]
