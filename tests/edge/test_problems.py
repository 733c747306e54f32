"""Bad input over HTTP: refused with words that help, never a fault of the gateway, and nothing half-created."""

from __future__ import annotations

import asyncio
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from gateway.service.runs import Runs
from tests.serving import QUESTION, Gateway, refused

ASKED = {"input": QUESTION}
CALLED = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def tool(**function: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f", **function}}]


BODIES: list[tuple[str, Any, int, str | None, str]] = [
    ("no JSON", b"{", 400, None, "not valid JSON"),
    ("bytes that are no text", b'{"input": "\xff"}', 400, None, "not valid JSON"),
    ("half a surrogate", b'{"input": "\\ud800"}', 400, None, "not valid JSON"),
    ("two values", b'{"input": "x"} {}', 400, None, "not valid JSON"),
    ("blanks", b"   ", 400, None, "not valid JSON"),
    ("nested too deeply", b'{"input":' + b"[" * 100_000, 400, None, ""),
    ("NaN", b'{"input": "x", "limits": {"deadline_seconds": NaN}}', 400, None, "not valid JSON"),
    ("no body", b"", 400, "input", "`input`"),
    ("a list", [], 400, None, "array"),
    ("a string", "x", 400, None, "str"),
    ("null", b"null", 400, None, "null"),
    ("no input", {}, 400, "input", "`input`"),
    ("an unknown field", {**ASKED, "modle": "x"}, 400, "modle", "`modle`"),
    ("an unknown limit", {**ASKED, "limits": {"turns": 3}}, 400, "limits.turns", "`turns`"),
    ("an unknown policy", {**ASKED, "policies": {"dedup": "off"}}, 400, "policies.dedup", "`dedup`"),
    ("a policy that there is not", {**ASKED, "policies": {"dedupe": "on"}}, 400, "policies.dedupe", "'on'"),
    ("a number as input", {"input": 5}, 400, "input", "int"),
    ("an empty input", {"input": ""}, 400, "input", ""),
    ("no messages", {"input": []}, 400, "input", ""),
    ("a message without a role", {"input": [{"content": "x"}]}, 400, None, "role"),
    ("a role that there is not", {"input": [{"role": "robot", "content": "x"}]}, 400, None, "robot"),
    ("a message without content", {"input": [{"role": "user"}]}, 400, None, "content"),
    ("the assistant last", {"input": [{"role": "assistant", "content": "x"}]}, 400, "input", "last message"),
    (
        "a call without an answer",
        {"input": [{"role": "assistant", "content": None, "tool_calls": [CALLED]}, {"role": "user", "content": "x"}]},
        400,
        "input[1]",
        "c1",
    ),
    (
        "an answer without a call",
        {"input": [{"role": "tool", "tool_call_id": "c7", "name": "f", "content": "x"}]},
        400,
        "input[0]",
        "c7",
    ),
    ("no turns", {**ASKED, "limits": {"max_turns": 0}}, 400, "limits.max_turns", "max_turns is 0"),
    ("fewer turns", {**ASKED, "limits": {"max_turns": -1}}, 400, "limits.max_turns", "-1"),
    ("too many turns", {**ASKED, "limits": {"max_turns": 10**9}}, 400, "limits.max_turns", "1000000"),
    ("half a turn", {**ASKED, "limits": {"max_turns": 1.5}}, 400, "limits.max_turns", "float"),
    ("turns in words", {**ASKED, "limits": {"max_turns": "3"}}, 400, "limits.max_turns", "str"),
    ("more than a number holds", {**ASKED, "limits": {"max_turns": 10**30}}, 400, "limits.max_turns", ""),
    ("no caps", {**ASKED, "limits": {"max_turns": None, "max_budget_usd": None}}, 400, "limits", "both null"),
    ("no budget", {**ASKED, "limits": {"max_budget_usd": 0}}, 400, "limits.max_budget_usd", "above 0"),
    ("less than no budget", {**ASKED, "limits": {"max_budget_usd": -0.01}}, 400, "limits.max_budget_usd", "-0.01"),
    ("a budget that is no number", {**ASKED, "limits": {"max_budget_usd": "NaN"}}, 400, "limits.max_budget_usd", "NaN"),
    ("a budget without end", {**ASKED, "limits": {"max_budget_usd": "Infinity"}}, 400, "limits.max_budget_usd", ""),
    ("a budget in words", {**ASKED, "limits": {"max_budget_usd": "much"}}, 400, "limits.max_budget_usd", ""),
    ("no deadline", {**ASKED, "limits": {"deadline_seconds": 0}}, 400, "limits.deadline_seconds", "above 0"),
    ("an agent that there is not", {**ASKED, "agent": "nobody"}, 422, "agent", "the agents are files"),
    ("a tool that there is not", {**ASKED, "tools": ["fly"]}, 422, "tools[0]", "it has list_files"),
    ("a tool twice", {**ASKED, "tools": ["read_file", "read_file"]}, 400, "tools", "twice"),
    ("a tool without a name", {**ASKED, "tools": [{"type": "function", "function": {}}]}, 400, None, "name"),
    ("a tool name with blanks", {**ASKED, "tools": tool(name="a b")}, 400, None, ""),
    ("a tool of another type", {**ASKED, "tools": [{"type": "web", "function": {"name": "f"}}]}, 400, None, "web"),
    ("a schema that is none", {**ASKED, "tools": tool(parameters={"type": "frob"})}, 400, "tools[0]", "frob"),
    (
        "a schema elsewhere",
        {**ASKED, "tools": tool(parameters={"$ref": "http://x.example/"})},
        400,
        "tools[0]",
        "x.exa",
    ),
    ("a schema with a bad pattern", {**ASKED, "tools": tool(parameters={"pattern": "("})}, 400, "tools[0]", "("),
    ("metadata that is no text", {**ASKED, "metadata": {"a": 1}}, 400, None, "int"),
    ("metadata that is too long", {**ASKED, "metadata": {"a": "x" * 513}}, 400, None, "512"),
    ("a metadata name that is too long", {**ASKED, "metadata": {"x" * 65: "a"}}, 400, None, "64"),
    ("a flag in words", {**ASKED, "cancel_on_disconnect": "yes"}, 400, "cancel_on_disconnect", "str"),
]


@pytest.mark.parametrize(("body", "status", "param", "words"), [row[1:] for row in BODIES], ids=[r[0] for r in BODIES])
async def test_an_order_that_cannot_be_carried_out_creates_nothing(
    gateway: Gateway, body: Any, status: int, param: str | None, words: str
) -> None:
    sent = {"data": body} if isinstance(body, bytes) else {"body": body}

    got = await gateway.post("/v1/runs", **sent)

    refused(got, status, param=param, words=words)
    assert gateway.stored_runs() == 0


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_streamed_order_is_refused_like_any_other(gateway: Gateway, accept: str) -> None:
    got = await gateway.post("/v1/runs", {**ASKED, "agent": "nobody"}, headers={"Accept": accept})

    refused(got, 422, "cannot_run")
    assert gateway.stored_runs() == 0


async def test_a_model_without_a_price_is_refused(serve: Any) -> None:
    async with serve(prices={}) as gateway:
        refused(await gateway.start("plan", wait=0), 422, "no_price", param="model", words="free = true")
        assert gateway.stored_runs() == 0


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/v1/runs?wiat=3", "wiat"),
        ("/v1/runs?wait=soon", "wait"),
        ("/v1/runs?wait=-1", "wait"),
        ("/v1/runs?wait=nan", "wait"),
        ("/v1/runs?wait=inf", "wait"),
        ("/v1/runs?wait=3601", "wait"),
        ("/v1/runs?wait=", "wait"),
    ],
)
async def test_a_parameter_of_a_start_that_means_nothing_is_refused(gateway: Gateway, path: str, param: str) -> None:
    refused(await gateway.post(path, ASKED), 400, param=param, words=param)
    assert gateway.stored_runs() == 0


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("status=done", "status"),
        ("status=", "status"),
        ("limit=0", "limit"),
        (f"text={'x' * 201}", "text"),
        ("limit=201", "limit"),
        ("limit=1.5", "limit"),
        ("limit=ten", "limit"),
        ("cursor=x", "cursor"),
        ("cursor=%00", "cursor"),
        ("cursor=W10", "cursor"),
        ("page=2", "page"),
        ("status=%ff", "status"),
    ],
)
async def test_a_parameter_of_a_list_that_means_nothing_is_refused(gateway: Gateway, query: str, param: str) -> None:
    refused(await gateway.get(f"/v1/runs?{query}"), 400, param=param)


@pytest.mark.parametrize(
    ("query", "headers", "param"),
    [
        ("after=-1", {}, "after"),
        ("after=1.5", {}, "after"),
        ("after=%C2%B2", {}, "after"),
        ("after=9999999999999999999999", {}, "after"),
        ("", {"Last-Event-ID": "x"}, "after"),
        ("follow=yes", {}, "follow"),
        ("from=3", {}, "from"),
    ],
)
async def test_a_parameter_of_a_trace_that_means_nothing_is_refused(
    gateway: Gateway, query: str, headers: dict[str, str], param: str
) -> None:
    run = await gateway.run("talks")

    refused(await gateway.get(f"/v1/runs/{run['id']}/events?{query}", headers=headers), 400, param=param)


@pytest.mark.parametrize(
    ("command", "body", "param"),
    [
        ("approve", {}, "call_id"),
        ("approve", {"call": "c2"}, "call"),
        ("approve", {"call_id": 2}, "call_id"),
        ("approve", {"call_id": "c2", "reason": "x" * 2001}, "reason"),
        ("reject", {"call_id": "c2", "approved": True}, "approved"),
        ("resume", {"max_turns": 3}, "max_turns"),
        ("resume", {"limits": {"max_turns": "3"}}, "limits.max_turns"),
        ("resume", [], None),
        ("cancel", {"reason": None}, "reason"),
        ("cancel", {"why": "x"}, "why"),
        ("tool_outputs", {}, "outputs"),
        ("tool_outputs", {"outputs": []}, "outputs"),
        ("tool_outputs", {"outputs": [{"call_id": "c2"}]}, None),
        ("tool_outputs", {"outputs": [{"call_id": "c2", "output": {}}]}, None),
    ],
)
async def test_a_command_that_cannot_be_understood_changes_nothing(
    gateway: Gateway, command: str, body: Any, param: str | None
) -> None:
    run = await gateway.run("destructive")

    refused(await gateway.command(run["id"], command, body), 400, param=param)
    assert (await gateway.look(run["id"]))["events"] == run["events"]


@pytest.mark.parametrize("command", ["approve", "resume", "cancel"])
@pytest.mark.parametrize("query", ["wait=soon", "what=1"])
async def test_a_command_with_a_parameter_that_means_nothing_is_not_carried_out(
    gateway: Gateway, command: str, query: str
) -> None:
    run = await gateway.run("destructive")
    body = {"call_id": "c2"} if command == "approve" else {}

    refused(await gateway.post(f"/v1/runs/{run['id']}/{command}?{query}", body), 400)
    assert (await gateway.look(run["id"]))["events"] == run["events"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/run",
        "/v1/runs/",
        "/v1/runs/run_0/",
        "/v1/runs/run_0/event",
        "/v2",
        "/v1/runs/%ff/x",
        "/%00",
        "/v1/runs//events",
    ],
)
async def test_a_path_that_leads_nowhere_is_a_problem_like_any_other(gateway: Gateway, path: str) -> None:
    refused(await gateway.get(path), 404, "no_such_route", words="/openapi.json")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/runs", "GET, POST"),
        ("PUT", "/v1/runs/run_0", "GET"),
        ("GET", "/v1/runs/run_0/approve", "POST"),
        ("POST", "/metrics", "GET"),
    ],
)
async def test_a_method_that_a_path_does_not_take_is_a_problem_too(
    gateway: Gateway, method: str, path: str, allowed: str
) -> None:
    got = await gateway.request(method, path)

    refused(got, 405, "wrong_method", words=allowed)
    assert got.headers["Allow"] == allowed


@pytest.mark.parametrize("run_id", ["%ff", "%00", "run_%F0%9F%90%8D", "x" * 5000, "..%2F..", "';--"])
async def test_an_id_that_no_run_has_is_not_found(gateway: Gateway, run_id: str) -> None:
    refused(await gateway.get(f"/v1/runs/{run_id}"), 404)


@pytest.mark.parametrize("target", [b"/v1/runs/\xff", b"/v1/runs?status=\xff", b"/v1/runs?agent=\xff", b"/\xff\xfe"])
async def test_bytes_that_are_no_text_in_a_path_are_no_fault_of_the_gateway(gateway: Gateway, target: bytes) -> None:
    status = await asked_raw(gateway, target)

    assert 200 <= status < 500


async def asked_raw(gateway: Gateway, target: bytes) -> int:
    """The status for a target that no client library would send."""
    address = urlsplit(gateway.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, family=socket.AF_INET)
    writer.write(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    await writer.drain()
    line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return int(line.split()[1])


async def test_a_fault_of_the_gateway_is_told_as_one_and_keeps_its_traceback(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Runs, run_id: str) -> None:
        raise ZeroDivisionError("a bug in here")

    monkeypatch.setattr(Runs, "get", broken)

    got = await gateway.get("/v1/runs/run_0")

    refused(got, 500, "internal", words="its log says more")
    assert got.headers["x-should-retry"] == "false"
    assert b"a bug in here" not in got.body
