"""Waiting for one future, within a time."""

from __future__ import annotations

import asyncio

import pytest

from gateway.service.waiting import done

A_MOMENT = 0.02
LONG = 60.0


@pytest.fixture
async def future() -> asyncio.Future[str]:
    return asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("seconds", [None, LONG])
async def test_whoever_waits_goes_on_when_it_is_done(future: asyncio.Future[str], seconds: float | None) -> None:
    waiting = asyncio.create_task(done(future, seconds))
    await asyncio.sleep(0)
    assert not waiting.done()

    future.set_result("there")

    await asyncio.wait_for(waiting, 1)


@pytest.mark.parametrize("seconds", [None, 0, LONG])
async def test_what_is_done_already_is_not_waited_for(future: asyncio.Future[str], seconds: float | None) -> None:
    future.set_exception(ValueError("it is for whoever asks for the result"))

    await asyncio.wait_for(done(future, seconds), 1)

    assert isinstance(future.exception(), ValueError)


@pytest.mark.parametrize("seconds", [0, A_MOMENT])
async def test_the_time_may_be_up_before_that(future: asyncio.Future[str], seconds: float) -> None:
    await asyncio.wait_for(done(future, seconds), 1)

    assert not future.done()
    future.set_result("later")  # which wakes nobody
    await asyncio.sleep(0)


async def test_it_may_be_done_when_the_time_is_up_too(future: asyncio.Future[str]) -> None:
    waiting = asyncio.create_task(done(future, 0))
    await asyncio.sleep(0)

    future.set_result("just then")

    await asyncio.wait_for(waiting, 1)


async def test_one_that_is_cancelled_is_done(future: asyncio.Future[str]) -> None:
    waiting = asyncio.create_task(done(future, LONG))
    await asyncio.sleep(0)

    future.cancel()

    await asyncio.wait_for(waiting, 1)


async def test_who_no_longer_waits_leaves_what_is_waited_for_alone(future: asyncio.Future[str]) -> None:
    waiting = asyncio.create_task(done(future, LONG))
    await asyncio.sleep(0)

    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not future.done()
    assert not future.cancelled()
    future.set_result("for others")
