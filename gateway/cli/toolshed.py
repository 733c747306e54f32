"""Lists the tools of a configuration, and runs one: checked, timed and worded as in a run, with nothing recorded."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NoReturn

import typer
from msgspec import Struct
from msgspec.structs import asdict
from rich.table import Table
from rich.text import Text

from gateway.adapters.tools.tool import Tool
from gateway.adapters.tools.toolbox import LocalToolbox
from gateway.cli.asking import APPROVE, read_line
from gateway.cli.exits import Exit, fail
from gateway.cli.render import console, printable
from gateway.config import AgentConfig, Config, load
from gateway.core.codec import encode
from gateway.core.errors import GatewayError, ToolFailed
from gateway.core.messages import Function, ToolCall
from gateway.core.pricing import Price
from gateway.core.run import Run, ToolSpec
from gateway.service.agents import Agent
from gateway.service.checking import check
from gateway.service.perform import failure_words
from gateway.toolsets import agents_of, make_workspaces, toolsets

TRIAL = "try"
FLAGS = ("read_only", "needs_approval", "idempotent", "cacheable")


class Toolset(Struct, frozen=True):
    """The tools of an agent as its model is told of them, and the code of those that are not agents themselves."""

    agent: str
    specs: dict[str, ToolSpec]
    tools: dict[str, Tool]


def configured(path: str | None) -> tuple[Config, list[Toolset]]:
    try:
        config = load(path)
        tools = toolsets(config)
        return config, [toolset_of(agent, tools[agent.name]) for agent in agents_of(config, tools)]
    except GatewayError as error:
        fail(str(error), Exit.USAGE)


def toolset_of(agent: Agent, tools: dict[str, Tool]) -> Toolset:
    return Toolset(agent.name, {spec.name: spec for spec in agent.tools}, tools)


# --- the list -------------------------------------------------------------------------------------------------------


def show_tools(path: str | None, *, as_json: bool) -> None:
    _, sets = configured(path)
    if as_json:
        listed = [{"agent": each.agent, "tools": [asdict(spec) for spec in each.specs.values()]} for each in sets]
        typer.echo(encode({"agents": listed}))
    else:
        console().print(tools_table(sets))


def tools_table(sets: list[Toolset]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("agent", "tool", "flags", "takes", "description"):
        table.add_column(heading, overflow="fold")
    for each in sets:
        for spec in each.specs.values():
            cells = (each.agent, spec.name, flags(spec), takes(spec), spec.description)
            table.add_row(*(Text(printable(cell)) for cell in cells))
        if not each.specs:
            table.add_row(Text(printable(each.agent)), Text("no tools", "dim"))
    return table


def flags(spec: ToolSpec) -> str:
    said = [name.replace("_", " ") for name in FLAGS if getattr(spec, name)]
    if spec.subagent is not None:
        said.append("subagent")
    if spec.timeout_seconds is not None:
        said.append(f"{spec.timeout_seconds:g} s")
    return ", ".join(said) or "-"


def takes(spec: ToolSpec) -> str:
    """`path, depth?`: the parameters, and which may be left out."""
    required = spec.parameters.get("required", ())
    names = spec.parameters.get("properties", {})
    return ", ".join(name if name in required else f"{name}?" for name in names) or "nothing"


# --- the trial ------------------------------------------------------------------------------------------------------


class Progress:
    """The context of a trial: what the tool reports is shown as it comes."""

    idempotency_key = f"{TRIAL}:1:0"
    cancelled = False

    def __init__(self, tool: str) -> None:
        self._tool = tool

    def progress(self, label: str) -> None:
        typer.echo(printable(f"{self._tool}: {label}"), err=True)


def try_out(path: str | None, name: str, arguments: str, *, agent: str | None, approved: bool) -> None:
    config, sets = configured(path)
    chosen = chosen_set(sets, name, agent)
    run = trial_run(chosen, config.agents[chosen.agent])
    args = checked(run, name, arguments)
    spec = chosen.specs[name]
    if spec.subagent is not None:
        fail(f"{name} is an agent: try it with gateway run TASK --agent {spec.subagent}.", Exit.USAGE)
    if spec.needs_approval and not approved:
        require_approval(spec, args)
    for made in make_workspaces([config.agents[chosen.agent]]):
        typer.echo(f"{made} is new: made with three sample files.", err=True)
    began = time.perf_counter()
    try:
        answer = asyncio.run(LocalToolbox({chosen.agent: chosen.tools}).use(run, spec, args, Progress(name)))
    except ToolFailed as failed:
        tell_failure(run, failed)
    except KeyboardInterrupt:
        raise typer.Exit(Exit.CANCELLED) from None
    typer.echo(printable(answer) if sys.stdout.isatty() else answer)
    typer.echo(f"{name}: done in {round((time.perf_counter() - began) * 1000)} ms", err=True)


def chosen_set(sets: list[Toolset], name: str, agent: str | None) -> Toolset:
    """The agent that was named, or the first one with this tool."""
    of_agent = [each for each in sets if agent in (None, each.agent)]
    if not of_agent:
        fail(f"There is no agent {agent}: the agents are {listed(each.agent for each in sets)}.", Exit.USAGE)
    having = [each for each in of_agent if name in each.specs]
    if not having:
        lacking = f"Agent {agent} has no" if agent else "No agent has a"
        there_are = listed(dict.fromkeys(tool for each in of_agent for tool in each.specs))
        fail(f"{lacking} tool {name}: the tools are {there_are}.", Exit.USAGE)
    return having[0]


def listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def trial_run(chosen: Toolset, agent: AgentConfig) -> Run:
    """A run that never was: as much of one as a tool is told of."""
    now = datetime.now(UTC)
    return Run(
        id=TRIAL,
        agent=chosen.agent,
        model=agent.model or "none",
        tools=tuple(chosen.specs.values()),
        limits=agent.limits,
        policies=agent.policies,
        price=Price(free=True),
        messages=(),
        created_at=now,
        updated_at=now,
        driven_since=now,
    )


def checked(run: Run, name: str, arguments: str) -> dict[str, Any]:
    """The arguments, or the end: a call that cannot run is answered in the words that a model would read."""
    found = check(ToolCall(TRIAL, "function", Function(name, arguments)), run.tools)
    if found.args is None:
        fail(found.problem or "", Exit.FAILED)
    return found.args


def require_approval(spec: ToolSpec, args: dict[str, Any]) -> None:
    call = printable(f"{spec.name} {encode(args).decode()}")
    if not sys.stdin.isatty():
        fail(f"{call} needs an approval: look at it, and say --yes.", Exit.APPROVAL)
    try:
        said = read_line(f"{call} needs an approval. Run it? [y/n] ").lower()
    except (EOFError, KeyboardInterrupt):
        raise typer.Exit(Exit.CANCELLED) from None
    if said not in APPROVE:
        fail("Not approved, so not run.", Exit.FAILED)


def tell_failure(run: Run, failed: ToolFailed) -> NoReturn:
    """What went wrong, and what a model would read of it where that is something else."""
    typer.echo(printable(f"Error: {failed}"), err=True)
    if (read := failure_words(run, str(failed))) != f"Error: {failed}":
        typer.echo(f"Under tool_errors = {run.policies.tool_errors!r} the model reads: {read}", err=True)
    if failed.permanent:
        typer.echo("It is permanent: no other wording of this call can help.", err=True)
    raise typer.Exit(Exit.FAILED)
