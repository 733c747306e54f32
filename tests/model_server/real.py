"""Real weights, fetched once per machine through the product's own code. If they cannot be had, the tests fail."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path

from model_server import fetch as fetching
from model_server import loading, models
from model_server.app import create_app, serving
from model_server.hosting import card_of
from model_server.loading import Settings
from model_server.metrics import Metrics
from model_server.models import Chosen
from model_server.registry import REGISTRY
from model_server.scheduler import Limits
from model_server.service import Service
from tests.model_server.conftest import Client

LIMITS = Limits(cells=4096, sequences=4, kept=12, queue=4, batch_tokens=128, batch_tokens_beside_replies=64)


def fetched(name: str) -> Path:
    return fetching.fetch(REGISTRY[name], models.cache_folder())


def chosen(name: str) -> Chosen:
    fetched(name)
    return models.choose(name, models.cache_folder())


@cache
def repack(path: Path) -> bool:
    return loading.matrix_unit_works(path)


def settings(model: Chosen, limits: Limits = LIMITS) -> Settings:
    """One thread: what runs tests runs other things too, and llama.cpp's threads wait for each other."""
    return Settings(limits=limits, threads=1, matrix_unit=repack(model.path))


@asynccontextmanager
async def hosted(model: Chosen, limits: Limits = LIMITS) -> AsyncIterator[Client]:
    metrics = Metrics(model.header.cell_bytes, limits.cells)
    service = Service(partial(loading.load, model, settings(model, limits)), limits, metrics.observe)
    async with serving(create_app(service, card_of(model, limits), metrics)) as address:
        await service.settled.wait()
        if service.failure:
            raise service.failure
        yield Client(address, service)
