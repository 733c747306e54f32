"""Subagents over HTTP: a run of another agent that answers a call, and everything that may stop either of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.adapters.store.sqlite import SqliteStore
from gateway.adapters.tools.tool import Tool
from gateway.config import AgentConfig, Config
from gateway.core.errors import Unavailable
from gateway.core.ports import ToolContext
from gateway.core.run import Limits, ToolSpec
from gateway.service.subagents import PARENT_STOPPED
from scripted.app import create_app as create_scripted
from scripted.app import serving as serving_scripted
from scripted.scripts import Call, Script, Step
from tests.serving import TEST_SCRIPTS, Gateway, Serve, calling, eventually, refused

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FOUND = "errors.log mentions a timeout: worker 7 timed out after 30000 ms."
PLAN_COST = Decimal("0.001972")
STOP_SECONDS_MAX = 0.05


def asking(*agents: str) -> Script:
    """Asks these agents in its first turn, and repeats what the last one said."""
    calls = tuple(
        Call(f"c{n}", agent, {"question": f"{agent}, what do you know?"}) for n, agent in enumerate(agents, 1)
    )
    return Script("For tests.", (Step(turn=0, calls=calls), Step(echo=True)))


SCRIPTS = {
    **TEST_SCRIPTS,
    "looks_up": calling(Call("c1", "look_up", {"name": "Ann"}), answer="Ann earns 100."),
    "looks_up_twice": calling(
        Call("c1", "look_up", {"name": "Ann"}), Call("c2", "look_up", {"name": "Bob"}), answer="Both are known."
    ),
    "jots": calling(Call("c1", "jot"), answer="It is noted."),
    "asks_asker": asking("asker"),
    "asks_two": asking("asker", "other_asker"),
    "asks_both": asking("research", "asker"),
    "asks_twice": asking("research", "other_research"),
    "asks_cleaner": asking("cleaner"),
    "asks_writer": asking("writer"),
    "asks_lead": asking("lead"),
    "asks_itself": asking("mirror"),
}

LOOK_UP = ToolSpec(
    name="look_up", description="What somebody earns.", parameters=NAME, read_only=True, needs_approval=True
)
JOT = ToolSpec(name="jot", description="Note something, once.", parameters={"type": "object"})


class Desk:
    """Tools that people and tests have a hand in."""

    def __init__(self) -> None:
        self.jotted = 0
        self.looked_up: list[str] = []
        self.hand = asyncio.Event()
        self.hand.set()

    async def look_up(self, args: dict[str, Any], ctx: ToolContext) -> str:
        self.looked_up.append(args["name"])
        return f"{args['name']} earns 100."

    async def jot(self, args: dict[str, Any], ctx: ToolContext) -> str:
        self.jotted += 1
        await self.hand.wait()
        return "Noted."

    @property
    def tools(self) -> dict[str, Tool]:
        return {"look_up": Tool(LOOK_UP, self.look_up), "jot": Tool(JOT, self.jot)}


@pytest.fixture
async def provider() -> AsyncIterator[str]:
    async with serving_scripted(create_scripted(scripts=SCRIPTS)) as address:
        yield f"{address}/v1"


@pytest.fixture
def config(config: Config) -> Config:
    """The sample's lead and research, and more of their kind."""
    files = config.agents["files"]
    research = replace(
        files,
        model="plan",
        about="Investigate one question and return a short summary.",
        tools=("list_files", "read_file"),
        limits=Limits(max_turns=6, max_budget_usd=Decimal("0.05")),
    )
    asker = AgentConfig(model="looks_up", tools=("look_up",), limits=Limits(max_turns=6))
    agents = {
        "files": files,
        "research": research,
        "other_research": research,
        "asker": asker,
        "other_asker": asker,
        "cleaner": replace(files, model="destructive"),
        "writer": AgentConfig(model="jots", tools=("jot",)),
        "mirror": AgentConfig(model="asks_itself", subagents=("mirror",)),
        "lead": AgentConfig(
            model="delegate", subagents=("research", "other_research", "asker", "other_asker", "cleaner", "writer")
        ),
        "manager": AgentConfig(model="asks_lead", subagents=("lead",)),
    }
    return replace(config, agents=agents)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def gateway(serve: Serve, desk: Desk) -> AsyncIterator[Gateway]:
    async with serve(tools=desk.tools) as gateway:
        yield gateway


def with_agent(config: Config, name: str, **changes: Any) -> dict[str, AgentConfig]:
    return {**config.agents, name: replace(config.agents[name], **changes)}


async def lead(gateway: Gateway, model: str = "delegate", **fields: Any) -> dict[str, Any]:
    return await gateway.run(model, agent="lead", **fields)


def child_of(run: dict[str, Any], call: int = 0, turn: int = 1) -> str:
    return f"{run['id']}-{turn}-{call}"


def events(trace: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in trace if event["type"] == kind]


def tool_answers(run: dict[str, Any]) -> list[str]:
    return [message["content"] for message in run["messages"] if message["role"] == "tool"]


async def under_way(gateway: Gateway, run_id: str, kind: str = "turn_start") -> None:
    """Until a run that may not have begun yet is there, and as far."""

    async def there() -> bool:
        return (await gateway.get(f"/v1/runs/{run_id}")).status == 200

    await eventually(there, f"{run_id} begins")
    await gateway.until(run_id, kind)


async def ended(gateway: Gateway, run_id: str) -> dict[str, Any]:
    return await gateway.look(run_id, wait=20)


# --- what they come to ----------------------------------------------------------------------------------------------


async def test_the_parent_repeats_what_its_subagent_found_and_both_have_their_own_figures(gateway: Gateway) -> None:
    run = await lead(gateway)
    child = await gateway.look(child_of(run))
    turns = events(await gateway.trace(run["id"]), "turn")

    assert (run["status"], run["output"], run["turns"], run["tool_runs"]) == ("completed", FOUND, 2, 1)
    assert (child["status"], child["output"], child["turns"], child["tool_runs"]) == ("completed", FOUND, 3, 2)
    assert child["cost_usd"] == PLAN_COST
    assert run["cost_usd"] == PLAN_COST + sum(turn["turnCostUsd"] for turn in turns)
    assert run["unconfirmed_cost_usd"] == child["unconfirmed_cost_usd"] == 0
    assert run["usage"]["total_tokens"] == sum(turn["total_tokens"] for turn in turns)


async def test_a_subagent_has_its_own_window_and_limits(gateway: Gateway) -> None:
    run = await lead(gateway, limits={"max_turns": 9})
    child = await gateway.look(child_of(run))

    assert [message["role"] for message in run["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert tool_answers(run) == [FOUND]
    assert [message["content"] for message in child["messages"][:2]] == [
        gateway.config.agents["research"].system,
        "Which file mentions a timeout?",
    ]
    assert (run["limits"]["max_turns"], child["limits"]["max_turns"]) == (9, 6)
    assert child["parent"] == {"run_id": run["id"], "call_id": f"{run['id']}:1:0", "depth": 1}
    assert (child["agent"], run["parent"]) == ("research", None)


async def test_lists_say_whose_child_a_run_is(gateway: Gateway) -> None:
    run = await lead(gateway)
    runs = (await gateway.get("/v1/runs")).json["runs"]

    assert [(each["id"], each["parent"] and each["parent"]["run_id"]) for each in runs] == [
        (child_of(run), run["id"]),
        (run["id"], None),
    ]


async def test_subagents_that_only_read_work_side_by_side(serve: Serve, config: Config, desk: Desk) -> None:
    slow = with_agent(config, "research", model="plan@latency=150")
    slow = {**slow, "other_research": slow["research"]}
    async with serve(tools=desk.tools, agents=slow) as gateway:
        run = await lead(gateway, "asks_twice")
        kinds = [event["type"] for event in await gateway.trace(run["id"]) if event["type"].startswith("tool_")]
        spans = [await span(gateway, child_of(run, call)) for call in (0, 1)]

    assert (run["status"], tool_answers(run)) == ("completed", [FOUND, FOUND])
    assert kinds == ["tool_start", "tool_start", "tool_result", "tool_result"]
    assert max(first for first, _ in spans) < min(last for _, last in spans)
    assert run["cost_usd"] > 2 * PLAN_COST


async def span(gateway: Gateway, run_id: str) -> tuple[str, str]:
    trace = await gateway.trace(run_id)
    return trace[0]["time"], trace[-1]["time"]


async def test_a_subagent_that_writes_waits_its_turn(gateway: Gateway) -> None:
    run = await lead(gateway, "asks_cleaner", policies={"approval": "auto"})

    assert (run["status"], run["output"]) == ("completed", "Deleted access.log to free space.")
    assert not (gateway.workspace / "access.log").exists()


# --- money ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "reserved"), [(1, Decimal("0.05")), (None, Decimal("0.05")), (0.03, None)])
async def test_a_subagent_may_spend_its_own_budget_or_what_the_parent_has_left(
    gateway: Gateway, budget: float | None, reserved: Decimal | None
) -> None:
    run = await lead(gateway, limits={"max_budget_usd": budget})
    [start] = events(trace := await gateway.trace(run["id"]), "tool_start")
    left = Decimal(str(budget or 1)) - events(trace, "turn")[0]["costUsd"]

    assert start["reservedUsd"] == (reserved or left)
    assert (await gateway.look(child_of(run)))["limits"]["max_budget_usd"] == start["reservedUsd"]


async def test_neighbours_share_what_the_parent_has_left(gateway: Gateway) -> None:
    run = await lead(gateway, "asks_twice", limits={"max_budget_usd": 0.07})
    starts = events(trace := await gateway.trace(run["id"]), "tool_start")
    left = Decimal("0.07") - events(trace, "turn")[0]["costUsd"]

    assert [start["reservedUsd"] for start in starts] == [Decimal("0.05"), left - Decimal("0.05")]


async def test_what_is_set_aside_counts_as_spent_until_the_answer_replaces_it(
    serve: Serve, config: Config, desk: Desk
) -> None:
    slow = with_agent(config, "research", model="plan@latency=200")
    async with serve(tools=desk.tools, agents=slow) as gateway:
        run = await lead(gateway, wait=0)
        await under_way(gateway, child_of(run))
        await gateway.command(run["id"], "cancel")
        got = await gateway.command(run["id"], "resume", {"limits": {"max_budget_usd": 0.04}})
        spent = (await gateway.look(run["id"]))["cost_usd"] + Decimal("0.05")

        refused(got, 409, param="limits.max_budget_usd", words=f"has spent ${spent}")
        again = (await gateway.command(run["id"], "resume", {"limits": {"max_budget_usd": 0.06}})).json
        assert again["status"] == "completed"
        assert again["cost_usd"] < Decimal("0.01")


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"max_turns": 2}, "no result. It used 2 turns, and max_turns is 2."),
        ({"max_budget_usd": Decimal("0.0005")}, "no result. It spent $"),
        ({"deadline_seconds": 0.05}, "no result. It was driven for its deadline_seconds, 0.05."),
    ],
)
async def test_a_limit_of_the_subagents_is_an_answer_and_never_strands_the_parent(
    serve: Serve, config: Config, desk: Desk, limits: dict[str, Any], words: str
) -> None:
    model = "plan@latency=200" if "deadline_seconds" in limits else "plan"
    capped = with_agent(config, "research", model=model, limits=Limits(**limits))
    async with serve(tools=desk.tools, agents=capped) as gateway:
        run = await lead(gateway)
        child = await gateway.look(child_of(run))

    assert run["status"] == "completed"
    assert run["output"].startswith(words)
    assert child["status"] in ("max_turns_exceeded", "budget_exceeded", "interrupted")
    own = run["cost_usd"] - child["cost_usd"]
    assert own > 0


async def test_a_parents_hard_budget_binds_its_subagents(serve: Serve, config: Config, desk: Desk) -> None:
    endless = with_agent(config, "research", model="runaway", limits=Limits(max_budget_usd=Decimal(1)))
    async with serve(tools=desk.tools, agents=endless) as gateway:
        run = await lead(gateway, limits={"max_budget_usd": 0.01, "budget_mode": "hard"})
        child = await gateway.look(child_of(run))

    assert child["status"] == "budget_exceeded"
    assert child["limits"]["budget_mode"] == "hard"
    assert child["cost_usd"] <= child["limits"]["max_budget_usd"] < Decimal("0.01")
    assert run["cost_usd"] + run["unconfirmed_cost_usd"] <= Decimal("0.01")


async def test_a_subagents_own_hard_budget_stays_hard_below_a_soft_one(
    serve: Serve, config: Config, desk: Desk
) -> None:
    limits = Limits(max_budget_usd=Decimal("0.001"), budget_mode="hard")
    async with serve(
        tools=desk.tools, agents=with_agent(config, "research", model="runaway", limits=limits)
    ) as gateway:
        run = await lead(gateway)
        child = await gateway.look(child_of(run))

    assert child["limits"]["budget_mode"] == "hard"
    assert child["cost_usd"] <= Decimal("0.001")


# --- failures and depth ---------------------------------------------------------------------------------------------


async def test_a_subagent_that_fails_is_an_error_in_words(serve: Serve, config: Config, desk: Desk) -> None:
    async with serve(tools=desk.tools, agents=with_agent(config, "research", model="no_such_script")) as gateway:
        run = await lead(gateway)
        child = await gateway.look(child_of(run))

        assert child["status"] == "failed"
        assert tool_answers(run) == [f"Error: research failed: {child['error']}"]
        assert run["status"] == "completed"
        [result] = events(await gateway.trace(run["id"]), "tool_result")
        assert not result["ok"]


async def test_a_subagent_that_cannot_run_any_more_is_an_error_in_words(
    serve: Serve, config: Config, desk: Desk
) -> None:
    async with serve(tools=desk.tools, agents=with_agent(config, "research", model="plan")) as gateway:
        run = await lead(gateway, "delegate@latency=300", wait=0)
        await gateway.until(run["id"], "turn_start")
    gone = {name: agent for name, agent in config.agents.items() if name != "research"}
    gone["lead"] = replace(gone["lead"], subagents=())
    async with serve(tools=desk.tools, agents=gone) as gateway:
        await gateway.trace(run["id"])
        run = await ended(gateway, run["id"])

    assert run["status"] == "completed"
    assert tool_answers(run)[0].startswith("Error: research cannot run: there is no agent research")


async def test_subagents_are_nested_four_deep_and_no_deeper(gateway: Gateway) -> None:
    run = await gateway.run("asks_itself", agent="mirror")

    assert run["status"] == "completed"
    assert run["output"] == "Error: subagents are nested 4 deep already: go on without another."
    assert gateway.stored_runs() == 5
    assert (await gateway.look(f"{run['id']}-1-0-1-0-1-0-1-0"))["parent"]["depth"] == 4


async def test_grandchildren_are_counted_all_the_way_up(gateway: Gateway) -> None:
    run = await gateway.run("asks_lead", agent="manager")
    child = await gateway.look(child_of(run))
    grandchild = await gateway.look(child_of(child))

    assert run["output"] == child["output"] == grandchild["output"] == FOUND
    assert grandchild["parent"] == {"run_id": child["id"], "call_id": f"{child['id']}:1:0", "depth": 2}
    assert run["cost_usd"] > child["cost_usd"] > grandchild["cost_usd"] == PLAN_COST


# --- stop -----------------------------------------------------------------------------------------------------------


async def test_one_stop_cancels_the_tree_at_once_and_a_resume_takes_it_up_again(
    serve: Serve, config: Config, desk: Desk
) -> None:
    slow = with_agent(config, "research", model="plan@latency=300")
    async with serve(tools=desk.tools, agents=slow) as gateway:
        run = await gateway.run("asks_lead", agent="manager", wait=0)
        ids = [run["id"], child_of(run), child_of({"id": child_of(run)})]
        await under_way(gateway, ids[-1])
        began = time.perf_counter()
        got = await gateway.post(f"/v1/runs/{run['id']}/cancel", {"reason": "enough"})
        seconds = time.perf_counter() - began

        assert got.status == 200
        for run_id in ids:
            stopped = await gateway.look(run_id)
            assert stopped["interruption"] == {"type": "cancelled", "reason": "enough"}, run_id
        assert seconds < STOP_SECONDS_MAX
        again = (await gateway.command(run["id"], "resume")).json
        assert (again["status"], again["output"]) == ("completed", FOUND)
        assert gateway.stored_runs() == 3
        grandchild = await gateway.look(ids[-1])
        assert (grandchild["status"], grandchild["cost_usd"]) == ("completed", PLAN_COST)
        assert again["unconfirmed_cost_usd"] == grandchild["unconfirmed_cost_usd"] > 0


async def test_a_subagent_that_is_stopped_by_itself_is_an_answer(serve: Serve, config: Config, desk: Desk) -> None:
    slow = with_agent(config, "research", model="plan@latency=300")
    async with serve(tools=desk.tools, agents=slow) as gateway:
        run = await lead(gateway, wait=0)
        await under_way(gateway, child_of(run))
        await gateway.command(child_of(run), "cancel", {"reason": "not this one"})
        run = await ended(gateway, run["id"])

    assert (run["status"], run["output"]) == ("completed", "no result. It was cancelled: not this one")


async def test_a_parents_deadline_stops_its_subagents_and_a_higher_one_takes_them_up(
    serve: Serve, config: Config, desk: Desk
) -> None:
    slow = with_agent(config, "research", model="plan@latency=300")
    async with serve(tools=desk.tools, agents=slow) as gateway:
        run = await lead(gateway, limits={"deadline_seconds": 0.2})
        child = await ended(gateway, child_of(run))

        assert run["reason"] == "deadline"
        assert child["interruption"] == {"type": "cancelled", "reason": PARENT_STOPPED}
        again = (await gateway.command(run["id"], "resume", {"limits": {"deadline_seconds": 60}})).json
        assert (again["status"], again["output"]) == ("completed", FOUND)


async def test_stop_while_a_subagent_begins_leaves_none_behind(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, began, on = SqliteStore.append, asyncio.Event(), asyncio.Event()

    async def slowly(store: SqliteStore, records: Any, *more: Any) -> None:
        if b'"depth"' in records[0].body:
            began.set()
            await on.wait()
        await append(store, records, *more)

    monkeypatch.setattr(SqliteStore, "append", slowly)
    run = await lead(gateway, wait=0)
    await began.wait()
    cancelling = asyncio.create_task(gateway.command(run["id"], "cancel", {"reason": "enough"}))
    await asyncio.sleep(0.05)
    on.set()

    assert (await cancelling).json["reason"] == "cancelled"
    child = await ended(gateway, child_of(run))
    assert child["interruption"] == {"type": "cancelled", "reason": "enough"}
    assert (await gateway.command(run["id"], "resume")).json["output"] == FOUND


# --- a person's verdict inside --------------------------------------------------------------------------------------


async def test_an_approval_inside_surfaces_on_the_parent_with_the_path_to_it(gateway: Gateway) -> None:
    run = await lead(gateway, "asks_cleaner")
    child = await gateway.look(child_of(run))
    [pending] = child["pending_approvals"]

    assert (run["status"], run["reason"]) == (child["status"], child["reason"]) == ("interrupted", "approval")
    assert run["interruption"] == {**child["interruption"], "path": [child["id"]]}
    assert run["pending_approvals"] == [{**pending, "path": [child["id"]], "provider_call_id": None}]
    assert run["interruption"]["call_id"] == f"{child['id']}:2:0"
    assert run["why"] == 'delete_file {"path":"access.log"} waits for an approval.'
    assert f"gateway approve {run['id']} {child['id']}:2:0" in run["next"]
    assert (gateway.workspace / "access.log").exists()


@pytest.mark.parametrize("at", ["parent", "child"])
@pytest.mark.parametrize("command", ["approve", "reject"])
async def test_a_verdict_may_be_given_at_the_parent_or_at_the_child(gateway: Gateway, at: str, command: str) -> None:
    run = await lead(gateway, "asks_cleaner")
    [pending] = run["pending_approvals"]
    target = run["id"] if at == "parent" else child_of(run)

    got = await gateway.command(target, command, {"call_id": pending["call_id"], "args_hash": pending["args_hash"]})
    run = await ended(gateway, run["id"])

    words = {
        "approve": "Deleted access.log to free space.",
        "reject": "I did not delete anything: you declined the deletion.",
    }
    assert got.json["status"] == run["status"] == "completed"
    assert got.json["output"] == run["output"] == words[command]
    assert (gateway.workspace / "access.log").exists() == (command == "reject")
    assert run["pending_approvals"] == []


async def test_the_same_verdict_again_changes_nothing_and_the_opposite_one_is_refused(gateway: Gateway) -> None:
    run = await lead(gateway, "asks_cleaner")
    call = {"call_id": run["pending_approvals"][0]["call_id"]}
    run = (await gateway.command(run["id"], "approve", call)).json

    again = await gateway.command(run["id"], "approve", call)
    assert (again.status, again.json) == (200, run)
    refused(await gateway.command(run["id"], "reject", call), 409, words="approved already")
    assert await gateway.look(run["id"]) == run


@pytest.mark.parametrize("call_id", ["-9-9:1:0", "-1-0:9:9", ":9:9"])
async def test_a_verdict_on_a_call_that_there_is_not_is_not_found(gateway: Gateway, call_id: str) -> None:
    run = await lead(gateway, "asks_cleaner")

    refused(await gateway.command(run["id"], "approve", {"call_id": run["id"] + call_id}), 404)
    refused(await gateway.command("run_0", "approve", {"call_id": child_of(run) + ":2:0"}), 404)
    assert await gateway.look(run["id"]) == run


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("at", ["parent", "child"])
async def test_two_subagents_wait_at_once_and_verdicts_come_in_any_order(
    gateway: Gateway, desk: Desk, first: int, at: str
) -> None:
    run = await lead(gateway, "asks_two")
    children = [child_of(run, call) for call in (0, 1)]
    assert [pending["path"] for pending in run["pending_approvals"]] == [[child] for child in children]
    call_ids = [pending["call_id"] for pending in run["pending_approvals"]]
    second = 1 - first

    async def approve(place: int) -> dict[str, Any]:
        target = run["id"] if at == "parent" else children[place]
        await gateway.command(target, "approve", {"call_id": call_ids[place]})
        return await ended(gateway, run["id"])

    between = await approve(first)
    assert (between["reason"], between["interruption"]["call_id"]) == ("approval", call_ids[second])
    assert [pending["call_id"] for pending in between["pending_approvals"]] == [call_ids[second]]
    done = await approve(second)
    assert (done["status"], tool_answers(done)) == ("completed", ["Ann earns 100."] * 2)
    assert len(desk.looked_up) == 2


@pytest.mark.parametrize("at", ["parent", "child"])
async def test_a_verdict_on_one_subagent_while_another_works_is_not_lost(
    serve: Serve, config: Config, desk: Desk, at: str
) -> None:
    slow = with_agent(config, "research", model="plan@latency=150")
    async with serve(tools=desk.tools, agents=slow) as gateway:
        run = await lead(gateway, "asks_both", wait=0)
        asker = child_of(run, 1)
        await under_way(gateway, asker, "run_stopped")
        assert (await gateway.look(run["id"]))["status"] == "running"
        target = run["id"] if at == "parent" else asker

        got = await gateway.post(f"/v1/runs/{target}/approve", {"call_id": f"{asker}:1:0"})

        assert got.status == 200
        run = await ended(gateway, run["id"])
        assert (run["status"], tool_answers(run)) == ("completed", [FOUND, "Ann earns 100."])
        assert len(events(await gateway.trace(run["id"]), "run_stopped")) == 1


async def test_the_parent_lists_what_is_still_missing_inside(serve: Serve, config: Config, desk: Desk) -> None:
    twice = with_agent(config, "asker", model="looks_up_twice")
    async with serve(tools=desk.tools, agents=twice) as gateway:
        run = await lead(gateway, "asks_asker")
        first, second = (pending["call_id"] for pending in run["pending_approvals"])

        between = (await gateway.command(run["id"], "approve", {"call_id": second})).json
        assert [pending["call_id"] for pending in between["pending_approvals"]] == [first]
        assert between["interruption"]["call_id"] == first
        events_before = between["events"]
        same = (await gateway.command(run["id"], "approve", {"call_id": second})).json
        assert same["events"] == events_before
        done = (await gateway.command(run["id"], "reject", {"call_id": first, "reason": "private."})).json

    assert (done["status"], done["output"]) == ("completed", "Both are known.")
    assert desk.looked_up == ["Bob"]


@pytest.mark.parametrize("at", [0, 1, 2], ids=["grandparent", "parent", "itself"])
async def test_an_approval_two_levels_down_has_the_whole_path_and_one_verdict_frees_all(
    serve: Serve, config: Config, desk: Desk, at: int
) -> None:
    async with serve(tools=desk.tools, agents=with_agent(config, "lead", model="asks_cleaner")) as gateway:
        run = await gateway.run("asks_lead", agent="manager")
        middle = await gateway.look(child_of(run))
        path = [middle["id"], child_of(middle)]
        assert run["interruption"]["path"] == run["pending_approvals"][0]["path"] == path
        assert middle["interruption"]["path"] == path[1:]

        call = {"call_id": run["interruption"]["call_id"]}
        await gateway.command([run["id"], *path][at], "approve", call)

        run = await ended(gateway, run["id"])
        assert (run["status"], run["output"]) == ("completed", "Deleted access.log to free space.")


async def test_one_stop_cancels_everything_that_waits_two_levels_down(serve: Serve, config: Config, desk: Desk) -> None:
    async with serve(tools=desk.tools, agents=with_agent(config, "lead", model="asks_cleaner")) as gateway:
        run = await gateway.run("asks_lead", agent="manager")
        await gateway.command(run["id"], "cancel", {"reason": "leave it"})

        for run_id in (run["id"], *run["interruption"]["path"]):
            assert (await gateway.look(run_id))["interruption"] == {"type": "cancelled", "reason": "leave it"}


async def test_one_stop_of_a_parent_that_waits_cancels_the_subagent_too(gateway: Gateway) -> None:
    run = await lead(gateway, "asks_cleaner")

    got = await gateway.command(run["id"], "cancel", {"reason": "leave it"})

    child = await gateway.look(child_of(run))
    assert got.json["interruption"] == child["interruption"] == {"type": "cancelled", "reason": "leave it"}
    assert got.json["pending_approvals"] == []
    again = (await gateway.command(run["id"], "resume")).json
    assert (again["reason"], again["interruption"]["path"]) == ("approval", [child["id"]])
    done = (await gateway.command(run["id"], "approve", {"call_id": f"{child['id']}:2:0"})).json
    assert (done["status"], done["output"]) == ("completed", "Deleted access.log to free space.")


async def test_stop_while_one_subagent_works_cancels_the_one_that_waits_too(
    serve: Serve, config: Config, desk: Desk
) -> None:
    slow = with_agent(config, "research", model="plan@latency=300")
    async with serve(tools=desk.tools, agents=slow) as gateway:
        run = await lead(gateway, "asks_both", wait=0)
        await under_way(gateway, child_of(run, 1), "run_stopped")
        await gateway.command(run["id"], "cancel", {"reason": "enough"})

        for run_id in (run["id"], child_of(run, 0), child_of(run, 1)):
            assert (await gateway.look(run_id))["interruption"] == {"type": "cancelled", "reason": "enough"}


async def test_stopping_a_subagent_that_waits_is_an_answer_to_its_parent(gateway: Gateway) -> None:
    run = await lead(gateway, "asks_cleaner")

    await gateway.command(child_of(run), "cancel", {"reason": "leave it"})

    run = await ended(gateway, run["id"])
    assert (run["status"], run["output"]) == ("completed", "no result. It was cancelled: leave it")


@pytest.mark.parametrize(
    ("approval", "output"),
    [
        ("auto", "Deleted access.log to free space."),
        ("deny", "I did not delete anything: you declined the deletion."),
    ],
)
async def test_who_approves_is_the_parents_to_say(gateway: Gateway, approval: str, output: str) -> None:
    run = await lead(gateway, "asks_cleaner", policies={"approval": approval})

    assert (run["status"], run["output"]) == ("completed", output)
    assert (await gateway.look(child_of(run)))["policies"]["approval"] == approval


# --- a doubt inside -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "body", "answer", "jotted"),
    [
        ("approve", {}, "Noted.", 2),
        ("reject", {"reason": "leave it."}, "The user declined this call: leave it.", 1),
        ("tool_outputs", {"output": "It was noted."}, "It was noted.", 1),
    ],
)
@pytest.mark.parametrize("at", ["parent", "child"])
async def test_a_doubt_inside_surfaces_and_is_settled_through_the_parent(
    gateway: Gateway, desk: Desk, command: str, body: dict[str, Any], answer: str, jotted: int, at: str
) -> None:
    desk.hand.clear()
    run = await lead(gateway, "asks_writer", wait=0)
    child_id = child_of(run)
    await under_way(gateway, child_id, "tool_start")
    await gateway.command(run["id"], "cancel")
    desk.hand.set()
    run = (await gateway.command(run["id"], "resume")).json
    call = f"{child_id}:1:0"
    assert run["interruption"] == {
        "type": "in_doubt",
        "call_id": call,
        "tool_name": "jot",
        "args": {},
        "path": [child_id],
    }
    assert run["pending_approvals"] == []
    assert f"gateway settle {run['id']} {call} OUTPUT" in run["next"]

    one = {"call_id": call, **body}
    sent = {"outputs": [one]} if command == "tool_outputs" else one
    await gateway.command(run["id"] if at == "parent" else child_id, command, sent)

    run = await ended(gateway, run["id"])
    assert (run["status"], run["output"]) == ("completed", "It is noted.")
    assert tool_answers(await gateway.look(child_id)) == [answer]
    assert desk.jotted == jotted


# --- room, restarts and a store that fails --------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["delegate", "asks_twice", "asks_cleaner", "asks_two"])
async def test_a_gateway_with_one_place_drives_a_run_with_all_its_subagents(
    serve: Serve, desk: Desk, model: str
) -> None:
    async with serve(tools=desk.tools, server={"runs_active_max": 1}) as gateway:
        run = await lead(gateway, model)
        while run["reason"] == "approval":
            call = {"call_id": run["pending_approvals"][0]["call_id"]}
            got = await gateway.command(run["id"], "approve", call)
            assert got.status == 200, got.body
            run = got.json

    assert run["status"] == "completed"


async def test_a_verdict_without_room_is_refused_whole_and_given_again_later(serve: Serve, desk: Desk) -> None:
    async with serve(tools=desk.tools, server={"runs_active_max": 1}) as gateway:
        run = await lead(gateway, "asks_cleaner")
        other = await gateway.run("plan@latency=200", wait=0)
        call = {"call_id": run["pending_approvals"][0]["call_id"]}

        refused(await gateway.command(run["id"], "approve", call), 429)
        assert await gateway.look(run["id"]) == run
        await ended(gateway, other["id"])
        assert (await gateway.command(run["id"], "approve", call)).json["status"] == "completed"


@pytest.mark.parametrize("grace", [5, 0.01], ids=["drained", "cut off"])
@pytest.mark.parametrize("places", [512, 1])
async def test_the_next_process_joins_parent_and_subagent_again(
    serve: Serve, config: Config, desk: Desk, grace: float, places: int
) -> None:
    slow = with_agent(config, "research", model="plan@latency=150")
    server = {"shutdown_grace_seconds": grace, "runs_active_max": places}
    async with serve(tools=desk.tools, agents=slow, server=server) as gateway:
        run = await lead(gateway, wait=0)
        await under_way(gateway, child_of(run))
    async with serve(tools=desk.tools, agents=slow, server=server) as gateway:
        await gateway.trace(run["id"])
        run = await ended(gateway, run["id"])
        child = await gateway.look(child_of(run))
        causes = [event["cause"] for event in events(await gateway.trace(run["id"]), "run_resumed")]

        assert (run["status"], run["output"]) == ("completed", FOUND)
        assert (child["status"], child["turns"], child["cost_usd"]) == ("completed", 3, PLAN_COST)
        assert run["unconfirmed_cost_usd"] == child["unconfirmed_cost_usd"]
        assert causes == ["handover"]
        assert gateway.stored_runs() == 2


async def test_a_subagent_whose_parent_was_stopped_is_not_driven_by_the_next_process(
    serve: Serve, config: Config, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies after Stop is recorded in the parent and before it is in the child."""
    slow = with_agent(config, "research", model="plan@latency=300")
    append = SqliteStore.append

    async def not_the_childs(store: SqliteStore, records: Any, *more: Any) -> None:
        if "-" in records[0].run_id and b'"run_stopped"' in records[0].body:
            await asyncio.Event().wait()
        await append(store, records, *more)

    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "append", not_the_childs)
        async with serve(tools=desk.tools, agents=slow, server={"shutdown_grace_seconds": 0.01}) as gateway:
            run = await lead(gateway, wait=0)
            await under_way(gateway, child_of(run))
            stopping = asyncio.create_task(gateway.command(run["id"], "cancel"))
            await gateway.until(run["id"], "run_stopped")
        await asyncio.gather(stopping, return_exceptions=True)
    async with serve(tools=desk.tools, agents=slow) as gateway:
        await gateway.until(child_of(run), "run_resumed")
        child = await ended(gateway, child_of(run))

        assert child["interruption"] == {"type": "cancelled", "reason": PARENT_STOPPED}
        assert (await gateway.command(run["id"], "resume")).json["output"] == FOUND


async def test_a_verdict_whose_process_died_before_the_parent_went_on_is_made_up_for(
    serve: Serve, config: Config, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = SqliteStore.append

    async def not_the_parents(store: SqliteStore, records: Any, *more: Any) -> None:
        if "-" not in records[0].run_id and b'"run_resumed"' in records[0].body:
            raise Unavailable("the store cannot be used.")
        await append(store, records, *more)

    slow = with_agent(config, "cleaner", model="destructive@latency=150")
    server = {"shutdown_grace_seconds": 0.01}
    async with serve(tools=desk.tools, agents=slow, server=server) as gateway:
        run = await lead(gateway, "asks_cleaner")
        monkeypatch.setattr(SqliteStore, "append", not_the_parents)
        refused(await gateway.command(run["id"], "approve", {"call_id": f"{child_of(run)}:2:0"}), 503)
    monkeypatch.undo()
    async with serve(tools=desk.tools, agents=slow) as gateway:

        async def went_on() -> bool:
            return (await gateway.look(run["id"]))["status"] == "completed"

        await eventually(went_on, "the parent goes on by itself")
        assert (await gateway.look(run["id"]))["output"] == "Deleted access.log to free space."


async def test_an_outage_while_a_subagent_begins_holds_the_parent_up_and_no_more(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, failures = SqliteStore.append, iter(range(3))

    async def fails_at_first(store: SqliteStore, records: Any, *more: Any) -> None:
        if b'"depth"' in records[0].body and next(failures, None) is not None:
            raise Unavailable("the store cannot be used.")
        await append(store, records, *more)

    monkeypatch.setattr(SqliteStore, "append", fails_at_first)

    assert (await lead(gateway))["output"] == FOUND
