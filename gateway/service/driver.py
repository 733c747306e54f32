"""Drives one run: decide, perform, record, apply, until it stops. The only writer of a run that is running."""

from __future__ import annotations

import asyncio
import logging

from tenacity import AsyncRetrying, before_sleep_log, retry_if_exception_type, wait_exponential

from gateway.core import commands
from gateway.core.codec import encode
from gateway.core.errors import Unavailable
from gateway.core.events import Event, ToolProgress, ToolStart, TurnStart
from gateway.core.loop import Action, apply, decide
from gateway.core.ports import Key, Record, entry_of
from gateway.core.run import Cancelled, Deadline, Run, Status
from gateway.core.stopping import Stop, driven_seconds
from gateway.service.perform import perform
from gateway.service.ports import Ports, Suspended

log = logging.getLogger(__name__)

UNLISTED = (TurnStart, ToolStart, ToolProgress)
"""Events that change nothing a list shows, so that the index row need not be written again."""


async def record(run: Run, events: list[Event], ports: Ports, key: Key | None = None) -> Run:
    """Make the events durable, all or none, and return the run after them. Raises what the log raises."""
    steps: list[tuple[Run, Event, Record]] = []
    for event in events:
        run = apply(run, event)
        steps.append((run, event, Record(run.id, run.seq, encode(event))))
    entry = None if all(isinstance(event, UNLISTED) for event in events) else entry_of(run)
    await ports.log.append([step[2] for step in steps], entry, key)
    announce(steps, ports)
    return run


def announce(steps: list[tuple[Run, Event, Record]], ports: Ports) -> None:
    for observer in ports.observers:
        for step in steps:
            observer.recorded(*step)


class Driver:
    """One run under way. `run` is its state as far as it is recorded."""

    def __init__(self, run: Run, ports: Ports) -> None:
        self.run = run
        self._ports = ports
        self._stop: Stop | None = None
        self._draining = False
        self._interruptible = False
        self._task: asyncio.Task[None] | None = None
        self.task = asyncio.create_task(self._drive(), name=f"run {run.id}")

    def cancel(self, reason: str) -> None:
        """Stop now: whatever is waited for, a model's reply or a tool, is abandoned."""
        self._interrupt(Stop(Status.INTERRUPTED, Cancelled(reason)))

    def drain(self) -> None:
        """Finish the step under way, record it, and leave the run running for the next process."""
        self._draining = True

    def _interrupt(self, stop: Stop) -> None:
        if self._stop is None:
            self._stop = stop
            if self._interruptible:
                self.task.cancel()

    async def _drive(self) -> None:
        timer = self._arm_deadline()
        try:
            while self.run.status is Status.RUNNING and self._stop is None and not self._draining:
                await self._perform(decide(self.run, self._ports.rules, self._ports.clock()))
            if self._stop is not None and self.run.status is Status.RUNNING:
                await self._record(commands.stop(self.run, self._stop, self._ports.clock()))
        except Exception as fault:
            log.exception("run %s: a fault of the gateway", self.run.id)
            await self._fail(fault)
        finally:
            if timer is not None:
                timer.cancel()

    async def _perform(self, action: Action) -> None:
        """Only the waits between two records may be interrupted, so that what was recorded is always applied."""
        events = perform(action, self.run, self._ports)
        try:
            while True:
                self._interruptible = True
                event = await anext(events, None)
                self._interruptible = False
                if event is None:
                    return
                await self._record(event)
                if self._stop is not None:
                    return
        except Suspended as suspended:
            await self._suspend(suspended)
        except asyncio.CancelledError:
            if self._stop is None or not self._interruptible:
                raise  # the gateway is closing, perhaps in the middle of a record
            self.task.uncancel()
        finally:
            self._interruptible = False
            await events.aclose()

    async def _suspend(self, suspended: Suspended) -> None:
        """Stop for what a subagent waits for; one that was only interrupted by a shutdown is taken up again."""
        self._interruptible = False
        if suspended.inner:
            why = Stop(Status.INTERRUPTED, suspended.inner[0])
            await self._record(commands.stop(self.run, why, self._ports.clock(), inner=suspended.inner))
        else:
            self._draining = True

    async def _record(self, event: Event) -> None:
        """A store that is down holds the run up; it does not lose it."""
        try:
            self.run = await record(self.run, [event], self._ports)
        except Unavailable:
            await self._record_when_possible(event)

    async def _record_when_possible(self, event: Event) -> None:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(Unavailable),
            wait=wait_exponential(multiplier=0.1, max=5),
            before_sleep=before_sleep_log(log, logging.ERROR),
        )
        self.run = await retrying(record, self.run, [event], self._ports)

    def _arm_deadline(self) -> asyncio.TimerHandle | None:
        limit = self.run.limits.deadline_seconds
        if limit is None:
            return None
        left = max(0.0, limit - driven_seconds(self.run, self._ports.clock()))
        stop = Stop(Status.INTERRUPTED, Deadline(limit))
        return asyncio.get_running_loop().call_later(left, self._interrupt, stop)

    async def _fail(self, fault: Exception) -> None:
        """A bug of ours or of a plug-in must not leave a run that says it is running for ever."""
        if self.run.status is Status.RUNNING:
            error = f"a fault of the gateway: {type(fault).__name__}: {fault}"
            await self._record(commands.stop(self.run, Stop(Status.FAILED, error=error), self._ports.clock()))
