"""Plain functions, each in a thread of its own, at most so many at a time."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from gateway.core.errors import ToolFailed


class DaemonThreads:
    """Runs functions that block, without letting one that never returns hold up anything else.

    No ThreadPoolExecutor: the interpreter waits for its threads when it exits, also after `shutdown(wait=False)`, so a
    tool that ignores Stop would keep the gateway from exiting. A thread keeps its place until its function returns;
    whoever awaits it may leave earlier.
    """

    def __init__(self, threads_max: int, wait_seconds: float) -> None:
        self._threads_max = threads_max
        self._wait_seconds = wait_seconds
        self._free = asyncio.Semaphore(threads_max)

    async def run(self, function: Callable[[], Any]) -> Any:
        """The function's result, or what it raised. Raises ToolFailed if no thread comes free in time."""
        await self._take_place()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        thread = threading.Thread(target=self._work, args=(context, function, loop, done), name="tool", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._free.release()
            raise ToolFailed("the gateway cannot start another thread for this tool: try again later.") from error
        result, raised = await done
        if raised is not None:
            raise raised
        return result

    async def _take_place(self) -> None:
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise ToolFailed(f"all {self._threads_max} threads for tools are busy: try again later.") from None

    def _work(
        self,
        context: contextvars.Context,
        function: Callable[[], Any],
        loop: asyncio.AbstractEventLoop,
        done: asyncio.Future[Any],
    ) -> None:
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = context.run(function), None
        except BaseException as error:  # noqa: BLE001  whatever it is, it belongs to the caller
            outcome = None, error
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the caller with it
            loop.call_soon_threadsafe(self._report, done, outcome)

    def _report(self, done: asyncio.Future[Any], outcome: tuple[Any, BaseException | None]) -> None:
        self._free.release()
        if not done.done():
            done.set_result(outcome)
