from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.acceptance.world import World, a_world


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Made once: it takes longer to start than most runs take."""
    async with a_world(tmp_path_factory.mktemp("world")) as world:
        yield world
