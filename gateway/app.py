"""Where everything is wired, by hand and in one place: adapters, service, edge, and the process around them."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

from gateway import logs, memory
from gateway.adapters.providers.forwarding import Forwarder
from gateway.adapters.providers.openai import OpenAIModel, server_of, traceparent
from gateway.adapters.providers.settings import ProviderSettings
from gateway.adapters.store.sqlite import SqliteStore
from gateway.adapters.tools.tool import Tool
from gateway.adapters.tools.toolbox import LocalToolbox
from gateway.config import Config, ConfigError, secrets_of
from gateway.core.errors import CannotRun, GatewayError, ProviderError, Unavailable
from gateway.core.ports import Clock, EventLog
from gateway.core.run import Limits
from gateway.core.stopping import RULES, predicates
from gateway.edge.access import logged
from gateway.edge.answers import IdempotentAnswers
from gateway.edge.auth import guard, is_loopback
from gateway.edge.console_routes import ConsoleRoutes
from gateway.edge.openai.chat import ChatRoutes
from gateway.edge.openai.loops import Loops
from gateway.edge.openai.proxy import Proxy
from gateway.edge.openai.responses.routes import ResponsesRoutes
from gateway.edge.openapi import serve as serve_openapi
from gateway.edge.problems import problems
from gateway.edge.routes import (
    Route,
    console_routes,
    openai_routes,
    register,
    run_routes,
    stats_routes,
    system_routes,
)
from gateway.edge.run_routes import RunRoutes
from gateway.edge.stats_routes import StatsRoutes
from gateway.edge.system_routes import SystemRoutes
from gateway.metrics import Metrics
from gateway.service.afterwards import Afterwards
from gateway.service.agents import CONVERSATION, Agents
from gateway.service.changes import Changes
from gateway.service.feed import Feed
from gateway.service.ports import Ports
from gateway.service.runs import Runs
from gateway.service.subagents import Subagents, child_event
from gateway.toolsets import NO_TOOLS, agents_of, loaded_predicates, make_workspaces, toolsets
from gateway.tracing import tracing
from scripted.app import create_app as create_scripted
from scripted.app import serving as serving_scripted

VERSION = version("agent-sidecar")
PROBE_SECONDS_MAX = 2.0
STREAMS_END_SECONDS = 1.0


utc_now: Clock = partial(datetime.now, UTC)


# --- from configuration to parts ------------------------------------------------------------------------------------


@asynccontextmanager
async def provider_of(config: Config) -> AsyncIterator[ProviderSettings]:
    """The configured provider, or the scripted one, served from this process on a free port of the loopback."""
    if config.provider is not None:
        yield config.provider
        return
    async with serving_scripted(create_scripted()) as base_url:
        yield ProviderSettings(name="scripted", base_url=f"{base_url}/v1")


class DefaultModel:
    """The model for agents that name none: the configured one, or the first that the provider lists."""

    def __init__(self, configured: str | None, model: OpenAIModel) -> None:
        self._name = configured
        self._model = model

    async def __call__(self) -> str:
        """Raises Unavailable or CannotRun if the provider does not say."""
        if self._name is None:
            self._name = await self._first()
        return self._name

    async def _first(self) -> str:
        try:
            models = await self._model.models()
        except ProviderError as error:
            raise Unavailable(f"no model is named, and {hinted(error)}: set LLM_MODEL, or try again.") from error
        if not models:
            raise CannotRun("no model is named, and the provider lists none: set LLM_MODEL.", param="model")
        return models[0]


# --- the application ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def assembled(
    config: Config, own_tools: Mapping[str, Tool] = NO_TOOLS
) -> AsyncIterator[tuple[web.Application, Runs]]:
    """The application with everything it needs open, and everything closed in reverse order afterwards.

    `own_tools` are Python functions of whoever embeds the gateway: agents use those that they name in `tools`.
    """
    async with AsyncExitStack() as stack:
        tools, own_rules = toolsets(config, own_tools), loaded_predicates(config)
        agents = agents_of(config, tools)
        with private_files():
            make_workspaces(config.agents.values())
            store = await SqliteStore.open(config.store.path, durability=config.store.durability)
        stack.push_async_callback(store.close)
        settings = await stack.enter_async_context(provider_of(config))
        traces = await stack.enter_async_context(tracing(config.otel, VERSION, utc_now))
        server = await stack.enter_async_context(server_of(settings))
        model = OpenAIModel(server, settings, traces.headers if traces else traceparent)
        feed, changes = Feed(), Changes()
        metrics = Metrics([*(agent.name for agent in agents), CONVERSATION], VERSION)
        ports = Ports(
            log=store,
            model=model,
            toolbox=LocalToolbox(tools),
            clock=utc_now,
            observers=(*([traces] if traces else []), Afterwards((feed, changes, metrics))),
            rules=(*RULES, predicates(own_rules)),
        )
        catalogue = Agents(
            agents, config.prices, DefaultModel(config.model, model), provider=settings.name, predicates=own_rules
        )
        runs = Runs(
            ports,
            store,
            active_max=config.server.runs_active_max,
            taken_up="handover" if store.was_closed_in_order else "recovery",
            subagents=lambda runs: Subagents(runs, child_event(catalogue, utc_now)),
        )
        stack.push_async_callback(runs.close, config.server.shutdown_grace_seconds)
        answers = IdempotentAnswers(store)
        routes = RunRoutes(
            runs=runs,
            agents=catalogue,
            feed=feed,
            log=store,
            index=store,
            answers=answers,
            clock=utc_now,
        )
        openai = openai_api(
            runs=runs,
            agents=catalogue,
            feed=feed,
            log=store,
            answers=answers,
            limits=config.proxy.limits,
            proxy=Proxy(Forwarder(server, settings), catalogue.price_of, metrics.proxied(settings.name)),
            model=model,
            provider=settings.name,
        )
        stats = stats_routes(StatsRoutes(store, utc_now))
        console = console_routes(ConsoleRoutes(agents=catalogue, changes=changes))
        described = [*run_routes(routes), *stats, *console, *openai]
        yield application(config, described, system(metrics, store, model)), runs


@contextmanager
def private_files() -> Iterator[None]:
    """What is made here is nobody else's to read: runs hold whatever was said to them."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def openai_api(
    *,
    runs: Runs,
    agents: Agents,
    feed: Feed,
    log: EventLog,
    answers: IdempotentAnswers,
    limits: Limits,
    proxy: Proxy,
    model: OpenAIModel,
    provider: str,
) -> list[Route]:
    loops = Loops(runs=runs, agents=agents, feed=feed, log=log, answers=answers, clock=utc_now, limits=limits)
    chat = ChatRoutes(loops=loops, proxy=proxy, agents=agents, models=lambda: listed(model), provider=provider)
    return openai_routes(chat, ResponsesRoutes(loops))


async def listed(model: OpenAIModel) -> list[str]:
    """The provider's models. Raises Unavailable if it does not say."""
    try:
        return await model.models()
    except ProviderError as error:
        raise Unavailable(f"{hinted(error)}.") from error


def hinted(error: ProviderError) -> str:
    """A provider has a list of models where its API is, so that a 404 for it says where it is not."""
    return f"{error} (does base_url end in /v1?)" if error.status == 404 else str(error)


def system(metrics: Metrics, store: SqliteStore, model: OpenAIModel) -> SystemRoutes:
    async def expose() -> tuple[bytes, str]:
        try:
            approvals, doubts = await store.count("approval"), await store.count("in_doubt")
        except Unavailable:  # when the store is down, the other series are needed most
            approvals = doubts = math.nan
        return metrics.expose(approvals_pending=approvals, in_doubt_pending=doubts)

    async def store_answers() -> str | None:
        return await words_of(store.count("approval"))

    async def provider_answers() -> str | None:
        return await words_of(model.models())

    return SystemRoutes(version=VERSION, expose=expose, probes={"store": store_answers, "provider": provider_answers})


async def words_of(probe: Awaitable[object]) -> str | None:
    """None if the probe succeeds, else what it says."""
    try:
        async with asyncio.timeout(PROBE_SECONDS_MAX):
            await probe
    except TimeoutError:
        return f"no answer within {PROBE_SECONDS_MAX:g} s"
    except ProviderError as error:
        return hinted(error)
    except GatewayError as error:
        return str(error)
    return None


def application(config: Config, described: list[Route], system: SystemRoutes) -> web.Application:
    app = web.Application(
        middlewares=[logged, problems, guard(config.server.keys, loopback_only=is_loopback(config.server.host))],
        client_max_size=config.server.request_bytes_max,
    )
    routes = [*described]
    routes += system_routes(system, serve_openapi(routes, VERSION))
    register(app, routes)
    return app


# --- the process ----------------------------------------------------------------------------------------------------


async def serve(config: Config, own_tools: Mapping[str, Tool] = NO_TOOLS, *, at_length: bool = False) -> None:
    """Serve until SIGTERM or SIGINT, then let what is under way finish. Runs that were running are taken up first.

    Says the address, and `at_length` also what is served there.
    """
    memory.settle()
    stopping = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stopping.set)
    async with serving(config, own_tools) as address:
        lines = greeting(config, address)
        print("\n".join(lines if at_length else lines[:1]), flush=True)  # noqa: T201
        await stopping.wait()


def greeting(config: Config, address: str) -> list[str]:
    """What is served, and where. Scripts read the first line."""
    return [
        f"gateway listening on {address}",
        f"console    {address}/",
        f"provider   {provider_line(config.provider)}",
        f"agents     {', '.join(config.agents)}",
        f"store      {Path(config.store.path).resolve()}",
    ]


def provider_line(provider: ProviderSettings | None) -> str:
    if provider is None:
        return "scripted (bundled: no model, no key, no network)"
    address = urlsplit(provider.base_url)
    return f"{provider.name} at {address._replace(netloc=address.netloc.rpartition('@')[2], query='').geturl()}"


@asynccontextmanager
async def serving(config: Config, own_tools: Mapping[str, Tool] = NO_TOOLS) -> AsyncIterator[str]:
    """Serves, and yields the address; afterwards what is under way finishes. Raises ConfigError if a port is taken."""
    async with assembled(config, own_tools) as (app, runs):
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=STREAMS_END_SECONDS)
        await runner.setup()
        try:
            site = web.TCPSite(runner, config.server.host, config.server.port)
            await listen(site, config)
            runs.recover()
            yield address_of(runner, config)
            await site.stop()
            await runs.close(config.server.shutdown_grace_seconds)
        finally:
            await runner.cleanup()


def address_of(runner: web.AppRunner, config: Config) -> str:
    port = runner.addresses[0][1] if runner.addresses else config.server.port
    host = f"[{config.server.host}]" if ":" in config.server.host else config.server.host
    return f"http://{host}:{port}"


def main(config: Config) -> None:
    """Serve in this process; blocks. Raises ConfigError, or GatewayError for a store or port that cannot be had."""
    logs.set_up(config.log.level, config.log.format, secrets_of(config))
    if not is_loopback(config.server.host) and not config.server.keys:
        raise ConfigError(f"server.host is {config.server.host}, open to others: configure [[server.keys]] first.")
    run_loop(config)


async def listen(site: web.TCPSite, config: Config) -> None:
    try:
        await site.start()
    except OSError as error:
        where = f"{config.server.host}:{config.server.port}"
        raise ConfigError(f"cannot listen on {where}: {why_not(error)}.") from error


def why_not(error: OSError) -> str:
    """asyncio repeats the address in its words. Failures of name look-up have negative numbers and good words."""
    number = error.errno or 0
    if number == errno.EADDRINUSE:
        return "the address is in use; choose another with --port"
    return os.strerror(number) if number > 0 else str(error.strerror or error)


def run_loop(config: Config) -> None:
    if sys.platform == "win32":
        asyncio.run(serve(config, at_length=True))
        return
    import uvloop

    uvloop.run(serve(config, at_length=True))
