"""Errors of tools, and what they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.core.run import (
    Limits,
    Policies,
    Status,
)
from tests.core.world import (
    DENIED,
    FAILED,
    Asked,
    Came,
    Player,
    World,
    answers,
    asks,
    calls,
    names,
    says,
    world_that_asked,
)

READ = asks("read", path="a")
WRITE = asks("write", path="a")


# --- errors of tools ------------------------------------------------------------------------------------------------


def erring(policies: Policies, *asked: Asked, came: Sequence[Came]) -> World:
    world = World(policies=policies)
    world.drive(Player([*(calls(each) for each in asked), says("done")], {"read": came}))
    return world


PERMANENT = [
    ("tell_once", [READ], [DENIED], Status.COMPLETED, 2),
    ("tell_once", [READ, READ], [DENIED, DENIED], Status.FAILED, 2),
    ("tell_once", [READ, asks("read", path="b")], [DENIED, DENIED], Status.COMPLETED, 3),
    ("tell_once", [READ, asks("list"), READ], [DENIED, DENIED], Status.FAILED, 3),
    ("tell_once", [READ, READ, READ], [FAILED, FAILED, FAILED], Status.COMPLETED, 4),
    ("tell_once", [READ, READ], [DENIED, Came()], Status.COMPLETED, 3),
    ("stop", [READ], [DENIED], Status.FAILED, 1),
    ("stop", [READ], [FAILED], Status.COMPLETED, 2),
    ("tell_model", [READ] * 5, [DENIED] * 5, Status.COMPLETED, 6),
]


@pytest.mark.parametrize(("policy", "asked", "came", "status", "turns"), PERMANENT)
def test_what_a_permanent_error_does(
    policy: Any, asked: list[Asked], came: list[Came], status: Status, turns: int
) -> None:
    run = erring(Policies(on_permanent_error=policy), *asked, came=came).run

    assert (run.status, run.turns) == (status, turns)


def test_the_error_of_a_permanent_failure_names_the_call() -> None:
    run = erring(Policies(), READ, READ, came=[DENIED, DENIED]).run

    assert run.error == (
        'read {"path":"a"} failed permanently 2 times with the same arguments: asking again cannot help.'
    )
    assert answers(run) == ["Error: permission denied."] * 2


def test_the_published_denied_run_goes_on_until_its_cap() -> None:
    world = World(limits=Limits(max_turns=12), policies=Policies(on_permanent_error="tell_model"))
    denied = calls(asks("read", path="/etc/shadow"))
    world.drive(Player([denied] * 12, {"read": [DENIED] * 12}))

    assert (world.run.status, world.run.turns, world.run.tool_runs) == (Status.MAX_TURNS_EXCEEDED, 12, 11)


def test_a_fatal_error_ends_the_run() -> None:
    run = erring(Policies(tool_errors="fatal"), READ, came=[FAILED]).run

    assert (run.status, run.turns, run.tool_runs) == (Status.FAILED, 1, 1)
    assert run.error == "read failed, and this run treats tool errors as fatal."


def test_a_call_that_cannot_run_is_no_fatal_error() -> None:
    world = world_that_asked(asks("nothing"), policies=Policies(tool_errors="fatal"))
    world.drive(Player([says("done")]))

    assert world.run.status is Status.COMPLETED


@pytest.mark.parametrize("wording", ["worded", "vague"])
def test_other_errors_let_the_model_go_on(wording: Any) -> None:
    assert erring(Policies(tool_errors=wording), READ, came=[FAILED]).run.status is Status.COMPLETED


def test_a_fatal_error_beside_good_results_ends_the_run_after_all_of_them() -> None:
    world = world_that_asked(READ, asks("list"), WRITE, policies=Policies(tool_errors="fatal"))
    world.drive(Player(came={"read": [FAILED]}))

    assert (world.run.status, world.run.tool_runs) == (Status.FAILED, 2)
    assert answers(world.run) == ["Error: no such file.", "done"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (asks("nothing"), "Error: there is no tool nothing."),
        (Asked("read", "{"), "Error: the arguments are not JSON."),
        (asks("read", file="a"), "Error: path is missing."),
        (asks("delete", file="a"), "Error: path is missing."),
    ],
)
def test_a_call_that_cannot_run_is_answered_in_words_and_shown_to_nobody(asked: Asked, words: str) -> None:
    world = world_that_asked(asked)
    world.drive(Player([says("done")]))

    assert world.run.status is Status.COMPLETED
    assert answers(world.run) == [words]
    assert world.run.tool_runs == 0
    assert not {"approval_required", "tool_start"} & set(names(world.events))
