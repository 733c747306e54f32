"""Asks every prompt of a model that is served here, over HTTP, and measures its speed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
from msgspec import Struct

from model_server import bench, loading
from model_server.accuracy.cases import SYSTEM, TOOLS, Case
from model_server.accuracy.scoring import Made, Score, score
from model_server.app import create_app, serving
from model_server.hosting import card_of
from model_server.loading import Settings
from model_server.metrics import Metrics
from model_server.models import Chosen
from model_server.service import Service

REPLY_TOKENS_MAX = 128
AT_ONCE = 4
PROMPT_TOKENS, REPLY_TOKENS = 330, 64  # as of the figures of llama-bench that these are compared with
SPEED_REPEATS = 3


class Reply(Struct, frozen=True):
    case: Case
    made: list[Made]
    content: str
    score: Score


class Outcome(Struct, frozen=True):
    replies: list[Reply]
    speed: bench.Speed


async def outcome(chosen: Chosen, settings: Settings, cases: Sequence[Case]) -> Outcome:
    async with _served(chosen, settings) as (service, address):
        (speed,) = await bench.measure(service, [0], PROMPT_TOKENS, REPLY_TOKENS, SPEED_REPEATS)
        asking = asyncio.Semaphore(AT_ONCE)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
            replies = await asyncio.gather(*(_ask(session, address, case, asking) for case in cases))
        return Outcome(replies, speed)


@asynccontextmanager
async def _served(chosen: Chosen, settings: Settings) -> AsyncIterator[tuple[Service, str]]:
    """Raises LoadFailed."""
    metrics = Metrics(chosen.header.cell_bytes, settings.limits.cells)
    service = Service(partial(loading.load, chosen, settings), settings.limits, metrics.observe)
    async with serving(create_app(service, card_of(chosen, settings.limits), metrics)) as address:
        await service.settled.wait()
        if service.failure:
            raise service.failure
        yield service, address


async def _ask(session: aiohttp.ClientSession, address: str, case: Case, asking: asyncio.Semaphore) -> Reply:
    async with asking, session.post(f"{address}/v1/chat/completions", json=request(case)) as response:
        response.raise_for_status()
        message = (await response.json())["choices"][0]["message"]
    functions = [call["function"] for call in message.get("tool_calls", ())]
    made = [Made(function["name"], function["arguments"]) for function in functions]
    return Reply(case, made, message["content"] or "", score(case, made))


def request(case: Case) -> dict[str, Any]:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": case.prompt}]
    choice: Any = case.choice
    if choice not in ("auto", "required"):
        choice = {"type": "function", "function": {"name": choice}}
    body = {"messages": messages, "tools": TOOLS, "tool_choice": choice, "max_tokens": REPLY_TOKENS_MAX}
    return {**body, "temperature": 0}
