"""Fixtures that serve a whole gateway in this process, on a free port: see tests/serving.py.

Properties are never timed, and make their own of what a fixture gives. The default tries the same cases each time;
`HYPOTHESIS_PROFILE=deep` looks for others, and for longer.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import hypothesis
import pytest
from hypothesis import HealthCheck
from msgspec.structs import replace

from gateway.adapters.providers.settings import ProviderSettings
from gateway.adapters.tools.sample import write_workspace
from gateway.adapters.tools.tool import Tool
from gateway.app import serving
from gateway.config import SAMPLE_SYSTEM, AgentConfig, Config, ServerConfig, StoreConfig
from gateway.core.run import Policies
from scripted.app import create_app as create_scripted
from scripted.app import serving as serving_scripted
from tests.serving import PRICES, SECONDS_MAX, TEST_SCRIPTS, Gateway, Serve, with_tools

hypothesis.settings.register_profile(
    "quick",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
hypothesis.settings.register_profile(
    "deep", hypothesis.settings.get_profile("quick"), derandomize=False, max_examples=1000, stateful_step_count=80
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture
async def provider() -> AsyncIterator[str]:
    """The address of a scripted provider, with the scripts of the tests besides its own."""
    async with serving_scripted(create_scripted(scripts=TEST_SCRIPTS)) as address:
        yield f"{address}/v1"


@pytest.fixture
def settings(provider: str) -> ProviderSettings:
    """A provider that is asked again at once."""
    return ProviderSettings(
        name="scripted",
        base_url=provider,
        retries_max=2,
        backoff_seconds=0.001,
        backoff_max_seconds=0.002,
        read_timeout_seconds=SECONDS_MAX,
    )


@pytest.fixture
def config(tmp_path: Path, settings: ProviderSettings) -> Config:
    """One agent over a fresh workspace, with the policies of the published figures, and a fresh store."""
    agent = AgentConfig(
        model="plan",
        system=SAMPLE_SYSTEM,
        workspace=str(tmp_path / "workspace"),
        policies=Policies(dedupe="off"),
    )
    return Config(
        server=ServerConfig(port=0, shutdown_grace_seconds=5),
        store=StoreConfig(path=str(tmp_path / "runs.db")),
        provider=settings,
        agents={"files": agent},
        prices=PRICES,
    )


@pytest.fixture
def serve(config: Config) -> Serve:
    """Serves the configuration with these changes. Served again, it is a new process on the same store."""

    @asynccontextmanager
    async def serve(
        *,
        tools: Mapping[str, Tool] | None = None,
        headers: Mapping[str, str] | None = None,
        server: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        agent: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> AsyncIterator[Gateway]:
        changed = with_tools(replace(config, **changes), tools or {})
        files = replace(changed.agents["files"], **(agent or {}))
        changed = replace(changed, agents={**changed.agents, "files": files})
        changed = replace(changed, server=replace(changed.server, **(server or {})))
        if settings and changed.provider:
            changed = replace(changed, provider=replace(changed.provider, **settings))
        folder = Path(changed.agents["files"].workspace or "")
        if not folder.exists():
            write_workspace(folder)
        timeout = aiohttp.ClientTimeout(total=2 * SECONDS_MAX)
        async with (
            serving(changed, tools or {}) as url,
            aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
        ):
            yield Gateway(url, session, changed)

    return serve


@pytest.fixture
async def gateway(serve: Serve) -> AsyncIterator[Gateway]:
    async with serve() as gateway:
        yield gateway
