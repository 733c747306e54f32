"""More bad input over HTTP, beside test_problems.py: stop rules, hard budgets, tools, keys, verdicts, outputs. Each is
refused with words that help, and leaves nothing behind: no run, no event, no claimed key."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.serving import QUESTION, Gateway, refused

KEY = "Idempotency-Key"
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def order(**fields: Any) -> dict[str, Any]:
    return {"input": QUESTION, **fields}


def rules(**stop_rules: Any) -> dict[str, Any]:
    return order(stop_rules=stop_rules)


def limits(**limits: Any) -> dict[str, Any]:
    return order(limits=limits)


def function(**fields: Any) -> dict[str, Any]:
    return order(tools=[{"type": "function", "function": {"name": "f", **fields}}])


ORDERS: list[tuple[str, Any, int, str | None, str]] = [
    ("stop rules in a list", order(stop_rules=["repeated_calls"]), 400, "stop_rules", "array"),
    ("a stop rule that there is not", rules(repeated_turns=3), 400, "stop_rules.repeated_turns", "repeated_turns"),
    ("a call that may not even be made once", rules(repeated_calls=1), 400, "stop_rules.repeated_calls", "2"),
    ("a call that may be repeated too often", rules(repeated_calls=1001), 400, "stop_rules.repeated_calls", "1000"),
    ("a repetition in words", rules(repeated_calls="3"), 400, "stop_rules.repeated_calls", "str"),
    ("half a repetition", rules(repeated_calls=2.5), 400, "stop_rules.repeated_calls", "float"),
    ("no failure", rules(repeated_failures=0), 400, "stop_rules.repeated_failures", "1"),
    ("less than no failure", rules(repeated_failures=-3), 400, "stop_rules.repeated_failures", "1"),
    ("one tool instead of a list", rules(after_tools="delete_file"), 400, "stop_rules.after_tools", "str"),
    ("a tool to stop after that there is not", rules(after_tools=["fly"]), 422, "stop_rules.after_tools", "list_files"),
    ("too many tools to stop after", rules(after_tools=["list_files"] * 257), 400, "stop_rules.after_tools", "256"),
    ("a tool to stop after that is null", rules(after_tools=[None]), 400, "stop_rules.after_tools[0]", "null"),
    ("a tool to stop after that is not used", rules(after_tools=["read_file"]) | {"tools": []}, 422, None, "none"),
    ("a predicate that there is not", rules(predicates=["too_long"]), 422, "stop_rules.predicates", "too_long"),
    ("a predicate by its path", rules(predicates=["os:system"]), 422, "stop_rules.predicates", "os:system"),
    ("predicates that are null", rules(predicates=None), 400, "stop_rules.predicates", "null"),
    ("a budget mode that there is not", limits(budget_mode="strict"), 400, "limits.budget_mode", "strict"),
    ("a budget mode that is null", limits(budget_mode=None), 400, "limits.budget_mode", "null"),
    ("a hard budget of nothing", limits(budget_mode="hard", max_budget_usd=0), 400, "limits.max_budget_usd", "above 0"),
    ("a hard budget below nothing", limits(budget_mode="hard", max_budget_usd=-1), 400, "limits.max_budget_usd", "-1"),
    ("a budget beyond all money", limits(max_budget_usd=1e12), 400, "limits.max_budget_usd", ""),
    ("a budget in a list", limits(max_budget_usd=[1]), 400, "limits.max_budget_usd", "array"),
    ("a deadline in the past", limits(deadline_seconds=-5), 400, "limits.deadline_seconds", "-5"),
    ("a deadline of centuries", limits(deadline_seconds=1e12), 400, "limits.deadline_seconds", ""),
    ("limits in a list", order(limits=[3]), 400, "limits", "array"),
    ("limits that are null", order(limits=None), 400, "limits", "null"),
    ("policies that are null", order(policies=None), 400, "policies", "null"),
    ("an approval policy that there is not", order(policies={"approval": "maybe"}), 400, "policies.approval", "maybe"),
    ("tools that are no list", order(tools="list_files"), 400, "tools", "str"),
    ("too many tools", order(tools=["list_files"] * 257), 400, "tools", "256"),
    ("a tool that is a number", order(tools=[1]), 400, "tools[0]", "int"),
    ("a definition without a type", order(tools=[{"function": {"name": "f"}}]), 400, "tools[0].type", "type"),
    ("a definition without a function", order(tools=[{"type": "function"}]), 400, "tools[0].function", "function"),
    ("a definition with more", order(tools=[{**WEATHER, "url": "x"}]), 400, "tools[0].url", "url"),
    ("a function with more", function(code="import os"), 400, "tools[0].function.code", "code"),
    ("a tool name that is too long", function(name="f" * 65), 400, "tools[0].function.name", ""),
    ("a tool name with a line break", function(name="f\n"), 400, "tools[0].function.name", ""),
    ("an empty tool name", function(name=""), 400, "tools[0].function.name", ""),
    ("parameters in words", function(parameters="none"), 400, "tools[0].function.parameters", "str"),
    ("parameters that require a number", function(parameters={"required": [1]}), 400, "tools[0]", ""),
    ("the same definition twice", order(tools=[WEATHER, WEATHER]), 400, "tools", "twice"),
    (
        "a definition named like a tool",
        order(tools=["list_files", {"type": "function", "function": {"name": "list_files"}}]),
        400,
        "tools",
        "twice",
    ),
    ("an agent that is a number", order(agent=3), 400, "agent", "int"),
    ("an agent without a name", order(agent=""), 422, "agent", "the agents are"),
    ("a model that is a list", order(model=["plan"]), 400, "model", "array"),
    ("a system prompt that is a number", order(system=1), 400, "system", "int"),
    ("metadata in a list", order(metadata=[]), 400, "metadata", "array"),
]


@pytest.mark.parametrize(("body", "status", "param", "words"), [row[1:] for row in ORDERS], ids=[r[0] for r in ORDERS])
async def test_an_order_that_cannot_be_carried_out_leaves_nothing_behind(
    gateway: Gateway, body: Any, status: int, param: str | None, words: str
) -> None:
    got = await gateway.post("/v1/runs", body, headers={KEY: "order-1"})

    refused(got, status, param=param, words=words)
    assert gateway.stored_runs() == 0
    again = await gateway.post("/v1/runs", order(model="talks"), headers={KEY: "order-1"}, wait=20)
    assert (again.status, again.json["status"]) == (201, "completed")  # the key is as good as new


NESTED = [
    ("params", lambda nest: b'{"input":"Hi.","model":"talks","params":{"x":%b}}' % nest, "/v1/runs"),
    (
        "content",
        lambda nest: (
            b'{"input":[{"role":"user","content":[{"type":"text","text":"Hi.","x":%b}]}],"model":"talks"}' % nest
        ),
        "/v1/runs",
    ),
    (
        "a chat",
        lambda nest: b'{"model":"files","messages":[{"role":"user","content":[{"type":"text","x":%b}]}]}' % nest,
        "/v1/chat/completions",
    ),
]


@pytest.mark.parametrize(("body", "path"), [row[1:] for row in NESTED], ids=[row[0] for row in NESTED])
async def test_however_deep_a_body_is_nested_it_is_taken_and_read_back_or_refused(
    gateway: Gateway, body: Callable[[bytes], bytes], path: str
) -> None:
    """Near Python's limit of recursion: what can be decoded may still be too deep for the events that quote it."""
    statuses: list[int] = []
    for depth in range(sys.getrecursionlimit() - 180, sys.getrecursionlimit()):
        before = gateway.stored_runs()
        got = await gateway.post(path, data=body(b"[" * depth + b"]" * depth))
        if got.status == 400:
            refused(got, 400, "malformed_json", words="nested too deeply")
            assert gateway.stored_runs() == before
        elif path == "/v1/runs":
            assert (await gateway.get(f"/v1/runs/{got.json['id']}/events")).status == 200
            assert (await gateway.get(f"/v1/runs/{got.json['id']}", wait=20)).json["status"] == "completed"
        statuses.append(got.status)

    assert set(statuses) == {200 if path != "/v1/runs" else 201, 400}
    assert statuses == sorted(statuses), "taken up to a depth, and refused from there"


KEYS = [
    ("an empty key", "", 400),
    ("a key that is too long", "k" * 256, 400),
    ("a key with a tab", "a\tb", 400),
]


@pytest.mark.parametrize(("key", "status"), [row[1:] for row in KEYS], ids=[row[0] for row in KEYS])
async def test_a_key_that_cannot_be_used_starts_nothing(gateway: Gateway, key: str, status: int) -> None:
    refused(await gateway.start("talks", headers={KEY: key}), status, param=KEY, words="1 to 255")
    assert gateway.stored_runs() == 0


@pytest.mark.parametrize("changed", [order(model="once"), order(model="talks", metadata={"a": "b"})])
async def test_a_key_with_another_order_starts_nothing_more(gateway: Gateway, changed: dict[str, Any]) -> None:
    first = await gateway.start("talks", headers={KEY: "order-1"})

    got = await gateway.post("/v1/runs", changed, headers={KEY: "order-1"}, wait=20)

    refused(got, 422, "idempotency_key_reused", param=KEY)
    assert gateway.stored_runs() == 1
    assert (await gateway.start("talks", headers={KEY: "order-1"})).json == first.json


COMMANDS: list[tuple[str, str, str, Any, int, str | None, str]] = [
    ("a verdict on a call of nobody's", "destructive", "approve", {"call_id": "c9"}, 404, "call_id", "c9"),
    ("a verdict on an empty call", "destructive", "approve", {"call_id": ""}, 404, "call_id", ""),
    ("a verdict on a call of another turn", "destructive", "approve", {"call_id": "c1"}, 404, "call_id", "c1"),
    (
        "a verdict on arguments not seen",
        "destructive",
        "approve",
        {"call_id": "c2", "args_hash": "0" * 16},
        409,
        "args_hash",
        "look again",
    ),
    (
        "a verdict on an empty hash",
        "destructive",
        "reject",
        {"call_id": "c2", "args_hash": ""},
        409,
        "args_hash",
        "look again",
    ),
    ("a verdict on a number", "destructive", "approve", {"call_id": 2}, 400, "call_id", "int"),
    (
        "a verdict with a reason in a list",
        "destructive",
        "reject",
        {"call_id": "c2", "reason": []},
        400,
        "reason",
        "array",
    ),
    ("a verdict in a list", "destructive", "approve", [{"call_id": "c2"}], 400, None, "array"),
    ("a verdict where none is waited for", "talks", "approve", {"call_id": "c1"}, 404, "call_id", "c1"),
    (
        "a verdict on a call of a subagent's that there is not",
        "destructive",
        "approve",
        {"call_id": "run_0-1-0:1:0"},
        404,
        "call_id",
        "run_0-1-0",
    ),
    ("a resume where a verdict is waited for", "destructive", "resume", {}, 409, None, "approve or reject"),
    ("a resume of what has ended", "talks", "resume", {}, 409, None, "completed"),
    ("a resume below the cap", "runaway", "resume", {"limits": {"max_turns": 1}}, 409, "limits.max_turns", "raise it"),
    ("a resume without caps", "runaway", "resume", {"limits": {"max_turns": None}}, 400, "limits", "both null"),
    (
        "a resume with a mode that there is not",
        "runaway",
        "resume",
        {"limits": {"budget_mode": "x"}},
        400,
        "limits.budget_mode",
        "x",
    ),
    ("a resume with other stop rules", "runaway", "resume", {"stop_rules": {}}, 400, "stop_rules", "stop_rules"),
    (
        "a resume with a budget that is spent",
        "runaway",
        "resume",
        {"limits": {"max_turns": 9, "max_budget_usd": 0.000001}},
        409,
        "limits.max_budget_usd",
        "raise it",
    ),
    (
        "a resume with a hard budget too small",
        "runaway",
        "resume",
        {"limits": {"max_turns": 9, "max_budget_usd": 0.002, "budget_mode": "hard"}},
        409,
        "limits.max_budget_usd",
        "raise it",
    ),
    ("a cancel of what has ended", "talks", "cancel", {}, 409, None, "completed"),
    ("a cancel with a reason that is too long", "destructive", "cancel", {"reason": "x" * 2001}, 400, "reason", "2000"),
    (
        "outputs where none are waited for",
        "destructive",
        "tool_outputs",
        {"outputs": [{"call_id": "c2", "output": "x"}]},
        409,
        None,
        "does not wait",
    ),
    (
        "outputs of what has ended",
        "talks",
        "tool_outputs",
        {"outputs": [{"call_id": "c1", "output": "x"}]},
        409,
        None,
        "does not wait",
    ),
    (
        "an output of a call of nobody's",
        "asks_client",
        "tool_outputs",
        {"outputs": [{"call_id": "c9", "output": "x"}]},
        404,
        "call_id",
        "c9",
    ),
    (
        "an output twice",
        "asks_client",
        "tool_outputs",
        {"outputs": [{"call_id": "c1", "output": "x"}] * 2},
        400,
        "outputs",
        "twice",
    ),
    (
        "a good output beside a bad one",
        "asks_client",
        "tool_outputs",
        {"outputs": [{"call_id": "c1", "output": "x"}, {"call_id": "c9", "output": "x"}]},
        404,
        "call_id",
        "c9",
    ),
    (
        "an output with more",
        "asks_client",
        "tool_outputs",
        {"outputs": [{"call_id": "c1", "output": "x", "cost": 1}]},
        400,
        "outputs[0].cost",
        "cost",
    ),
    (
        "an output that is a number",
        "asks_client",
        "tool_outputs",
        {"outputs": [{"call_id": "c1", "output": 1}]},
        400,
        "outputs[0].output",
        "int",
    ),
    (
        "a success in words",
        "asks_client",
        "tool_outputs",
        {"outputs": [{"call_id": "c1", "output": "x", "ok": "yes"}]},
        400,
        "outputs[0].ok",
        "str",
    ),
    (
        "too many outputs",
        "asks_client",
        "tool_outputs",
        {"outputs": [{"call_id": "c1", "output": "x"}] * 257},
        400,
        "outputs",
        "256",
    ),
]


@pytest.mark.parametrize(
    ("model", "command", "body", "status", "param", "words"),
    [row[1:] for row in COMMANDS],
    ids=[row[0] for row in COMMANDS],
)
async def test_a_command_that_cannot_be_carried_out_changes_nothing(
    gateway: Gateway, model: str, command: str, body: Any, status: int, param: str | None, words: str
) -> None:
    fields = {"tools": [WEATHER]} if model == "asks_client" else {"limits": {"max_turns": 3}}
    run = await gateway.run(model, **fields)

    refused(await gateway.command(run["id"], command, body), status, param=param, words=words)
    assert await gateway.look(run["id"]) == run


@pytest.mark.parametrize("command", ["approve", "reject", "resume", "cancel", "tool_outputs"])
@pytest.mark.parametrize("run_id", ["run_0", "run_0-1-0", "0"])
async def test_a_command_on_a_run_that_there_is_not_is_not_found(gateway: Gateway, command: str, run_id: str) -> None:
    one = {"call_id": "c1"}
    bodies = {"approve": one, "reject": one, "tool_outputs": {"outputs": [{**one, "output": "x"}]}}

    refused(await gateway.command(run_id, command, bodies.get(command, {})), 404, "not_found", words=run_id)
