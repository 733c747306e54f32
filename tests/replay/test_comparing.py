"""What is compared, and how a difference is told."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from gateway.core import events as e
from gateway.core.run import Limits
from gateway.replay.comparing import Difference, first_difference, normal
from gateway.replay.exporting import recording_of, renamed

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def result(call: str = "n1:1:0", content: str = "done", ms: int = 3) -> e.ToolResult:
    return e.ToolResult(tool_name="read", ms=ms, ok=True, provider_id="c1", call=call, content=content, time=NOON)


def test_times_are_not_compared() -> None:
    assert normal(result(ms=3)) == normal(result(ms=900))
    assert "time" not in normal(result())


def test_whether_there_is_a_deadline_is_compared_and_not_how_long_it_is() -> None:
    none, short, long = (
        normal(e.RunResumed(cause="resume", limits=Limits(deadline_seconds=seconds), time=NOON))
        for seconds in (None, 0.1, 100.0)
    )

    assert short == long
    assert short != none


def test_money_is_compared_exactly() -> None:
    start = e.TurnStart(turn=1, estimate_usd=Decimal("0.1234567890123456789"), unconfirmed_usd=Decimal(0), time=NOON)

    assert normal(start)["estimateUsd"] == Decimal("0.1234567890123456789")


@pytest.mark.parametrize(
    ("recorded", "replayed", "field", "old", "new"),
    [
        ({"type": "a"}, {"type": "b"}, "type", "a", "b"),
        ({"type": "a"}, None, "type", "a", None),
        (None, {"type": "a"}, "type", None, "a"),
        ({"type": "a", "x": 1, "y": 1}, {"type": "a", "x": 2, "y": 2}, "x", 1, 2),
        ({"type": "a", "x": {"y": [1, {"z": 1}]}}, {"type": "a", "x": {"y": [1, {"z": 2}]}}, "x.y[1].z", 1, 2),
        ({"type": "a", "x": [1]}, {"type": "a", "x": [1, 2]}, "x", [1], [1, 2]),
        ({"type": "a"}, {"type": "a", "x": False}, "x", None, False),
        ({"type": "a", "x": 1}, {"type": "a", "x": True}, "x", 1, True),
    ],
)
def test_the_first_field_that_differs_is_named(recorded: Any, replayed: Any, field: str, old: Any, new: Any) -> None:
    difference = first_difference(7, recorded, replayed)

    assert difference == Difference(event=7, type="a", field=field, recorded=old, replayed=new)


def test_events_that_are_equal_do_not_differ() -> None:
    assert first_difference(0, {"type": "a", "x": 1}, {"type": "a", "x": Decimal(1)}) is None


def test_a_difference_is_one_line_however_long_its_values_are() -> None:
    words = str(Difference(event=3, type="turn", field="message.content", recorded="a\nb", replayed="c" * 999))

    assert words.startswith('Event 3 (turn), message.content: "a\\nb" → "ccc')
    assert len(words) < 300
    assert words.endswith("…")


def test_ids_of_the_run_are_renamed_and_other_words_are_left_alone() -> None:
    own, foreign = renamed("n1", [result("n1:1:0", "n1 is n1:1:0"), result("n12:1:0", "n1")])

    assert isinstance(own, e.ToolResult)
    assert isinstance(foreign, e.ToolResult)
    assert (own.call, own.content) == ("recorded:1:0", "n1 is n1:1:0")
    assert foreign.call == "n12:1:0"


def test_events_that_are_no_run_cannot_be_exported() -> None:
    with pytest.raises(ValueError, match="without events"):
        recording_of("n1", [])
    with pytest.raises(ValueError, match="does not begin with run_started"):
        recording_of("n1", [result()])
