"""How long is waited before a provider is asked again."""

from __future__ import annotations

import pytest

from gateway.adapters.providers import attempts
from gateway.adapters.providers.attempts import wait_seconds
from gateway.adapters.providers.failures import Failed
from gateway.adapters.providers.settings import ProviderSettings

SETTINGS = ProviderSettings(base_url="http://localhost/v1", retries_max=5, backoff_seconds=0.25, backoff_max_seconds=3)


@pytest.fixture(autouse=True)
def longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance has it that each wait is as long as it can be."""
    monkeypatch.setattr(attempts.random, "uniform", lambda least, most: most)


def test_waits_double_up_to_the_longest_and_then_there_are_no_more() -> None:
    waits = [wait_seconds([Failed("answered 503")] * count, SETTINGS) for count in range(1, 7)]

    assert waits == [0.25, 0.5, 1, 2, 3, None]


def test_a_provider_that_asks_for_a_longer_wait_gets_it_within_bounds() -> None:
    asked = [Failed("answered 429", retry_after_seconds=seconds) for seconds in (0.1, 7, 60, 61)]

    assert [wait_seconds([each], SETTINGS) for each in asked] == [0.25, 7, 60, None]


def test_what_asking_again_cannot_help_is_not_waited_for() -> None:
    assert wait_seconds([Failed("answered 401", retry=False)], SETTINGS) is None
