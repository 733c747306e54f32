"""What Prometheus sees: an observer of the same events that are recorded. Labels are bounded: agents, models, tools,
statuses and reasons; never runs, users or calls."""

from __future__ import annotations

import time
from collections.abc import Sequence
from decimal import Decimal
from functools import partial

from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

from gateway import series
from gateway.core import events as e
from gateway.core.ports import Recorded
from gateway.core.pricing import Usage
from gateway.core.run import Run, Status
from gateway.series import Distribution, Number

STOPS: tuple[tuple[Status, str], ...] = (
    (Status.COMPLETED, "none"),
    (Status.FAILED, "none"),
    (Status.MAX_TURNS_EXCEEDED, "max_turns"),
    (Status.BUDGET_EXCEEDED, "max_budget"),
    (Status.INTERRUPTED, "approval"),
    (Status.INTERRUPTED, "cancelled"),
    (Status.INTERRUPTED, "tool_outputs"),
    (Status.INTERRUPTED, "in_doubt"),
    (Status.INTERRUPTED, "deadline"),
    (Status.INTERRUPTED, "stop_rule"),
    (Status.INTERRUPTED, "provider_unavailable"),
)
"""Every way out: each series exists from the start, at 0, so that a rate over it is right from the first stop."""

TURN_BUCKETS = (1, 2, 3, 4, 6, 8, 12, 20, 30, 50, 100, 200)
COST_BUCKETS = (0.0001, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 50)
SECONDS_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300)
OVERHEAD_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 1)
OVERSHOOT_BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1)
MODELS_MAX = 40  # of models, and of tools: with all of them, the page stays below 200 kB (tests/ops)
OTHER = "other"
UNKNOWN = "unknown"  # a tool that the model made up


class Bounded:
    """The first `MODELS_MAX` values of a label; the rest are counted together, so that clients cannot grow it."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value in self._known or len(self._known) < MODELS_MAX:
            self._known.add(value)
            return value
        return OTHER


class Progress:
    """What a run had when it was last counted, so that a resumed run adds only what it added since."""

    __slots__ = ("cost_usd", "driven_seconds", "last_event", "turns")

    def __init__(self, run: Run) -> None:
        self.turns = run.turns
        self.cost_usd = float(run.cost_usd)
        self.driven_seconds = run.driven.total_seconds()
        self.last_event = time.perf_counter()


class Replies(Struct, frozen=True):
    """The series that count the replies of one model to one agent."""

    cost: Number
    prompt: Number
    completion: Number
    cached: Number
    reasoning: Number
    seconds: Distribution

    def count(self, used: e.Turn | Usage, cost_usd: Decimal, seconds: float) -> None:
        self.cost.value += float(cost_usd)
        self.prompt.value += used.prompt_tokens
        self.completion.value += used.completion_tokens
        self.cached.value += used.cached_tokens
        self.reasoning.value += used.reasoning_tokens
        self.seconds.observe(seconds)


class Metrics:
    """An Observer. Create one a process."""

    def __init__(self, agents: Sequence[str], version: str = "") -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._progress: dict[str, Progress] = {}
        self._replies: dict[tuple[str, str], Replies] = {}
        self._model = Bounded()
        self._tool = Bounded()
        self._define()
        self.build.labels(version).set(1)
        for agent in agents:
            self._start_at_zero(agent)

    def _define(self) -> None:
        counter = partial(series.counter, self.registry)
        gauge = partial(series.gauge, self.registry)
        histogram = partial(series.histogram, self.registry)

        self.build = gauge("gateway_build_info", "1, and the version.", "version")
        self.started = counter("gateway_runs_started", "Runs started.", "agent")
        self.stops = counter("gateway_run_stops", "Stops, by way out.", "agent", "status", "reason")
        self.active = gauge("gateway_runs_active", "Runs being driven.", "agent")
        self.turns = histogram("gateway_run_turns", "Turns until a stop.", TURN_BUCKETS, "agent", "status")
        self.run_cost = histogram("gateway_run_cost_usd", "Cost until a stop.", COST_BUCKETS, "agent", "status")
        self.duration = histogram(
            "gateway_run_duration_seconds", "Driving time until a stop.", SECONDS_BUCKETS, "agent", "status"
        )
        self.cost = counter("gateway_cost_usd", "Money spent, as recorded.", "agent", "model")
        self.tokens = counter("gateway_tokens", "Tokens, by kind.", "agent", "model", "kind")
        self.overshoot = histogram(
            "gateway_budget_overshoot_usd", "Spend above the budget.", OVERSHOOT_BUCKETS
        ).labels()
        self.turn_seconds = histogram("gateway_turn_seconds", "Wait for a reply.", SECONDS_BUCKETS, "model")
        self.overhead = histogram(
            "gateway_overhead_seconds", "A turn minus the wait for the provider.", OVERHEAD_BUCKETS
        ).labels()
        self.requests = counter("gateway_provider_requests", "Requests to the provider.", "provider", "outcome")
        self.retries = counter("gateway_provider_retries", "Requests that were sent again.").labels()
        self.tool_runs = counter("gateway_tool_runs", "Answers to tool calls.", "tool", "outcome")
        self.tool_seconds = histogram("gateway_tool_seconds", "Time in a tool.", SECONDS_BUCKETS, "tool")
        self.recoveries = counter("gateway_run_recoveries", "Runs taken up after their process had died.", "agent")
        self.budget_faults = counter(
            "gateway_budget_faults", "Replies that cost more than a hard budget had allowed the provider."
        ).labels()
        self.approvals = gauge("gateway_approvals_pending", "Runs that wait for a verdict.").labels()
        self.in_doubt = gauge("gateway_in_doubt_pending", "Runs that wait for a settlement.").labels()

    def proxied(self, provider: str) -> Proxied:
        """Counts what is passed through to this provider."""
        return Proxied(self, provider)

    def replies_of(self, agent: str, model: str) -> Replies:
        """What the replies of a model to an agent are counted by."""
        return self._replies.get((agent, model)) or self._looked_up(agent, self._model(model))

    def _looked_up(self, agent: str, label: str) -> Replies:
        """Once for each pair of labels: of models beyond those that are told apart there is one."""
        known = self._replies.get((agent, label))
        if known is None:
            known = self._replies[agent, label] = Replies(
                cost=self.cost.labels(agent, label),
                prompt=self.tokens.labels(agent, label, "prompt"),
                completion=self.tokens.labels(agent, label, "completion"),
                cached=self.tokens.labels(agent, label, "cached"),
                reasoning=self.tokens.labels(agent, label, "reasoning"),
                seconds=self.turn_seconds.labels(label),
            )
        return known

    def _start_at_zero(self, agent: str) -> None:
        self.started.labels(agent)
        self.active.labels(agent)
        self.recoveries.labels(agent)
        for status, reason in STOPS:
            self.stops.labels(agent, status.value, reason)

    def expose(self, *, approvals_pending: float, in_doubt_pending: float) -> tuple[bytes, str]:
        """The page for a scrape, and its content type. What waits is the store's to say: it outlives processes."""
        self.approvals.set(approvals_pending)
        self.in_doubt.set(in_doubt_pending)
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    # --- Observer ---

    def said(self, run: Run, text: str) -> None:
        return

    def attempted(self, run: Run, outcome: str, *, again: bool) -> None:
        self.requests.labels(run.provider, outcome).inc()
        if again:
            self.retries.inc()
        if outcome != "ok":
            self._touch(run)  # what a failed attempt took was not ours

    def recorded(self, news: Sequence[Recorded]) -> None:
        for run, event, _ in news:
            match event:
                case e.TurnStart():
                    continue
                case e.Turn():
                    self._turn(run, event)
                case e.ToolResult():
                    self._tool_result(run, event)
                case e.RunStopped():
                    self._stopped(run, event)
                case e.RunStarted():
                    self.started.labels(run.agent).inc()
                    self._driven_from(run)
                case e.RunResumed():
                    self.recoveries.labels(run.agent).inc(event.cause == "recovery")
                    self._driven_from(run)
                case _:
                    pass
            self._touch(run)

    def _driven_from(self, run: Run) -> None:
        self.active.labels(run.agent).inc()
        self._progress[run.id] = Progress(run)

    def _touch(self, run: Run) -> None:
        if progress := self._progress.get(run.id):
            progress.last_event = time.perf_counter()

    def _turn(self, run: Run, event: e.Turn) -> None:
        self.replies_of(run.agent, run.model).count(event, event.turn_cost_usd, event.ms / 1000)
        if event.fault is not None:
            self.budget_faults.inc()
        if progress := self._progress.get(run.id):
            self.overhead.observe(max(0.0, time.perf_counter() - progress.last_event - event.ms / 1000))

    def _tool_result(self, run: Run, event: e.ToolResult) -> None:
        tool = self._tool(event.tool_name) if run.tool(event.tool_name) else UNKNOWN
        outcome = event.source if event.source != "tool" else "ok" if event.ok else "error"
        self.tool_runs.labels(tool, outcome).inc()
        if event.source == "tool":
            self.tool_seconds.labels(tool).observe(event.ms / 1000)

    def _stopped(self, run: Run, event: e.RunStopped) -> None:
        status = event.status.value
        self.stops.labels(run.agent, status, event.reason or "none").inc()
        progress = self._progress.pop(run.id, None)
        if progress is not None:
            self.active.labels(run.agent).dec()
            self.turns.labels(run.agent, status).observe(run.turns - progress.turns)
            self.run_cost.labels(run.agent, status).observe(float(run.cost_usd) - progress.cost_usd)
            self.duration.labels(run.agent, status).observe(run.driven.total_seconds() - progress.driven_seconds)
        if event.status is Status.BUDGET_EXCEEDED and run.limits.max_budget_usd is not None:
            self.overshoot.observe(max(0.0, float(run.spent_usd - run.limits.max_budget_usd)))


PROXY = "proxy"
"""What the label `agent` says of requests that are passed through: no run is made of them."""


OUTCOMES = ("ok", "refused", "unavailable", "lost", "abandoned")
"""How a request to the provider may end. `abandoned` says nothing of the provider: the client hung up."""


class Proxied:
    """Counts requests that are passed through to one provider."""

    def __init__(self, metrics: Metrics, provider: str) -> None:
        self._metrics = metrics
        self._requests = {outcome: metrics.requests.labels(provider, outcome) for outcome in OUTCOMES}

    def passed(self, model: str, outcome: str, usage: Usage, cost_usd: Decimal, seconds: float) -> None:
        self._requests[outcome].inc()
        self._metrics.replies_of(PROXY, model).count(usage, cost_usd, seconds)
