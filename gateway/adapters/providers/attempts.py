"""How often a provider is asked, and how long is waited: the same for runs and for what is passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import tenacity
from aiohttp import ClientTimeout

from gateway.adapters.providers.failures import Failed
from gateway.adapters.providers.settings import ProviderSettings


def timeout_of(settings: ProviderSettings) -> ClientTimeout:
    return ClientTimeout(
        total=settings.total_timeout_seconds,
        sock_connect=settings.connect_timeout_seconds,
        sock_read=settings.read_timeout_seconds,
    )


def attempts(settings: ProviderSettings, worth_again: Callable[[BaseException], bool]) -> tenacity.AsyncRetrying:
    """A new one each time: tenacity keeps the state of an iteration in the object."""
    backoff = tenacity.wait_random_exponential(settings.backoff_seconds, settings.backoff_max_seconds)
    return tenacity.AsyncRetrying(
        sleep=asyncio.sleep,
        stop=tenacity.stop_after_attempt(settings.retries_max + 1),
        wait=lambda state: max(backoff(state), _asked_to_wait(state)),
        retry=tenacity.retry_if_exception(worth_again),
        reraise=True,
    )


def _asked_to_wait(state: tenacity.RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome else None
    return (failure.retry_after_seconds or 0.0) if isinstance(failure, Failed) else 0.0
