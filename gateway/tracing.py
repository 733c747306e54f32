"""Traces, where they are configured and the extra `otel` is installed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.adapters.trace.settings import OtelSettings
from gateway.config import ConfigError
from gateway.core.ports import Clock

if TYPE_CHECKING:
    from gateway.adapters.trace.otel import Traces


@asynccontextmanager
async def tracing(settings: OtelSettings, version: str, clock: Clock) -> AsyncIterator[Traces | None]:
    """None where traces are off. Raises ConfigError where they are on and cannot be."""
    if settings.endpoint is None:
        yield None
        return
    try:
        from gateway.adapters.trace.otel import sending
    except ImportError as error:
        raise ConfigError(
            f"otel.endpoint is set, and OpenTelemetry is not installed: pip install -e '.[otel]' ({error})."
        ) from error
    async with sending(settings, version, clock) as traces:
        yield traces
