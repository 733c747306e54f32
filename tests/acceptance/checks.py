"""What must be true of every run, however often the gateway died under it."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import Any

from tests.acceptance.client import Body

ALIKE = (
    *("status", "reason", "output", "error", "turns", "tool_runs", "usage", "cost_usd"),
    *("messages", "approved", "interruption", "pending_approvals"),
)


def essence(run: Body) -> Body:
    """What a run that crashed has in common with one that never did: everything but its id, its times, the number of
    its events and what may have been billed besides."""
    text = json.dumps({name: run[name] for name in ALIKE}, default=str)
    return json.loads(text.replace(run["id"], "RUN"))


def in_flight(log: list[Body]) -> Decimal:
    """What the last durable event leaves unconfirmed: the estimate of a request whose reply is not in the log."""
    return log[-1]["estimateUsd"] if log and log[-1]["type"] == "turn_start" else Decimal(0)


def lost_in_flight(log: list[Body]) -> Decimal:
    """The estimates of all requests whose reply never came into the log."""
    lost = pending = Decimal(0)
    for event in log:
        match event["type"]:
            case "turn_start":
                pending = event["estimateUsd"]
            case "turn":
                pending = Decimal(0)
            case "run_resumed":
                lost, pending = lost + pending, Decimal(0)
    return lost


def differences(expected: Body, found: Body) -> list[str]:
    return [
        f"{name} is {found[name]!r} instead of {expected[name]!r}" for name in expected if found[name] != expected[name]
    ]


def faults_of_log(log: list[Body]) -> list[str]:
    """Events of one run: no gap, no turn twice, no answer twice, no answer that nobody asked for."""
    faults: list[str] = []
    if [event["seq"] for event in log] != list(range(1, len(log) + 1)):
        faults.append(f"seq has gaps: {[event['seq'] for event in log]}")
    turns = [event["turn"] for event in log if event["type"] == "turn"]
    if turns != list(range(1, len(turns) + 1)):
        faults.append(f"the turns recorded are {turns}")
    answers = Counter(event["call"] for event in log if event["type"] == "tool_result")
    if twice := [call for call, times in answers.items() if times > 1]:
        faults.append(f"answered more than once: {twice}")
    return [*faults, *paid_again(log)]


def paid_again(log: list[Body]) -> list[str]:
    """A request for a turn whose reply was recorded already would be paid twice."""
    done, faults = 0, []
    for event in log:
        if event["type"] == "turn_start" and event["turn"] <= done:
            faults.append(f"turn {event['turn']} was asked for again, at seq {event['seq']}")
        if event["type"] == "turn":
            done = event["turn"]
    return faults


def faults_of_transcript(messages: list[dict[str, Any]]) -> list[str]:
    """Each call has exactly one answer, in the order asked, before the model speaks again."""
    faults: list[str] = []
    position = 0
    while position < len(messages):
        asked = [call["id"] for call in messages[position].get("tool_calls", ())]
        position += 1
        answers: list[str] = []
        while position < len(messages) and messages[position]["role"] == "tool":
            answers.append(messages[position]["tool_call_id"])
            position += 1
        unfinished = position == len(messages) and answers == asked[: len(answers)]
        if answers != asked and not unfinished:
            faults.append(f"message {position}: asked {asked}, answered {answers}")
    return faults
