"""Runs below runs: a subagent's run answers a call of the run above it. Who is below whom, and what shows above."""

from __future__ import annotations

from gateway.core.calls import approval_of, outstanding, waiting_for_verdict
from gateway.core.run import Approval, Call, InDoubt, Run, Status, reason_of
from gateway.core.stopping import is_subagent

Waits = Approval | InDoubt
"""What a person is waited for."""


def child_id_of(call: Call) -> str:
    """The run that answers the call: `run:turn:index` as it can stand in a URL."""
    return call.id.replace(":", "-")


def children_of(run: Run) -> list[str]:
    """The runs that were begun, or about to be, for calls that have no answer yet."""
    return [child_id_of(call) for call in outstanding(run) if call.started and is_subagent(run, call)]


def is_child(run: Run, of: Run) -> bool:
    return run.parent is not None and run.parent.run_id == of.id


def owner_of(run_id: str, call_id: str) -> str:
    """The run whose call this is: this one, or one below it, whose ids begin with its id."""
    owner = call_id.partition(":")[0]
    return owner if owner.startswith(f"{run_id}-") else run_id


def is_orphan(run: Run, parent: Run) -> bool:
    """Whether the run above was stopped, and the process died before it could stop this one as well."""
    return parent.status is not Status.RUNNING and not parent.inner and run.id in children_of(parent)


def waits_for_person(run: Run) -> bool:
    return isinstance(run.interruption, Waits)


def surfaced(child: Run) -> tuple[Waits, ...]:
    """What the child waits for, as its parent shows it: with the path that leads there."""
    if not waits_for_person(child):
        return ()
    if child.inner:
        return tuple(with_path(waits, (child.id, *waits.path)) for waits in child.inner)
    if isinstance(child.interruption, InDoubt):
        return (with_path(child.interruption, (child.id,)),)
    return tuple(with_path(approval_of(call, call.args or {}), (child.id,)) for call in waiting_for_verdict(child))


def with_path(waits: Waits, path: tuple[str, ...]) -> Waits:
    match waits:
        case Approval(call_id, tool, args, seen):
            return Approval(call_id, tool, args, seen, path)
        case InDoubt(call_id, tool, args):
            return InDoubt(call_id, tool, args, path)


def shows(run: Run, waits: tuple[Waits, ...]) -> bool:
    """Whether the run shows just this, in whatever order."""
    return {(reason_of(one), one.call_id) for one in run.inner} == {(reason_of(one), one.call_id) for one in waits}
