"""Conversations: what the client says, as events, and what it makes of the run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.codec import decode_event, encode
from gateway.core.commands import RaisedLimits
from gateway.core.conversation import Word, converse
from gateway.core.errors import WrongState
from gateway.core.estimates import bytes_since_last_reply
from gateway.core.loop import AskModel, apply, decide, replay, start
from gateway.core.messages import Assistant, Function, Message, System, Tool, ToolCall, User
from gateway.core.pricing import Price
from gateway.core.run import Limits, Policies, Run, Status, ToolOutputs
from gateway.core.stopping import RULES, Stop

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ASKED = User("Which file?")
CALLS = Assistant(None, (ToolCall("c1", "function", Function("look", "{not json")),))
FREE = Price(free=True)


def word(*messages: Message, **changes: Any) -> Word:
    made = Word(messages=messages, tools=(), params={}, model="m", price=FREE, stream=False)
    return replace(made, **changes)


def begun(**limits: Any) -> Run:
    return start(
        "run_1",
        e.RunStarted(
            agent="conversation",
            model="m",
            messages=(ASKED,),
            tools=(),
            limits=Limits(**limits),
            policies=Policies(dedupe="off"),
            price=FREE,
            conversation="ticket",
            version=e.VERSION,
            time=NOON,
        ),
    )


def replied(run: Run, message: Assistant) -> Run:
    """The run after a reply, and after what follows from it."""
    turn = e.Turn(
        turn=run.turns + 1, prompt_tokens=10, completion_tokens=5, total_tokens=15, cost_usd=Decimal(0), finish="stop",
        turn_cost_usd=Decimal(0), message=message, checks=tuple(e.Check(None) for _ in message.tool_calls), ms=1,
        time=NOON,
    )  # fmt: skip
    return stopped(apply(run, turn))


def stopped(run: Run) -> Run:
    action = decide(run, RULES, NOON)
    assert isinstance(action, Stop)
    reason = "tool_outputs" if isinstance(action.interruption, ToolOutputs) else None
    return apply(
        run,
        e.RunStopped(
            status=action.status, reason=reason, turns=run.turns, cost_usd=Decimal(0),
            interruption=action.interruption, time=NOON,
        ),
    )  # fmt: skip


def after(run: Run, events: list[e.Event]) -> Run:
    """Through bytes, as a restart would have it."""
    for event in events:
        run = apply(run, decode_event(encode(event)))
    return run


def test_every_call_is_the_clients_valid_or_not() -> None:
    run = replied(begun(), CALLS)

    assert run.interruption == ToolOutputs(("run_1:1:0",))


def test_outputs_answer_the_calls_and_the_model_is_asked_again() -> None:
    run = replied(begun(), CALLS)

    events = converse(run, word(ASKED, CALLS, Tool("run_1:1:0", "look", "a.log")), NOON)
    run = after(run, events)

    assert [type(event).__name__ for event in events] == ["ToolResult", "RunResumed"]
    assert run.messages[-1] == Tool("c1", "look", "a.log")
    assert isinstance(decide(run, RULES, NOON), AskModel)


def test_an_answer_is_no_end_and_only_what_is_new_is_written() -> None:
    answer = Assistant("errors.log")
    run = replied(begun(), answer)

    [resumed] = converse(run, word(ASKED, answer, User("And now?")), NOON)

    assert isinstance(resumed, e.RunResumed)
    assert resumed.said == e.Said(keep=2, messages=(User("And now?"),))
    assert after(run, [resumed]).messages == (ASKED, answer, User("And now?"))
    assert after(run, [resumed]).last_usage == run.last_usage


def test_a_changed_transcript_takes_the_place_of_the_old_one_and_is_counted_anew() -> None:
    run = replied(begun(), CALLS)

    changed = after(run, converse(run, word(System("Summary."), User("Go on.")), NOON))

    assert changed.messages == (System("Summary."), User("Go on."))
    assert all(call.outcome for call in changed.calls)
    assert changed.turns == 1
    assert bytes_since_last_reply(changed) > sum(len(encode(message)) for message in changed.messages)


def test_what_was_replied_to_is_no_event() -> None:
    run = replied(begun(), CALLS)

    assert converse(run, word(ASKED), NOON) == []
    assert converse(replied(begun(), Assistant("Yes.")), word(ASKED), NOON) == []


@pytest.mark.parametrize(("cap", "status"), [(1, Status.MAX_TURNS_EXCEEDED), (2, Status.RUNNING)])
def test_a_cap_holds_until_it_is_raised(cap: int, status: Status) -> None:
    run = replied(begun(max_turns=1), CALLS)
    assert run.status is Status.MAX_TURNS_EXCEEDED

    events = converse(run, word(ASKED, limits=RaisedLimits(max_turns=cap)), NOON)

    assert after(run, events).status is status


def test_while_one_request_is_answered_another_one_waits_and_the_same_one_joins() -> None:
    assert converse(begun(), word(ASKED), NOON) == []
    with pytest.raises(WrongState, match="another request"):
        converse(begun(), word(User("Something else")), NOON)


def test_whatever_the_request_asks_for_goes_with_the_message() -> None:
    answer = Assistant("Yes.")
    run = replied(begun(), answer)

    said = word(ASKED, answer, ASKED, params={"seed": 1}, model="other", price=Price(input=Decimal(1)), stream=True)
    run = after(run, converse(run, said, NOON + timedelta(seconds=1)))

    assert (run.params, run.model, run.price.input, run.stream) == ({"seed": 1}, "other", 1, True)


def test_a_conversation_replays_to_itself() -> None:
    first = begun()
    started = e.RunStarted(
        agent=first.agent, model="m", messages=first.messages, tools=(), limits=first.limits,
        policies=first.policies, price=FREE, conversation="ticket", params={"seed": 1}, version=e.VERSION, time=NOON,
    )  # fmt: skip

    assert replay("run_1", [decode_event(encode(started))]) == replace(first, params={"seed": 1})
