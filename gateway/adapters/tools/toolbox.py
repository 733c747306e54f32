"""Tools that are Python functions of this process. Whatever goes wrong in one becomes words for the model; what is
wrong with the gateway itself is not caught here."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Mapping
from typing import Any

from gateway.adapters.tools.threads import DaemonThreads
from gateway.adapters.tools.tool import Function, Tool
from gateway.core.codec import encode
from gateway.core.errors import ToolFailed
from gateway.core.ports import ToolContext
from gateway.core.run import Run, ToolSpec

log = logging.getLogger(__name__)

THREADS_MAX = 32
THREAD_WAIT_SECONDS = 30.0
RESULT_BYTES_MAX = 256 * 1024


class LocalToolbox:
    """The tools of each agent, by the agent's name and then by the tool's.

    Coroutine functions are awaited, plain ones run in a thread. Needs no closing: a thread whose tool ignores Stop
    does not keep the process alive.
    """

    def __init__(
        self,
        tools: Mapping[str, Mapping[str, Tool]],
        *,
        threads_max: int = THREADS_MAX,
        thread_wait_seconds: float = THREAD_WAIT_SECONDS,
        result_bytes_max: int = RESULT_BYTES_MAX,
    ) -> None:
        self._tools = tools
        self._threads = DaemonThreads(threads_max, thread_wait_seconds)
        self._result_bytes_max = result_bytes_max

    async def use(self, run: Run, spec: ToolSpec, args: dict[str, Any], ctx: ToolContext) -> str:
        """As the port says. A run is pinned to its tools' descriptions and flags, not to their code: it may be gone."""
        tool = self._tools.get(run.agent, {}).get(spec.name)
        if tool is None:
            raise ToolFailed(f"the tool {spec.name} is no longer configured.", permanent=True)
        watched = Watched(ctx)
        try:
            quick = tool.spec.quick
            answer = tool.run(args, watched) if quick else await self._in_time(spec, tool.run, args, watched)
            text = answer if isinstance(answer, str) else encode(answer).decode()
        except ToolFailed as failed:
            raise self._bounded(failed)  # noqa: B904  as a rule the same one
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            raise self._bounded(as_tool_failed(spec.name, error)) from error
        finally:
            watched.leave()
        return bounded(text, self._result_bytes_max)

    def _bounded(self, failed: ToolFailed) -> ToolFailed:
        """Words as bounded as a tool's results."""
        words = bounded(str(failed), self._result_bytes_max)
        return failed if words == str(failed) else ToolFailed(words, permanent=failed.permanent)

    async def _in_time(self, spec: ToolSpec, function: Function, args: dict[str, Any], ctx: ToolContext) -> Any:
        limit = asyncio.timeout(spec.timeout_seconds)
        try:
            async with limit:
                return await self._call(function, args, ctx)
        except TimeoutError:
            if limit.expired():
                raise ToolFailed(f"{spec.name} took longer than {spec.timeout_seconds:g} s.") from None
            raise

    async def _call(self, function: Function, args: dict[str, Any], ctx: ToolContext) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(args, ctx)
        answer = await self._threads.run(functools.partial(function, args, ctx))
        return await answer if inspect.isawaitable(answer) else answer


class Watched:
    """A call's context that also says `cancelled` once nobody waits for the call any more, as after a timeout."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._left = False

    @property
    def idempotency_key(self) -> str:
        return self._ctx.idempotency_key

    @property
    def cancelled(self) -> bool:
        return self._left or self._ctx.cancelled

    def progress(self, label: str) -> None:
        if not self.cancelled:
            self._ctx.progress(label)

    def leave(self) -> None:
        self._left = True


def as_tool_failed(name: str, error: BaseException) -> ToolFailed:
    """Whatever a tool raised, in words. Our caller's own cancellation is raised again."""
    match error:
        case asyncio.CancelledError():
            if (task := asyncio.current_task()) and task.cancelling():
                raise error
            return ToolFailed(f"{name} was cancelled from within.")
        case PermissionError():
            return ToolFailed(f"permission denied: {error.filename or error}", permanent=True)
        case _:
            log.error("tool %s failed", name, exc_info=error)
            return ToolFailed(f"{type(error).__name__}: {error}")


def bounded(text: str, bytes_max: int) -> str:
    """The text as valid UTF-8 of at most so many bytes, saying how much is missing."""
    if len(text) <= bytes_max and text.isascii():  # nearly always
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return data.decode()
    kept = data[:bytes_max].decode("utf-8", "ignore")
    return f"{kept}… [cut: {len(data) - len(kept.encode())} bytes more]"
