"""What /openapi.json promises holds: schemathesis makes requests from it, good ones and bad ones, and compares every
answer with what is described."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from gateway.app import serving
from gateway.config import Config, load
from tests.serving import QUESTION, SECONDS_MAX

EXAMPLES = 60
ALL = list(HealthCheck)
RUN = "/v1/runs/{run_id}"
WITH_INPUT = [
    *("POST /v1/chat/completions", "POST /v1/responses"),
    *("POST /v1/runs", "GET /v1/runs", "GET /v1/stats", f"GET {RUN}", f"GET {RUN}/events"),
    *(f"POST {RUN}/{command}" for command in ("approve", "reject", "resume", "cancel", "tool_outputs")),
]
WITHOUT_INPUT = [
    *("GET /metrics", "GET /healthz", "GET /readyz", "GET /openapi.json", "GET /v1/models", "GET /v1/models/{model}"),
    *("GET /", "GET /console/{file}", "GET /console/modules/{file}", "GET /v1/agents"),
]
ENDLESS = ["GET /v1/runs/changes"]  # see test_console.py
TRIED = [
    *((each, GenerationMode.POSITIVE) for each in (*WITH_INPUT, *WITHOUT_INPUT)),
    *((each, GenerationMode.NEGATIVE) for each in WITH_INPUT),
]
BEFORE_THE_PROVIDER = ("/v1/chat/completions", "/v1/responses")
"""What fails behind these is the provider, and a 502 says so: here it has no model of a name that was made up."""


def what_is_wrong_is_refused(context: Any, response: Any, case: Any) -> Any:
    """What is too large is refused unread, so that nobody can say what else was wrong with it."""
    return None if response.status_code == 413 else negative_data_rejection(context, response, case)


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    what_is_wrong_is_refused,
]
STARTED: list[dict[str, Any]] = [
    {"input": QUESTION, "model": "plan"},
    {"input": QUESTION, "model": "destructive"},
    {"input": QUESTION, "model": "runaway", "limits": {"max_turns": 2}},
    {"input": QUESTION, "model": "no_such_script"},
]


class Served:
    """A gateway in a thread of its own, with runs in it that have stopped in different ways."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._down = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self.url = ""

    async def _serve(self) -> None:
        async with serving(self._config) as self.url:
            self._up.set()
            await self._down.wait()

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._up.wait(SECONDS_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._down.set)
        self._thread.join(SECONDS_MAX)
        self._loop.close()

    def run_ids(self) -> list[str]:
        sent = [requests.post(f"{self.url}/v1/runs?wait=10", json=order, timeout=SECONDS_MAX) for order in STARTED]
        return [response.json()["id"] for response in sent]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("gateway")
    config = load(env={})
    files = replace(config.agents["files"], workspace=str(folder / "workspace"))
    config = replace(
        config,
        server=replace(config.server, port=0),
        store=replace(config.store, path=str(folder / "runs.db")),
        agents={"files": files},
    )
    with Served(config) as served:
        schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
        known = served.run_ids()
        schema.hook("map_path_parameters")(some_known(known))
        schema.hook("map_query")(no_long_waits)
        yield schema


def some_known(run_ids: list[str]) -> Callable[[Any, Any], Any]:
    """Most of the ids that are made up become those of runs."""

    def map_path_parameters(context: Any, parameters: Any) -> Any:
        if parameters and "run_id" in parameters:
            place = sum(str(parameters["run_id"]).encode()) % (len(run_ids) + 1)
            if place < len(run_ids):
                return {**parameters, "run_id": run_ids[place]}
        return parameters

    return map_path_parameters


def no_long_waits(context: Any, query: Any) -> Any:
    """Nobody here resumes a run, so that to wait for it or to follow it would be to wait for ever."""
    if not query:
        return query
    wait = query.get("wait")
    short = {"wait": min(wait, 0.2)} if isinstance(wait, int | float) and not isinstance(wait, bool) else {}
    return {name: value for name, value in {**query, **short}.items() if name != "follow"}


def test_every_call_that_is_described_is_tried(api: Any) -> None:
    described = [f"{method.upper()} {path}" for path, methods in api.raw_schema["paths"].items() for method in methods]

    assert sorted(described) == sorted([*WITH_INPUT, *WITHOUT_INPUT, *ENDLESS])


@pytest.mark.parametrize(("operation", "mode"), TRIED)
def test_every_answer_is_as_it_is_described(api: Any, operation: str, mode: GenerationMode) -> None:
    method, path = operation.split()
    described = api[path][method]
    spared = (not_a_server_error,) if path in BEFORE_THE_PROVIDER else ()

    @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=ALL)
    @given(described.as_strategy(generation_mode=mode))
    def answers(case: Any) -> None:
        case.call_and_validate(checks=[check for check in CHECKS if check not in spared], timeout=SECONDS_MAX)

    answers()
