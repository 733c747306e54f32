"""Drives one run: decide, perform, record, apply, until it stops. The only writer of a run that is running."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from datetime import datetime

from gateway.core import commands
from gateway.core.events import Event
from gateway.core.loop import Action, decide
from gateway.core.run import Approval, Cancelled, Deadline, InDoubt, Run, Status
from gateway.core.stopping import Stop, driven_seconds
from gateway.service.perform import perform
from gateway.service.ports import Ports, Suspended
from gateway.service.recorder import Recorder
from gateway.service.waiting import done

log = logging.getLogger(__name__)


class NotBegun(Exception):
    """The first record of a run could not be written, so that there is no run. Never leaves this module."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why


class Left(Exception):
    """A step is left where it is: Stop was pressed while it recorded an event. Never leaves this module."""


class Driver:
    """One run under way. What is noted already, a first event, is written together with what follows it at once."""

    def __init__(self, recorder: Recorder, ports: Ports) -> None:
        self._recorder = recorder
        self._ports = ports
        self._stop: Stop | None = None
        self._draining = False
        self._interruptible = False
        self.task = asyncio.create_task(self._drive(), name=f"run {recorder.run.id}")
        self.beginning: asyncio.Future[Run] = self.task.get_loop().create_future()
        """The run as it began, once that is written, or what the log raised: then there is neither run nor driver."""
        if not recorder.is_behind:
            self.beginning.set_result(recorder.run)

    @property
    def has_begun(self) -> bool:
        """Whether there is anything of the run in the record."""
        beginning = self.beginning
        return beginning.done() and not beginning.cancelled() and beginning.exception() is None

    async def begins(self) -> bool:
        """The same, as soon as it is known."""
        await done(self.beginning, None)
        return self.has_begun

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
            await self._to_its_stop()
        except NotBegun as refusal:
            self.beginning.set_exception(refusal.why)
            self.beginning.exception()  # whoever waited for it may have gone, and then it need not be logged
        finally:
            self.beginning.cancel()  # unless it is known already
            if timer is not None:
                timer.cancel()

    async def _to_its_stop(self) -> None:
        """A bug of ours or of a plug-in must not leave a run that says it is running for ever."""
        try:
            while (run := self._recorder.ahead).status is Status.RUNNING and not self._draining and self._stop is None:
                now = self._ports.clock()
                await self._perform(decide(run, self._ports.rules, now), now)
            if self._stop is not None:
                await self._end(self._stop)
            await self._write()
        except NotBegun:
            raise
        except Exception as fault:
            log.exception("run %s: a fault of the gateway", self.run.id)
            await self._end(Stop(Status.FAILED, error=f"a fault of the gateway: {type(fault).__name__}: {fault}"))

    async def _perform(self, action: Action, now: datetime) -> None:
        """Only the waits between two records may be interrupted, so that what was recorded is always applied."""
        self._interruptible = True
        try:
            await perform(action, self._recorder.ahead, now, self._ports, self._record_in_step)
        except Suspended as suspended:
            await self._suspend(suspended)
        except Left:
            pass
        except asyncio.CancelledError:
            if self._stop is None or not self._interruptible:
                raise  # the gateway is closing, perhaps in the middle of a record
            self.task.uncancel()
        finally:
            self._interruptible = False

    async def _record_in_step(self, event: Event) -> None:
        self._interruptible = False
        if self._recorder.note(event):
            await self._write()
        if self._stop is not None:
            raise Left
        self._interruptible = True

    async def _suspend(self, suspended: Suspended) -> None:
        """Stop for what a subagent waits for; one that was only interrupted by a shutdown is taken up again."""
        self._interruptible = False
        if suspended.inner:
            await self._end(Stop(Status.INTERRUPTED, suspended.inner[0]), inner=suspended.inner)
        else:
            self._draining = True

    def _write(self) -> Awaitable[None]:
        """A store that is down holds a run up; one that has not begun is refused instead."""
        return self._recorder.write_when_possible() if self.beginning.done() else self._write_beginning()

    async def _write_beginning(self) -> None:
        beginning = self.run
        try:
            await self._recorder.write()
        except Exception as why:
            raise NotBegun(why) from why
        self.beginning.set_result(beginning)

    async def _end(self, why: Stop, inner: tuple[Approval | InDoubt, ...] = ()) -> None:
        """Stop the run for what did not come out of its own loop, unless it has stopped already."""
        if self._is_running():
            self._recorder.note(commands.stop(self._recorder.ahead, why, self._ports.clock(), inner=inner))
            await self._write()

    def _is_running(self) -> bool:
        return self._recorder.ahead.status is Status.RUNNING

    def _arm_deadline(self) -> asyncio.TimerHandle | None:
        limit = self.run.limits.deadline_seconds
        if limit is None:
            return None
        left = max(0.0, limit - driven_seconds(self.run, self._ports.clock()))
        stop = Stop(Status.INTERRUPTED, Deadline(limit))
        return asyncio.get_running_loop().call_later(left, self._interrupt, stop)
