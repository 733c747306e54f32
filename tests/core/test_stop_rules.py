"""The stop rules beyond the caps: off by default, counted from the last resume, each with a name and a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.core.loop import Action, decide
from gateway.core.run import Limits, Run, Status, StopRule, StopRules
from gateway.core.stopping import RULES, Predicate, predicates
from tests.core.world import FAILED, Asked, Came, Player, Said, World, asks, calls, says

READ = asks("read", path="a")
OTHER = asks("read", path="b")
LIST = asks("list")
BAD_ARGUMENTS = Asked("read", "{")


def too_long(run: Run) -> str | None:
    return f"it took {run.turns} turns." if run.turns >= 2 else None


class Watched(World):
    """A world whose operator has rules of their own, and whose player stays for what comes after a resume."""

    own: dict[str, Predicate]
    player: Player

    def decide(self) -> Action:
        return decide(self.run, (*RULES, predicates(self.own)), self.now)


def driven(
    rules: StopRules, *said: Said | Asked, came: list[Came] | None = None, own: Any = None, **pinned: Any
) -> Watched:
    world = Watched(stop_rules=rules, **pinned)
    world.own = {"too_long": too_long} if own is None else own
    replies = [each if isinstance(each, Said) else calls(each) for each in said]
    world.player = Player(replies, {"read": came or []})
    world.drive(world.player)
    return world


def stopped_by(run: Run) -> StopRule:
    assert (run.status, run.reason) == (Status.INTERRUPTED, "stop_rule")
    assert isinstance(run.interruption, StopRule)
    return run.interruption


# --- each rule ------------------------------------------------------------------------------------------------------


FIRES: list[tuple[StopRules, list[Asked], list[Came], StopRule, int]] = [
    (
        StopRules(repeated_calls=2),
        [READ, OTHER, READ],
        [],
        StopRule("repeated_calls", 'read {"path":"a"} was asked for 2 times.'),
        3,
    ),
    (StopRules(repeated_calls=2), [LIST, LIST], [], StopRule("repeated_calls", "list {} was asked for 2 times."), 2),
    (
        StopRules(repeated_calls=2),
        [BAD_ARGUMENTS, BAD_ARGUMENTS],
        [],
        StopRule("repeated_calls", "read { was asked for 2 times."),
        2,
    ),
    (
        StopRules(repeated_failures=2),
        [READ, OTHER, READ],
        [FAILED, Came(), FAILED],
        StopRule("repeated_failures", 'read {"path":"a"} has failed 2 times.'),
        3,
    ),
    (
        StopRules(repeated_failures=2),
        [BAD_ARGUMENTS, BAD_ARGUMENTS],
        [],
        StopRule("repeated_failures", "read { has failed 2 times."),
        2,
    ),
    (StopRules(after_tools=("read",)), [LIST, READ], [], StopRule("after_tools", "read has succeeded."), 2),
    (StopRules(after_tools=("read",)), [READ, READ], [FAILED], StopRule("after_tools", "read has succeeded."), 2),
    (StopRules(predicates=("too_long",)), [LIST, LIST, LIST], [], StopRule("too_long", "it took 2 turns."), 2),
]


@pytest.mark.parametrize(("rules", "asked", "came", "stop", "turns"), FIRES)
def test_a_rule_that_is_on_stops_the_run_with_its_name_and_a_sentence(
    rules: StopRules, asked: list[Asked], came: list[Came], stop: StopRule, turns: int
) -> None:
    run = driven(rules, *asked, came=came).run

    assert stopped_by(run) == stop
    assert run.turns == turns


@pytest.mark.parametrize(("_", "asked", "came", "__", "___"), FIRES)
def test_all_of_them_are_off_by_default(_: Any, asked: list[Asked], came: list[Came], __: Any, ___: Any) -> None:
    run = driven(StopRules(), *asked, says("done"), came=came).run

    assert run.status is Status.COMPLETED
    assert run.tally.asked == run.tally.failed == {}


SPARES: list[tuple[StopRules, list[Said | Asked], list[Came]]] = [
    (StopRules(repeated_calls=3), [READ, READ, OTHER], []),
    (StopRules(repeated_failures=2), [READ, READ, OTHER], [FAILED, Came(), FAILED]),
    (StopRules(after_tools=("read",)), [READ, LIST], [FAILED]),
    (StopRules(after_tools=("read",)), [BAD_ARGUMENTS], []),
    (StopRules(predicates=("too_long",)), [LIST], []),
]


@pytest.mark.parametrize(("rules", "said", "came"), SPARES)
def test_what_a_rule_does_not_mean_goes_on(rules: StopRules, said: list[Said | Asked], came: list[Came]) -> None:
    assert driven(rules, *said, says("done"), came=came).run.status is Status.COMPLETED


def test_an_answer_is_an_answer_whatever_the_rules_say() -> None:
    run = driven(StopRules(predicates=("too_long",)), LIST, says("done")).run

    assert (run.status, run.turns) == (Status.COMPLETED, 2)


def test_the_same_call_twice_in_one_turn_is_asked_for_twice() -> None:
    run = driven(StopRules(repeated_calls=2), calls(READ, asks("read", "c2", path="a"))).run

    assert stopped_by(run).rule == "repeated_calls"


def test_a_call_that_a_person_refuses_has_not_failed() -> None:
    world = driven(StopRules(repeated_failures=1), asks("delete", path="a"), says("done"))
    world.reject(world.run.calls[0].id, "no")

    assert world.drive(world.player).status is Status.COMPLETED


def test_a_cap_comes_before_the_rules() -> None:
    run = driven(StopRules(repeated_calls=2), LIST, LIST, limits=Limits(max_turns=2)).run

    assert run.status is Status.MAX_TURNS_EXCEEDED


# --- predicates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "stop"),
    [
        ({}, StopRule("too_long", "it is no longer configured.")),
        ({"too_long": lambda run: None, "other": lambda run: "never asked"}, None),
        ({"too_long": lambda run: ""}, None),
    ],
)
def test_only_the_predicates_that_the_run_is_pinned_to_are_asked(own: dict[str, Predicate], stop: Any) -> None:
    run = driven(StopRules(predicates=("too_long",)), LIST, says("done"), own=own).run

    assert run.interruption == stop


def test_predicates_are_asked_in_the_order_of_the_run() -> None:
    own: dict[str, Callable[[Run], str | None]] = {name: lambda run, name=name: f"{name}." for name in "abc"}
    run = driven(StopRules(predicates=("b", "a")), LIST, own=own).run

    assert stopped_by(run) == StopRule("b", "b.")


# --- resumes --------------------------------------------------------------------------------------------------------


CHANCES = [
    (StopRules(repeated_calls=2), [LIST] * 4, [2, 4]),
    (StopRules(repeated_failures=1), [READ] * 3, [1, 2, 3]),
    (StopRules(after_tools=("list",)), [LIST] * 3, [1, 2, 3]),
    (StopRules(predicates=("too_long",)), [LIST] * 4, [2, 3, 4]),
]


@pytest.mark.parametrize(("rules", "asked", "turns"), CHANCES)
def test_a_resumed_run_gets_a_new_chance(rules: StopRules, asked: list[Asked], turns: list[int]) -> None:
    world = driven(rules, *asked, says("done"), came=[FAILED] * len(asked))
    seen = []
    while world.run.reason == "stop_rule" and len(seen) < len(asked):
        seen.append(world.run.turns)
        world.resume()
        world.drive(world.player)

    assert seen == turns
    assert world.run.status is Status.COMPLETED


@pytest.mark.parametrize(("rules", "asked", "turns"), CHANCES)
def test_a_crash_is_no_new_chance(rules: StopRules, asked: list[Asked], turns: list[int]) -> None:
    world = driven(rules, *asked, says("done"), came=[FAILED] * len(asked), limits=Limits(max_turns=1))
    if world.run.status is Status.MAX_TURNS_EXCEEDED:
        world.resume(max_turns=9)
    world.recover()
    world.drive(world.player)

    assert stopped_by(world.run).rule in (*StopRules.__struct_fields__, "too_long")
