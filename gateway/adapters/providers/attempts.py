"""How often a provider is asked, and how long is waited: the same for runs and for what is passed on."""

from __future__ import annotations

import random
from collections.abc import Sequence

from gateway.adapters.providers import failures
from gateway.adapters.providers.failures import Failed
from gateway.adapters.providers.settings import ProviderSettings


def wait_seconds(failed: Sequence[Failed], settings: ProviderSettings) -> float | None:
    """How long to wait before the next attempt; None if there is to be none. Chance keeps those that failed together
    from asking again together."""
    last = failed[-1]
    if len(failed) > settings.retries_max or not failures.worth_retrying(last, settings.retry_after_max_seconds):
        return None
    backoff_max = min(settings.backoff_max_seconds, settings.backoff_seconds * 2 ** (len(failed) - 1))
    return max(random.uniform(0, backoff_max), last.retry_after_seconds or 0.0)
