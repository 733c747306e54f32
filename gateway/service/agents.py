"""What a client may order, and how an order becomes the first event of a run, with all that the run is pinned to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec import field as with_default
from msgspec.structs import asdict, replace

from gateway.core.commands import RaisedLimits, check_limits, with_limits
from gateway.core.conversation import Word
from gateway.core.errors import BadRequest, CannotRun
from gateway.core.events import VERSION, RunStarted
from gateway.core.messages import Assistant, Developer, Message, System, Tool, User
from gateway.core.pricing import Price
from gateway.core.run import RUN_FIELDS, Limits, Policies, StopRules, ToolSpec
from gateway.service.checking import check_schema

CONVERSATION = "conversation"
"""What metrics and lists call the agent of a run whose client has a loop of its own."""

PRICES_MAX = 1024  # models whose price is remembered: clients name them

Text = Annotated[str, Meta(min_length=1, max_length=4_000_000)]


class FunctionDefinition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function that the model may call: its parameters are a JSON Schema of an object."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}(?!\n)$")]
    description: str = ""
    parameters: dict[str, Any] = with_default(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None


class ToolDefinition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool that the client runs itself: the run stops at its calls and takes their outputs."""

    type: Literal["function"]
    function: FunctionDefinition


class ChangedPolicies(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Policies that differ from the agent's."""

    dedupe: Literal["off", "read_only", "all"] | UnsetType = UNSET
    tool_errors: Literal["worded", "vague", "fatal"] | UnsetType = UNSET
    on_permanent_error: Literal["tell_once", "stop", "tell_model"] | UnsetType = UNSET
    approval: Literal["ask", "auto", "deny"] | UnsetType = UNSET
    refusal: Literal["worded", "silent"] | UnsetType = UNSET


class ChangedStopRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stop rules that differ from the agent's; null takes one away. They count from the last resume.

    `repeated_calls`: stop when the same call is asked for so many times; `repeated_failures`: when it has failed so
    many times; `after_tools`: once one of these has succeeded; `predicates`: rules of the operator's, by name.
    """

    repeated_calls: Annotated[int, Meta(ge=2, le=1000)] | UnsetType | None = UNSET
    repeated_failures: Annotated[int, Meta(ge=1, le=1000)] | UnsetType | None = UNSET
    after_tools: Annotated[tuple[str, ...], Meta(max_length=256)] | UnsetType = UNSET
    predicates: Annotated[tuple[str, ...], Meta(max_length=64)] | UnsetType = UNSET


class StartRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start a run of an agent, or of the default agent with another model, system prompt or set of tools.

    `tools` takes names of the agent's own tools, and definitions of tools that the client runs itself. `params` are
    further fields of each request to the provider, such as temperature, seed or response_format.
    """

    input: Text | Annotated[list[Message], Meta(min_length=1, max_length=10_000)]
    agent: str | None = None
    model: str | None = None
    system: str | None = None
    tools: Annotated[list[str | ToolDefinition], Meta(max_length=256)] | None = None
    limits: RaisedLimits = RaisedLimits()
    policies: ChangedPolicies = ChangedPolicies()
    stop_rules: ChangedStopRules = ChangedStopRules()
    stream: bool | None = None
    cancel_on_disconnect: bool = False
    metadata: dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]] = {}
    params: Annotated[dict[str, Any], Meta(max_length=64)] = {}


class Agent(Struct, frozen=True, kw_only=True):
    """An agent as configured. `model` None is the provider's default."""

    name: str
    about: str | None = None
    model: str | None
    system: str | None
    tools: tuple[ToolSpec, ...]
    limits: Limits = Limits()
    policies: Policies = Policies()
    stop_rules: StopRules = StopRules()


class Agents:
    """The configured agents and prices, and the names of the operator's own stop rules. The first agent is the default
    one."""

    def __init__(
        self,
        agents: Sequence[Agent],
        prices: Mapping[str, Price],
        default_model: Callable[[], Awaitable[str]],
        *,
        provider: str,
        predicates: Collection[str] = (),
    ) -> None:
        self._agents = {agent.name: agent for agent in agents}
        self._default = agents[0]
        self._prices = prices
        self.price_of = lru_cache(maxsize=PRICES_MAX)(self._price_of)
        self._default_model = default_model
        self._provider = provider
        self._predicates = predicates

    def tools_of(self, name: str) -> tuple[ToolSpec, ...]:
        return self._agent(name).tools

    def __contains__(self, name: str) -> bool:
        return name in self._agents

    @property
    def names(self) -> list[str]:
        return list(self._agents)

    @property
    def all(self) -> list[Agent]:
        return list(self._agents.values())

    async def first_event(self, order: StartRun, *, stream: bool, now: datetime) -> RunStarted:
        """Everything that the run depends on, resolved. Raises CannotRun or BadRequest naming the field."""
        agent = self._agent(order.agent)
        tools = chosen_tools(order.tools, agent)
        self._check_stop_rules(order.stop_rules, tools)
        model = order.model or agent.model or await self._default_model()
        return RunStarted(
            agent=agent.name,
            model=model,
            provider=self._provider,
            messages=transcript(order, agent),
            tools=tools,
            limits=check_limits(with_limits(agent.limits, order.limits)),
            policies=replace(agent.policies, **given(order.policies)),
            stop_rules=replace(agent.stop_rules, **given(order.stop_rules)),
            price=self.price_of(model),
            stream=stream if order.stream is None else order.stream,
            metadata=dict(order.metadata),
            params=check_params(order.params),
            version=VERSION,
            time=now,
        )

    def conversation_event(
        self, name: str, word: Word, limits: Limits, metadata: dict[str, str], now: datetime
    ) -> RunStarted:
        """The beginning of a conversation with a model of the provider's."""
        return RunStarted(
            agent=CONVERSATION,
            model=word.model,
            provider=self._provider,
            messages=word.messages,
            tools=word.tools,
            limits=check_limits(with_limits(limits, word.limits)),
            policies=Policies(dedupe="off"),
            price=word.price,
            stream=word.stream,
            metadata=metadata,
            params=word.params,
            conversation=name,
            version=VERSION,
            time=now,
        )

    def _agent(self, name: str | None) -> Agent:
        if name is None:
            return self._default
        if name not in self._agents:
            raise CannotRun(f"there is no agent {name}: the agents are {', '.join(self._agents)}.", param="agent")
        return self._agents[name]

    def _check_stop_rules(self, rules: ChangedStopRules, tools: tuple[ToolSpec, ...]) -> None:
        """A rule that could never fire is a mistake of the caller's. Raises CannotRun naming what there is."""
        require_known(rules.predicates, self._predicates, "stop_rules.predicates", "stop rule")
        require_known(rules.after_tools, [tool.name for tool in tools], "stop_rules.after_tools", "tool")

    def _price_of(self, model: str) -> Price:
        """The price of the longest pattern that matches. Raises CannotRun for a model that has none: an unpriced model
        would make budgets meaningless."""
        matching = [pattern for pattern in self._prices if fnmatchcase(model, pattern)]
        if not matching:
            raise CannotRun(
                f'model {model} has no price: add [prices."{model}"] with input and output, or free = true.',
                param="model",
                code="no_price",
            )
        return self._prices[max(matching, key=len)]


def check_params(params: dict[str, Any]) -> dict[str, Any]:
    """Raises BadRequest for a field that the run itself fills in."""
    for name in RUN_FIELDS & params.keys():
        raise BadRequest(f"params.{name}: the run says what that is.", param=f"params.{name}")
    if params.get("n") not in (None, 1):
        raise BadRequest("params.n: a run goes on with one reply, so n must be 1.", param="params.n")
    return params


def require_known(names: tuple[str, ...] | UnsetType, known: Collection[str], param: str, noun: str) -> None:
    for name in names or ():
        if name not in known:
            there_are = ", ".join(known) or "none"
            raise CannotRun(f"{param}: there is no {noun} {name}; there are: {there_are}.", param=param)


def given(changes: ChangedPolicies | ChangedStopRules) -> dict[str, Any]:
    return {name: value for name, value in asdict(changes).items() if value is not UNSET}


def transcript(order: StartRun, agent: Agent) -> tuple[Message, ...]:
    """The messages that the run begins with: the system prompt, unless the input brings one, then the input."""
    messages: list[Message] = [User(order.input)] if isinstance(order.input, str) else list(order.input)
    check_transcript(messages)
    system = agent.system if order.system is None else order.system
    if system and not isinstance(messages[0], System | Developer):
        messages.insert(0, System(system))
    return tuple(messages)


def check_transcript(messages: list[Message], field: str = "input") -> None:
    """Raises BadRequest for a history that no provider would take: calls without answers, answers without calls."""
    unanswered: set[str] = set()
    for position, message in enumerate(messages):
        where = f"{field}[{position}]"
        if isinstance(message, Tool):
            if message.tool_call_id not in unanswered:
                raise BadRequest(f"{where} answers {message.tool_call_id}, which nobody called.", param=where)
            unanswered.discard(message.tool_call_id)
        elif unanswered:
            raise BadRequest(f"{where}: the calls {sorted(unanswered)} before it have no answer.", param=where)
        if isinstance(message, Assistant):
            unanswered = {call.id for call in message.tool_calls}
    if unanswered or not isinstance(messages[-1], User | Tool):
        raise BadRequest("the last message must be the user's, or the last answer to a tool call.", param=field)


def chosen_tools(wanted: list[str | ToolDefinition] | None, agent: Agent) -> tuple[ToolSpec, ...]:
    if wanted is None:
        return agent.tools
    tools = tuple(chosen_tool(tool, agent, f"tools[{position}]") for position, tool in enumerate(wanted))
    names = [tool.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadRequest(f"tools names {twice} twice.", param="tools")
    return tools


def chosen_tool(tool: str | ToolDefinition, agent: Agent, where: str) -> ToolSpec:
    if isinstance(tool, str):
        for spec in agent.tools:
            if spec.name == tool:
                return spec
        known = ", ".join(spec.name for spec in agent.tools) or "none"
        raise CannotRun(f"agent {agent.name} has no tool {tool}: it has {known}.", param=where)
    return chosen_client_tool(tool, where)


def chosen_client_tool(tool: ToolDefinition, where: str) -> ToolSpec:
    if problem := check_schema(tool.function.parameters):
        raise BadRequest(f"{where}.function.parameters is no JSON Schema: {problem}.", param=where)
    return ToolSpec(
        name=tool.function.name,
        description=tool.function.description,
        parameters=tool.function.parameters,
        client_side=True,
        strict=tool.function.strict,
    )
