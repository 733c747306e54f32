"""Limits that make sense, and caps that are raised or not."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.core import commands
from gateway.core.codec import decode_event, encode
from gateway.core.commands import RaisedLimits
from gateway.core.errors import BadRequest, WrongState
from gateway.core.run import Limits, Status
from tests.core import stories
from tests.core.stories import STATES
from tests.core.world import World


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
