"""Drives one run: decide, perform, record, apply, until it stops. The only writer of a run that is running."""

from __future__ import annotations

import asyncio
import logging

from gateway.core import commands
from gateway.core.events import Event
from gateway.core.loop import Action, decide
from gateway.core.run import Approval, Cancelled, Deadline, InDoubt, Run, Status
from gateway.core.stopping import Stop, driven_seconds
from gateway.service.perform import perform
from gateway.service.ports import Ports, Suspended
from gateway.service.recorder import Recorder, leads_on

log = logging.getLogger(__name__)


class Driver:
    """One run under way."""

    def __init__(self, run: Run, ports: Ports) -> None:
        self._recorder = Recorder(run, ports)
        self._ports = ports
        self._stop: Stop | None = None
        self._draining = False
        self._interruptible = False
        self.task = asyncio.create_task(self._drive(), name=f"run {run.id}")

    @property
    def run(self) -> Run:
        """Its state as far as it is recorded."""
        return self._recorder.run

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
            while self._is_running() and self._stop is None and not self._draining:
                await self._perform(decide(self._recorder.ahead, self._ports.rules, self._ports.clock()))
            if self._stop is not None:
                await self._end(self._stop)
            await self._recorder.write_when_possible()
        except Exception as fault:
            log.exception("run %s: a fault of the gateway", self.run.id)
            await self._fail(fault)
        finally:
            if timer is not None:
                timer.cancel()

    async def _perform(self, action: Action) -> None:
        """Only the waits between two records may be interrupted, so that what was recorded is always applied."""
        events = perform(action, self._recorder.ahead, self._ports)
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
            await self._end(Stop(Status.INTERRUPTED, suspended.inner[0]), inner=suspended.inner)
        else:
            self._draining = True

    async def _record(self, event: Event) -> None:
        self._recorder.note(event)
        if not leads_on(event, self._recorder.ahead):
            await self._recorder.write_when_possible()

    async def _end(self, why: Stop, inner: tuple[Approval | InDoubt, ...] = ()) -> None:
        """Stop the run for what did not come out of its own loop, unless it has stopped already."""
        if self._is_running():
            await self._record(commands.stop(self._recorder.ahead, why, self._ports.clock(), inner=inner))

    def _is_running(self) -> bool:
        return self._recorder.ahead.status is Status.RUNNING

    def _arm_deadline(self) -> asyncio.TimerHandle | None:
        limit = self.run.limits.deadline_seconds
        if limit is None:
            return None
        left = max(0.0, limit - driven_seconds(self.run, self._ports.clock()))
        stop = Stop(Status.INTERRUPTED, Deadline(limit))
        return asyncio.get_running_loop().call_later(left, self._interrupt, stop)

    async def _fail(self, fault: Exception) -> None:
        """A bug of ours or of a plug-in must not leave a run that says it is running for ever."""
        await self._end(Stop(Status.FAILED, error=f"a fault of the gateway: {type(fault).__name__}: {fault}"))
