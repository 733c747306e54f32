"""Configuration: TOML files and a few environment variables, decoded once into one tree of Structs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, field

from gateway.adapters.providers.settings import ProviderSettings
from gateway.adapters.tools.settings import HttpSettings, ToolSettings
from gateway.adapters.trace.settings import OtelSettings
from gateway.core.commands import check_limits
from gateway.core.errors import BadRequest, GatewayError
from gateway.core.pricing import Price
from gateway.core.run import Limits, Policies, StopRules
from gateway.edge.auth import ApiKey, is_loopback

SAMPLE_SYSTEM = "You answer questions about the files in one directory. Use the tools."
SAMPLE_LEAD_SYSTEM = "You answer questions by asking for research. Use the tools."
SAMPLE_PRICE = {"input": 2.0, "output": 12.0}
ENV_PREFIX = "env:"
USD_PER_MILLION_MAX = 1_000_000

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

Bytes = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]


class ConfigError(GatewayError):
    """The configuration cannot be used; the message names the file, the field and what is wrong."""


class ServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without `keys` the gateway serves this machine only, and any of its programs."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8787
    keys: tuple[ApiKey, ...] = ()
    request_bytes_max: Bytes = 8 * 1024 * 1024
    runs_active_max: Annotated[int, Meta(ge=1)] = 512
    shutdown_grace_seconds: Seconds = 10.0


class StoreConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`durability`: `process` survives kill -9, `machine` also a power cut, at the price of an fsync a commit."""

    path: str = ".gateway/runs.db"
    durability: Literal["process", "machine"] = "process"


class AgentConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`workspace` is the folder that the file tools work on. `tools` names those to use, of the file tools and of
    `[tools]`; left out, it is all file tools. `subagents` names agents that this one may ask, each as a tool that is
    described by its `about`."""

    about: str | None = None
    model: str | None = None
    system: str | None = None
    workspace: str | None = None
    tools: tuple[str, ...] | None = None
    subagents: tuple[str, ...] = ()
    limits: Limits = Limits()
    policies: Policies = Policies()
    stop_rules: StopRules = StopRules()


class ProxyConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`limits` are those of a conversation: what a client says, in a loop of its own, under one name."""

    limits: Limits = Limits(max_turns=100)


class LogConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At `info` there is a line for each request; `warning` turns it off. `json` is one object a line."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`provider` None is the scripted provider, embedded. `model` is for agents that name none; if it is left out too,
    the first model that the provider lists.

    `tools` are functions of the operator's, or addresses; `predicates` are stop rules. Functions and stop rules go by
    `module:function`, imported from the folders of `python_path` or whatever is installed.
    """

    server: ServerConfig = ServerConfig()
    store: StoreConfig = StoreConfig()
    provider: ProviderSettings | None = None
    model: str | None = None
    agents: dict[str, AgentConfig] = field(default_factory=dict[str, AgentConfig])
    prices: dict[str, Price] = field(default_factory=dict[str, Price])
    tools: dict[str, ToolSettings] = field(default_factory=dict[str, ToolSettings])
    predicates: dict[str, str] = field(default_factory=dict[str, str])
    python_path: tuple[str, ...] = (".",)
    proxy: ProxyConfig = ProxyConfig()
    log: LogConfig = LogConfig()
    otel: OtelSettings = OtelSettings()


def secrets_of(config: Config) -> list[str]:
    """What must never be written anywhere. Providers, receivers and tools take keys in headers too."""
    provider = config.provider
    tools = [tool for tool in config.tools.values() if isinstance(tool, HttpSettings)]
    headers = [value for each in (config.otel, *filter(None, (provider,)), *tools) for value in each.headers.values()]
    keys = [key.key for key in config.server.keys]
    return [*keys, *headers, *([provider.api_key] if provider and provider.api_key else [])]


class Mistake(Exception):
    """What is wrong, and in which field. Never leaves this module: `load` says in which file."""


def load(path: str | None = None, env: Mapping[str, str] = os.environ) -> Config:
    """The configuration of this file, of `$GATEWAY_CONFIG`, or the sample one. Raises ConfigError."""
    path = path or env.get("GATEWAY_CONFIG")
    file = Path(path) if path else None
    name = str(file or "the configuration")
    try:
        tree = read_tree(file) if file else {}
        require_tables(tree)
        overlay_env(tree, env)
        fill_in_sample(tree)
        caps_of(tree)
        kinds_of_tools(tree)
        config = decode(resolve_secrets(tree, env))
        check(config)
    except Mistake as mistake:
        raise ConfigError(f"{name}: {mistake}") from None
    return resolve_paths(config, file.parent if file else Path())


def read_tree(file: Path, depth: int = 0) -> dict[str, Any]:
    """A TOML file with the files that it includes below it."""
    if depth > 5:
        raise ConfigError(f"{file}: includes are nested more than 5 deep.")
    try:
        tree = msgspec.toml.decode(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}.") from None
    included: dict[str, Any] = {}
    for name in names_of_includes(tree.pop("include", []), file):
        included = merged(included, read_tree(file.parent / name, depth + 1))
    return merged(included, tree)


def names_of_includes(include: Any, file: Path) -> list[str]:
    if not isinstance(include, list) or not all(isinstance(name, str) for name in include):
        raise ConfigError(f"{file}: include must be a list of file names.")
    return include


def require_tables(tree: dict[str, Any]) -> None:
    """What is looked into before it is decoded."""
    sections = {name: tree[name] for name in ("provider", "prices", "agents", "proxy", "tools") if name in tree}
    agents = tree.get("agents")
    if isinstance(agents, dict):
        sections |= {f"agents.{name}": agent for name, agent in agents.items()}
    for name, section in sections.items():
        if not isinstance(section, dict):
            raise Mistake(f"{name} must be a table.")


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def overlay_env(tree: dict[str, Any], env: Mapping[str, str]) -> None:
    """`LLM_BASE_URL` is the seam: one line moves everything from scripted to local to hosted. A key alone moves
    nothing: the scripted provider wants none."""
    if base_url := env.get("LLM_BASE_URL"):
        tree.setdefault("provider", {})["base_url"] = base_url
    if "provider" in tree and (api_key := env.get("LLM_API_KEY")):
        tree["provider"]["api_key"] = api_key
    if model := env.get("LLM_MODEL"):
        tree["model"] = model
        for agent in tree.get("agents", {}).values():
            agent["model"] = model


def fill_in_sample(tree: dict[str, Any]) -> None:
    """Without agents there are some over three sample files; without a provider, scripts at the sample price. A model
    on this machine costs nothing unless a price says otherwise: no bill comes from there."""
    if not tree.get("agents"):
        scripted = "provider" not in tree
        model = tree.get("model") or ("plan" if scripted else None)
        tree["agents"] = sample_agents(model, "delegate" if scripted else model)
    if "provider" not in tree:
        tree.setdefault("prices", {}).setdefault("*", SAMPLE_PRICE)
    elif not tree.get("prices") and is_here(tree["provider"].get("base_url")):
        tree["prices"] = {"*": {"free": True}}


def is_here(base_url: Any) -> bool:
    host = urlsplit(base_url).hostname if isinstance(base_url, str) else None
    return host is not None and is_loopback(host)


def caps_of(tree: dict[str, Any]) -> None:
    """TOML has no null: there a cap is taken away with "none"."""
    for table in (*tree["agents"].values(), tree.get("proxy", {})):
        limits = table.get("limits")
        if isinstance(limits, dict):
            table["limits"] = {name: None if value == "none" else value for name, value in limits.items()}


def kinds_of_tools(tree: dict[str, Any]) -> None:
    """A tool with an address is one over HTTP; without, a function."""
    for table in tree.get("tools", {}).values():
        if isinstance(table, dict):
            table.setdefault("kind", "http" if "url" in table else "function")


def sample_agents(model: str | None, leading_model: str | None) -> dict[str, Any]:
    """One over the sample files; and one that asks another, which may only read them."""
    files = {"system": SAMPLE_SYSTEM, "workspace": ".gateway/workspace", "model": model}
    research = {
        **files,
        "about": "Investigate one question and return a short summary.",
        "tools": ["list_files", "read_file"],
        "limits": {"max_turns": 6, "max_budget_usd": 0.05},
    }
    lead = {"system": SAMPLE_LEAD_SYSTEM, "subagents": ["research"], "model": leading_model}
    return {"files": files, "research": research, "lead": lead}


def resolve_secrets(tree: Any, env: Mapping[str, str], field_name: str = "") -> Any:
    """`env:NAME` anywhere stands for the variable, so that no secret need stand in a file."""
    if isinstance(tree, dict):
        return {key: resolve_secrets(value, env, f"{field_name}.{key}".lstrip(".")) for key, value in tree.items()}
    if isinstance(tree, list):
        return [resolve_secrets(value, env, f"{field_name}[{position}]") for position, value in enumerate(tree)]
    if isinstance(tree, str) and tree.startswith(ENV_PREFIX):
        name = tree.removeprefix(ENV_PREFIX)
        if name not in env:
            raise Mistake(f"{field_name} is {tree}, and {name} is not set in the environment.")
        return env[name]
    return tree


def decode(tree: dict[str, Any]) -> Config:
    try:
        return msgspec.convert(tree, Config, strict=True)
    except msgspec.ValidationError as error:
        raise Mistake(f"{str(error).replace(' - at `$.', ' - at `')}.") from None


def resolve_paths(config: Config, folder: Path) -> Config:
    """Paths in a file are relative to it."""
    agents = {
        name: msgspec.structs.replace(agent, workspace=agent.workspace and str(folder / agent.workspace))
        for name, agent in config.agents.items()
    }
    store = msgspec.structs.replace(config.store, path=str(folder / config.store.path))
    python_path = tuple(str(folder / each) for each in config.python_path)
    return msgspec.structs.replace(config, agents=agents, store=store, python_path=python_path)


def check(config: Config) -> None:
    """What types cannot say. Raises Mistake."""
    check_caps("proxy", config.proxy.limits)
    for name, agent in config.agents.items():
        check_agent(f"agents.{name}", agent, config)
    for name, price in config.prices.items():
        check_price(f"prices.{name}", price)
    for name in config.tools:
        if not TOOL_NAME.fullmatch(name):
            raise Mistake(f"tools.{name}: a tool's name has 1 to 64 letters, digits, _ or -.")
    for name in config.predicates:
        if name in StopRules.__struct_fields__:
            raise Mistake(f"predicates.{name}: that is the name of a stop rule of the gateway's: choose another.")


def check_agent(name: str, agent: AgentConfig, config: Config) -> None:
    check_caps(name, agent.limits)
    for wanted in agent.stop_rules.predicates:
        if wanted not in config.predicates:
            raise Mistake(f"{name}.stop_rules.predicates: [predicates] has no {wanted}.")
    for wanted in agent.subagents:
        if wanted not in config.agents:
            raise Mistake(f"{name}.subagents: there is no agent {wanted}.")
        if not TOOL_NAME.fullmatch(wanted) or wanted in (agent.tools or ()):
            raise Mistake(f"{name}.subagents: {wanted} cannot be the name of a tool of this agent's.")


def check_caps(name: str, limits: Limits) -> None:
    try:
        check_limits(limits)
    except BadRequest as error:
        raise Mistake(f"{name}.limits: {error}") from None


def check_price(name: str, price: Price) -> None:
    """A price that is no number, or below zero, would let no budget ever fire."""
    rates = {rate: getattr(price, rate) for rate in ("input", "output", "cached_input", "reasoning")}
    for rate, value in rates.items():
        if value is not None and not (value.is_finite() and 0 <= value < USD_PER_MILLION_MAX):
            raise Mistake(f"{name}.{rate} is {value}: it must be from 0 to {USD_PER_MILLION_MAX}, in US dollars.")
    if not price.free and not any(rates.values()):
        raise Mistake(f"{name} costs nothing: say free = true if that is meant.")
