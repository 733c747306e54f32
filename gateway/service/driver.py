"""Drives one run: decide, perform, record, apply, until it stops. The only writer of a run that is running."""

from __future__ import annotations

import asyncio
import logging

from gateway.core import commands
from gateway.core.errors import Unavailable
from gateway.core.events import Event
from gateway.core.loop import Action, decide
from gateway.core.run import Approval, Cancelled, Deadline, InDoubt, Run, Status
from gateway.core.stopping import Stop, driven_seconds
from gateway.service.perform import perform
from gateway.service.ports import Ports, Suspended
from gateway.service.recorder import Recorder, leads_on

log = logging.getLogger(__name__)


class NotBegun(Exception):
    """The first record of a run could not be written, so that there is no run. Never leaves this module."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why


class Driver:
    """One run under way. What is noted already, a first event, is written together with what follows it at once."""

    def __init__(self, recorder: Recorder, ports: Ports) -> None:
        self._recorder = recorder
        self._ports = ports
        self._stop: Stop | None = None
        self._draining = False
        self._interruptible = False
        self._begun: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        if not recorder.is_behind:
            self._begun.set_result(recorder.run)
        self.task = asyncio.create_task(self._drive(), name=f"run {recorder.run.id}")

    async def begun(self) -> Run:
        """The run as it began, once that is written; the driver goes on whether or not anybody waits for it. Raises
        what the log raised, and then there is neither a run nor a driver."""
        return await asyncio.shield(self._begun)

    @property
    def has_begun(self) -> bool:
        """Whether there is anything of the run in the record."""
        return self._begun.done()

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
            await self._write()
        except NotBegun as refusal:
            self._begun.set_exception(refusal.why)
        except Exception as fault:
            log.exception("run %s: a fault of the gateway", self.run.id)
            await self._fail(fault)
        finally:
            if not self._begun.done():
                self._begun.set_exception(Unavailable("the gateway is shutting down: try again in a moment."))
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
            await self._write()

    async def _write(self) -> None:
        """A store that is down holds a run up; one that has not begun is refused instead."""
        if self._begun.done():
            await self._recorder.write_when_possible()
            return
        beginning = self.run
        try:
            await self._recorder.write()
        except Exception as why:
            raise NotBegun(why) from why
        self._begun.set_result(beginning)

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
