"""The table of routes: the router and /openapi.json are made from the same rows. A new route is one row."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Struct

from gateway.core.run import MAX_TURNS_MAX, Status
from gateway.core.statistics import Report
from gateway.edge.console_routes import ConsoleRoutes
from gateway.edge.openai import joining, loops
from gateway.edge.openai.chat import ChatRoutes
from gateway.edge.openai.responses.routes import ResponsesRoutes
from gateway.edge.openai.responses.wire import Response, ResponsesRequest
from gateway.edge.openai.wire import ChatRequest, Completion, Model, ModelList
from gateway.edge.run_routes import PAGE_RUNS_MAX, TEXT_CHARS_MAX, WAIT_SECONDS_MAX, RunRoutes
from gateway.edge.stats_routes import DAYS, DAYS_MAX, StatsRoutes
from gateway.edge.system_routes import SystemRoutes
from gateway.edge.wire import AgentList, Cancel, GiveVerdict, PostOutputs, Resume, RunBody, RunPage, StartRun


class Param(Struct, frozen=True):
    """A query parameter or header, with its JSON Schema."""

    name: str
    about: str
    schema: dict[str, Any]
    where: str = "query"


def header(name: str, about: str, **schema: Any) -> Param:
    return Param(name, about, schema, "header")


class Route(Struct, frozen=True, kw_only=True):
    """`answers` are the successful statuses and their bodies, a type or media types; `errors` the others that a client
    may see. `passes_errors`: those of the provider come through as they are, whatever they are."""

    method: str
    path: str
    handler: Handler
    about: str
    body: type | None = None
    body_required: bool = True
    answers: dict[int, Any]
    errors: tuple[int, ...] = ()
    passes_errors: bool = False
    params: tuple[Param, ...] = ()


WAIT = Param(
    "wait",
    "Seconds to wait for the run to stop; 202 if it has not.",
    {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX},
)
KEY = header("Idempotency-Key", "The same key and body are carried out once.", type="string")
AFTER = Param(
    "after", "The seq of the last event seen; Last-Event-ID says the same.", {"type": "integer", "minimum": 0}
)
FOLLOW = Param("follow", "1 goes on through resumes.", {"type": "string", "enum": ["0", "1", "true", "false"]})
STATUS = Param("status", "Only runs with this status.", {"type": "string", "enum": list(Status)})
AGENT = Param("agent", "Only runs of this agent.", {"type": "string"})
TEXT = Param(
    "text",
    "Only runs in whose id, agent, model, status, reason, parent or task each of these words occurs. A page may hold "
    "fewer than the limit: `next_cursor` goes on looking.",
    {"type": "string", "maxLength": TEXT_CHARS_MAX},
)
CURSOR = Param("cursor", "`next_cursor` of the page before.", {"type": "string"})
LIMIT = Param("limit", "Runs a page.", {"type": "integer", "minimum": 1, "maximum": PAGE_RUNS_MAX})

CONVERSATION = header(
    joining.CONVERSATION,
    "Makes one run of all requests under this name: caps, budget, trace and stop reason for the client's own loop.",
    type="string",
    minLength=1,
    maxLength=joining.NAME_LENGTH_MAX,
)
RUN_ID = header(joining.RUN_ID, "Join this run, and be answered when it has stopped again.", type="string")
MAX_TURNS = header(
    joining.MAX_TURNS,
    "The turn cap of the run that the request begins, or of the conversation that it goes on with.",
    type="integer",
    minimum=1,
    maximum=MAX_TURNS_MAX,
)
MAX_BUDGET = header(
    joining.MAX_BUDGET,
    "The budget in US dollars of the run that the request begins, or of the conversation that it goes on with.",
    type="number",
    exclusiveMinimum=0,
)
CANCEL = header(joining.CANCEL, "1 or true cancels the run if the client hangs up before the answer.", type="string")
PROGRESS = header(
    loops.PROGRESS, "1 or true puts chunks into a stream that tell of tools while they run.", type="string"
)
OF_A_RUN = (KEY, CONVERSATION, RUN_ID, MAX_TURNS, MAX_BUDGET, CANCEL)

COMMAND_ERRORS = (400, 404, 409, 413, 503)


def command(path: str, handler: Handler, about: str, body: type, *, body_required: bool = True) -> Route:
    """A call that changes a run: they share their answers and errors."""
    return Route(
        method="POST",
        path=f"/v1/runs/{{run_id}}/{path}",
        handler=handler,
        about=about,
        body=body,
        body_required=body_required,
        answers={200: RunBody, 202: RunBody},
        errors=COMMAND_ERRORS,
        params=(WAIT,),
    )


def run_routes(runs: RunRoutes) -> list[Route]:
    return [
        Route(
            method="POST",
            path="/v1/runs",
            handler=runs.start,
            about="Start a run: 201 at once; with `wait`, when it has stopped; with Accept: text/event-stream, live.",
            body=StartRun,
            answers={200: ("text/event-stream",), 201: RunBody, 202: RunBody},
            errors=(400, 409, 413, 422, 429, 503),
            params=(WAIT, KEY),
        ),
        Route(
            method="GET",
            path="/v1/runs",
            handler=runs.page,
            about="List runs, newest first.",
            answers={200: RunPage},
            errors=(400, 503),
            params=(STATUS, AGENT, TEXT, CURSOR, LIMIT),
        ),
        Route(
            method="GET",
            path="/v1/runs/{run_id}",
            handler=runs.get,
            about="One whole run.",
            answers={200: RunBody},
            errors=(400, 404, 503),
            params=(WAIT,),
        ),
        Route(
            method="GET",
            path="/v1/runs/{run_id}/events",
            handler=runs.events,
            about="The trace, until the run stops: JSON lines, or events with Accept: text/event-stream.",
            answers={200: ("application/x-ndjson", "text/event-stream"), 204: None},
            errors=(400, 404, 429, 503),
            params=(AFTER, FOLLOW),
        ),
        command("approve", runs.approve, "Approve a call that waits, or run one in doubt again.", GiveVerdict),
        command("reject", runs.reject, "Reject a call that waits, or skip one in doubt.", GiveVerdict),
        command("resume", runs.resume, "Go on, with raised limits if a cap stopped it.", Resume, body_required=False),
        command("cancel", runs.cancel, "Stop a run that is driven or waits.", Cancel, body_required=False),
        command("tool_outputs", runs.tool_outputs, "Post what came back from calls made elsewhere.", PostOutputs),
    ]


def stats_routes(stats: StatsRoutes) -> list[Route]:
    days = {"type": "integer", "minimum": 1, "maximum": DAYS_MAX, "default": DAYS}
    return [
        Route(
            method="GET",
            path="/v1/stats",
            handler=stats.stats,
            about="Figures over many runs: cost, turns and ways out by day, agent and model.",
            answers={200: Report},
            errors=(400, 503),
            params=(Param("days", "How many days, the last of which is today (UTC).", days),),
        )
    ]


def openai_routes(chat: ChatRoutes, responses: ResponsesRoutes) -> list[Route]:
    return [
        Route(
            method="POST",
            path="/v1/chat/completions",
            handler=chat.chat,
            about="OpenAI's chat completions: an agent's name as the model runs it; other models pass through.",
            body=ChatRequest,
            answers={200: Completion},
            errors=(400, 404, 409, 413, 422, 429, 502, 503),
            passes_errors=True,
            params=(*OF_A_RUN, PROGRESS),
        ),
        Route(
            method="POST",
            path="/v1/responses",
            handler=responses.create,
            about="OpenAI's responses: of an agent, or of a model in a conversation that is known by its responses.",
            body=ResponsesRequest,
            answers={200: Response},
            errors=(400, 404, 409, 413, 422, 429, 502, 503),
            params=OF_A_RUN,
        ),
        Route(
            method="GET",
            path="/v1/models",
            handler=chat.models,
            about="The agents, and the provider's models.",
            answers={200: ModelList},
            errors=(503,),
        ),
        Route(
            method="GET",
            path="/v1/models/{model}",
            handler=chat.model,
            about="One agent or model.",
            answers={200: Model},
            errors=(404, 503),
        ),
    ]


def console_routes(console: ConsoleRoutes) -> list[Route]:
    script = ("text/javascript", "text/css", "image/svg+xml")
    return [
        Route(
            method="GET",
            path="/v1/runs/changes",
            handler=console.changes,
            about="Which runs have changed, live: a hint to read the list again.",
            answers={200: ("text/event-stream",)},
            errors=(400, 429),
        ),
        Route(
            method="GET",
            path="/v1/agents",
            handler=console.agents,
            about="The configured agents with their limits and policies.",
            answers={200: AgentList},
            errors=(400,),
        ),
        Route(
            method="GET",
            path="/",
            handler=console.index,
            about="The console.",
            answers={200: ("text/html",)},
        ),
        Route(
            method="GET",
            path="/console/{file}",
            handler=console.file,
            about="A file of the console.",
            answers={200: script, 304: None},
            errors=(404,),
        ),
        Route(
            method="GET",
            path="/console/modules/{file}",
            handler=console.module,
            about="A script of the console.",
            answers={200: script, 304: None},
            errors=(404,),
        ),
    ]


def system_routes(system: SystemRoutes, openapi: Handler) -> list[Route]:
    return [
        Route(
            method="GET",
            path="/metrics",
            handler=system.metrics,
            about="Prometheus metrics.",
            answers={200: ("text/plain",)},
        ),
        Route(
            method="GET",
            path="/healthz",
            handler=system.healthz,
            about="Whether the process lives.",
            answers={200: ("application/json",)},
        ),
        Route(
            method="GET",
            path="/readyz",
            handler=system.readyz,
            about="Whether it can take runs: store and provider answer.",
            answers={200: ("application/json",)},
            errors=(503,),
        ),
        Route(
            method="GET",
            path="/openapi.json",
            handler=openapi,
            about="This description.",
            answers={200: ("application/json",)},
        ),
    ]


def register(app: web.Application, routes: list[Route]) -> None:
    for route in routes:
        app.router.add_route(route.method, route.path, route.handler)
