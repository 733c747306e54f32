"""Every command in every state: what it does, or the words in which it is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from gateway.core.commands import ToolOutput
from gateway.core.errors import NotFound, RequestError, WrongState
from gateway.core.run import Status
from tests.core.stories import STATES
from tests.core.world import World, names

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
