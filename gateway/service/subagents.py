"""Subagents: a call that a run of another agent answers.

The child is a run of its own, with its own transcript, limits and record; its id is made of the call's, so that whoever
takes the call up again finds the child that was started for it. What it may spend is reserved in the parent when the
call begins and replaced by what it cost when the call is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import UNSET
from msgspec.structs import replace

from gateway.core.calls import Execute, approval_of, waiting_for_verdict
from gateway.core.commands import RaisedLimits
from gateway.core.errors import NotFound, ToolFailed
from gateway.core.events import RunStarted
from gateway.core.explain import why
from gateway.core.ports import Clock
from gateway.core.run import Approval, Call, InDoubt, Parent, Run, Status, ToolSpec
from gateway.service.agents import Agent, Agents, ChangedPolicies, StartRun
from gateway.service.ports import Suspended, ToolAnswer

QUESTION_ARGUMENT: dict[str, Any] = {
    "type": "object",
    "properties": {"question": {"type": "string", "description": "The question."}},
    "required": ["question"],
}

DEPTH_MAX = 4
NO_RESULT = "no result"
PARENT_STOPPED = "the run that asked for this was stopped"


class Children(Protocol):
    """What is needed of `Runs`."""

    async def get(self, run_id: str) -> Run: ...

    async def wait(self, run_id: str, seconds: float | None) -> Run: ...

    async def begin_child(self, run_id: str, first: RunStarted) -> Run: ...

    async def take_up_child(self, run_id: str) -> Run: ...

    def abandon(self, run_id: str, reason: str) -> None: ...


FirstEvent = Callable[[Run, Execute, Parent], Awaitable[RunStarted]]
"""Resolves what the child of this run and call begins with."""


class Subagents:
    """Answers calls of tools that are agents."""

    def __init__(self, children: Children, first_event: FirstEvent) -> None:
        self._children = children
        self._first_event = first_event

    async def answer(self, parent: Run, step: Execute) -> ToolAnswer:
        """The child's answer, once it has one. Raises Suspended if it waits for a person, ToolFailed in words."""
        child = await self._begin_or_join(parent, step)
        try:
            return conclude(await self._children.wait(child.id, None))
        except asyncio.CancelledError:
            self._children.abandon(child.id, PARENT_STOPPED)
            raise

    async def _begin_or_join(self, parent: Run, step: Execute) -> Run:
        child_id = child_id_of(step.call)
        try:
            await self._children.get(child_id)
        except NotFound:
            link = Parent(parent.id, step.call.id, parent.parent.depth + 1 if parent.parent else 1)
            if link.depth > DEPTH_MAX:
                raise ToolFailed(f"subagents are nested {DEPTH_MAX} deep already: go on without another.") from None
            return await self._children.begin_child(child_id, await self._first_event(parent, step, link))
        return await self._children.take_up_child(child_id)


def child_id_of(call: Call) -> str:
    """`run:turn:index` as it can stand in a URL."""
    return call.id.replace(":", "-")


def conclude(child: Run) -> ToolAnswer:
    """What the stop of a child means to its parent. A limit of the child's is an answer in words: it never strands the
    parent."""
    if child.status is Status.RUNNING:
        raise Suspended(())
    if isinstance(child.interruption, Approval | InDoubt):
        raise Suspended(surfaced(child))
    content, error = child.output or NO_RESULT, None
    if child.status is Status.FAILED:
        error = f"{child.agent} failed: {child.error}"
    elif child.status is not Status.COMPLETED:
        content = f"{NO_RESULT}. {why(child)}"
    return ToolAnswer(
        content=content, cost_usd=child.cost_usd, unconfirmed_cost_usd=child.unconfirmed_cost_usd, error=error
    )


def surfaced(child: Run) -> tuple[Approval | InDoubt, ...]:
    """What the child waits for, as its parent shows it: with the path that leads there."""
    if child.inner:
        return tuple(with_path(waits, (child.id, *waits.path)) for waits in child.inner)
    if isinstance(child.interruption, InDoubt):
        return (with_path(child.interruption, (child.id,)),)
    return tuple(with_path(approval_of(call, call.args or {}), (child.id,)) for call in waiting_for_verdict(child))


def with_path(waits: Approval | InDoubt, path: tuple[str, ...]) -> Approval | InDoubt:
    match waits:
        case Approval(call_id, tool, args, seen):
            return Approval(call_id, tool, args, seen, path)
        case InDoubt(call_id, tool, args):
            return InDoubt(call_id, tool, args, path)


# --- from configuration -----------------------------------------------------------------------------------------------


def child_event(agents: Agents, clock: Clock) -> FirstEvent:
    """How the run of a subagent begins: the question, under its own limits or what the parent has set aside for it. Who
    approves calls, and whether a budget is hard, is the parent's to say."""

    async def first(parent: Run, step: Execute, link: Parent) -> RunStarted:
        assert step.spec.subagent is not None
        order = StartRun(
            input=str((step.call.args or {})["question"]),
            agent=step.spec.subagent,
            limits=RaisedLimits(max_budget_usd=step.reserved_usd or UNSET, budget_mode=parent.limits.budget_mode),
            policies=ChangedPolicies(approval=parent.policies.approval),
        )
        return replace(await agents.first_event(order, stream=False, now=clock()), parent=link)

    return first


def with_subagents(agents: Sequence[Agent], subagents: Mapping[str, Sequence[str]]) -> list[Agent]:
    """The agents, each with the agents that it may ask as further tools. Names must be known."""
    known = {agent.name: agent for agent in agents}

    def only_reads(name: str, seen: frozenset[str] = frozenset()) -> bool:
        below = [child for child in subagents.get(name, ()) if child not in seen]
        return all(tool.read_only for tool in known[name].tools) and all(
            only_reads(child, seen | {name}) for child in below
        )

    def linked(agent: Agent) -> Agent:
        asked = (as_tool(known[name], read_only=only_reads(name)) for name in subagents.get(agent.name, ()))
        return replace(agent, tools=(*agent.tools, *asked))

    return [linked(agent) for agent in agents]


def as_tool(agent: Agent, *, read_only: bool) -> ToolSpec:
    """The agent as a tool. A call that is taken up again joins the run that was begun for it, so it always may be."""
    return ToolSpec(
        name=agent.name,
        description=agent.about or f"Ask the agent {agent.name}.",
        parameters=QUESTION_ARGUMENT,
        read_only=read_only,
        idempotent=True,
        subagent=agent.name,
        budget_usd=agent.limits.max_budget_usd,
    )
