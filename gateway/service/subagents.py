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

from gateway.core.calls import Execute
from gateway.core.commands import RaisedLimits
from gateway.core.errors import BadRequest, CannotRun, NotFound, ToolFailed
from gateway.core.events import RunStarted
from gateway.core.explain import why
from gateway.core.ports import Clock
from gateway.core.run import Parent, Run, Status, ToolSpec
from gateway.core.tree import child_id_of, surfaced, waits_for_person
from gateway.service.agents import Agent, Agents, ChangedPolicies, StartRun
from gateway.service.ports import Suspended, ToolAnswer
from gateway.service.runs import PARENT_STOPPED
from gateway.service.waiting import patiently

QUESTION_ARGUMENT: dict[str, Any] = {
    "type": "object",
    "properties": {"question": {"type": "string", "description": "The question."}},
    "required": ["question"],
}

DEPTH_MAX = 4
NO_RESULT = "no result"


class Children(Protocol):
    """What is needed of `Runs`."""

    async def get(self, run_id: str) -> Run: ...

    async def wait(self, run_id: str, seconds: float | None) -> Run: ...

    async def begin_child(self, run_id: str, first: RunStarted) -> Run: ...

    async def take_up_child(self, run_id: str, parent: Run) -> Run: ...

    def abandon(self, run_id: str, reason: str) -> None: ...


FirstEvent = Callable[[Run, Execute, Parent], Awaitable[RunStarted]]
"""Resolves what the child of this run and call begins with."""


class Subagents:
    """Answers calls of tools that are agents."""

    def __init__(self, children: Children, first_event: FirstEvent) -> None:
        self._children = children
        self._first_event = first_event

    async def answer(self, parent: Run, step: Execute) -> ToolAnswer:
        """The child's answer, once it has one; a store that is down holds it up. Raises Suspended if the child waits
        for a person, ToolFailed in words."""
        return await patiently()(self._answer, parent, step)

    async def _answer(self, parent: Run, step: Execute) -> ToolAnswer:
        child_id = child_id_of(step.call)
        joining = asyncio.ensure_future(self._begin_or_join(child_id, parent, step))
        try:
            await asyncio.shield(joining)  # half begun, a child would be one that nobody drives
            return conclude(await self._children.wait(child_id, None))
        except asyncio.CancelledError:
            joining.add_done_callback(lambda begun: self._abandon(child_id, begun))
            raise

    def _abandon(self, child_id: str, begun: asyncio.Future[Run]) -> None:
        if not begun.cancelled() and begun.exception() is None:
            self._children.abandon(child_id, PARENT_STOPPED)

    async def _begin_or_join(self, child_id: str, parent: Run, step: Execute) -> Run:
        try:
            await self._children.get(child_id)
        except NotFound:
            return await self._children.begin_child(child_id, await self._first_event_of(parent, step))
        return await self._children.take_up_child(child_id, parent)

    async def _first_event_of(self, parent: Run, step: Execute) -> RunStarted:
        link = Parent(parent.id, step.call.id, parent.parent.depth + 1 if parent.parent else 1)
        if link.depth > DEPTH_MAX:
            raise ToolFailed(f"subagents are nested {DEPTH_MAX} deep already: go on without another.")
        try:
            return await self._first_event(parent, step, link)
        except (CannotRun, BadRequest) as error:  # configured otherwise since the parent began
            raise ToolFailed(f"{step.call.tool} cannot run: {error}", permanent=True) from error


def conclude(child: Run) -> ToolAnswer:
    """What the stop of a child means to its parent. A limit of the child's is an answer in words: it never strands the
    parent."""
    if child.status is Status.RUNNING:
        raise Suspended(())
    if waits_for_person(child):
        raise Suspended(surfaced(child))
    content, error = child.output or NO_RESULT, None
    if child.status is Status.FAILED:
        error = f"{child.agent} failed: {child.error}"
    elif child.status is not Status.COMPLETED:
        content = f"{NO_RESULT}. {why(child)}"
    return ToolAnswer(
        content=content, cost_usd=child.cost_usd, unconfirmed_cost_usd=child.unconfirmed_cost_usd, error=error
    )


# --- from configuration -----------------------------------------------------------------------------------------------


def child_event(agents: Agents, clock: Clock) -> FirstEvent:
    """How the run of a subagent begins: the question, under its own limits or what the parent has set aside for it. Who
    approves calls is the parent's to say, and its budget, if hard, is so for whoever spends from it."""

    async def first(parent: Run, step: Execute, link: Parent) -> RunStarted:
        assert step.spec.subagent is not None
        hard = parent.limits.budget_mode == "hard"
        order = StartRun(
            input=str((step.call.args or {})["question"]),
            agent=step.spec.subagent,
            limits=RaisedLimits(max_budget_usd=step.reserved_usd or UNSET, budget_mode="hard" if hard else UNSET),
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
