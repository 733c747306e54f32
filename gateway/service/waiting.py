"""Waiting: for what is under way, and for a store or a place that is not there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from tenacity import AsyncRetrying, before_sleep_log, retry_if_exception_type, wait_exponential

from gateway.core.errors import Busy, Unavailable

log = logging.getLogger(__name__)


async def done(future: asyncio.Future[Any], seconds: float | None) -> None:
    """Wait until it is done, or the time is up. As `asyncio.wait` with one future, which was a seventieth of a run."""
    loop = future.get_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = None if seconds is None else loop.call_later(seconds, wake)
    future.add_done_callback(wake)
    try:
        await waiter
    finally:
        future.remove_done_callback(wake)
        if timer is not None:
            timer.cancel()


async def all_done(futures: Iterable[asyncio.Future[Any]], seconds: float) -> None:
    """The same of several."""
    pending = [future for future in futures if not future.done()]
    if pending:
        await asyncio.wait(pending, timeout=seconds)


def patiently() -> AsyncRetrying:
    """Tries again while the store is down or there is no room: a run waits its turn and is not left behind."""
    return AsyncRetrying(
        retry=retry_if_exception_type((Unavailable, Busy)),
        wait=wait_exponential(multiplier=0.05, max=1),
        before_sleep=before_sleep_log(log, logging.DEBUG),
    )
