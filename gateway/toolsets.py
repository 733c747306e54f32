"""From configuration to the tools of each agent and the operator's stop rules. Nothing else imports the operator's
code, and this only does when it is called."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from gateway.adapters.dotted import CannotLoad, make_importable
from gateway.adapters.predicates import predicate_of
from gateway.adapters.tools.functions import function_tool
from gateway.adapters.tools.http import http_tool
from gateway.adapters.tools.notes import Notes
from gateway.adapters.tools.sample import write_workspace
from gateway.adapters.tools.settings import HttpSettings, ToolSettings
from gateway.adapters.tools.tool import Tool
from gateway.adapters.tools.workspace import Workspace
from gateway.config import AgentConfig, Config, ConfigError
from gateway.core.stopping import Predicate
from gateway.service.agents import Agent
from gateway.service.checking import check_schema
from gateway.service.subagents import with_subagents

NO_TOOLS: Mapping[str, Tool] = MappingProxyType({})

T = TypeVar("T")


def toolsets(config: Config, more: Mapping[str, Tool] = NO_TOOLS) -> dict[str, dict[str, Tool]]:
    """The tools of each agent, by name; `more` are those of a program that embeds the gateway. Raises ConfigError."""
    own = {**loaded_tools(config), **more}
    notes = Notes(Path(config.store.path).with_name("notes"))
    return {name: agent_tools(name, agent, own, notes) for name, agent in config.agents.items()}


def loaded_tools(config: Config) -> dict[str, Tool]:
    """The functions and addresses of `[tools]`. Raises ConfigError naming the one that cannot be used."""
    if config.tools:
        make_importable(config.python_path)
    return {name: named(f"tools.{name}", partial(tool_of, name, each)) for name, each in config.tools.items()}


def tool_of(name: str, settings: ToolSettings) -> Tool:
    tool = http_tool(name, settings) if isinstance(settings, HttpSettings) else function_tool(name, settings)
    if problem := check_schema(tool.spec.parameters):
        raise CannotLoad(f"parameters is no JSON Schema: {problem}.")
    return tool


def loaded_predicates(config: Config) -> dict[str, Predicate]:
    """The stop rules of `[predicates]`. Raises ConfigError."""
    if config.predicates:
        make_importable(config.python_path)
    return {name: named(f"predicates.{name}", partial(predicate_of, path)) for name, path in config.predicates.items()}


def named(field: str, load: Callable[[], T]) -> T:
    try:
        return load()
    except CannotLoad as error:
        raise ConfigError(f"{field}: {error}") from error


def agent_tools(name: str, config: AgentConfig, own: Mapping[str, Tool], notes: Notes) -> dict[str, Tool]:
    """The tools of one agent, in the order named; left out, all that work on its files. Its own win over those."""
    files = Workspace(Path(config.workspace), notes=notes).tools() if config.workspace else {}
    tools = {**files, **own}
    wanted = files if config.tools is None else config.tools
    hint = "" if files else ", and without a workspace none over files"
    require_there(f"agents.{name}.tools", wanted, tools, hint)
    return {each: tools[each] for each in wanted}


def require_there(field: str, wanted: Iterable[str], tools: Collection[str], hint: str = "") -> None:
    for name in wanted:
        if name not in tools:
            raise ConfigError(f"{field}: there is no tool {name}; the tools are: {', '.join(tools) or 'none'}{hint}.")


def agents_of(config: Config, tools: Mapping[str, Mapping[str, Tool]]) -> list[Agent]:
    """The agents with all that their models are told of: their tools, and other agents as further tools."""
    alone = [agent_of(name, agent, tools[name]) for name, agent in config.agents.items()]
    agents = with_subagents(alone, {name: agent.subagents for name, agent in config.agents.items()})
    for agent in agents:
        known = [spec.name for spec in agent.tools]
        require_there(f"agents.{agent.name}.stop_rules.after_tools", agent.stop_rules.after_tools, known)
    return agents


def agent_of(name: str, config: AgentConfig, tools: Mapping[str, Tool]) -> Agent:
    return Agent(
        name=name,
        about=config.about,
        model=config.model,
        system=config.system,
        tools=tuple(tool.spec for tool in tools.values()),
        limits=config.limits,
        policies=config.policies,
        stop_rules=config.stop_rules,
    )


def make_workspaces(agents: Iterable[AgentConfig]) -> list[Path]:
    """The workspaces that do not exist yet, made with the sample files in them."""
    folders = dict.fromkeys(Path(agent.workspace) for agent in agents if agent.workspace)
    made = [folder for folder in folders if not folder.exists()]
    for folder in made:
        write_workspace(folder)
    return made
