"""All that can be done with runs: start, look, judge, resume, cancel. One code path serves a waiting run, a capped one
and one whose process died: load, record the events of the command, drive on."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import datetime
from typing import Any
from weakref import WeakValueDictionary

from gateway.core import commands
from gateway.core.codec import decode_event
from gateway.core.commands import RaisedLimits, ToolOutput
from gateway.core.errors import Busy, NotFound, Unavailable, WrongState
from gateway.core.events import Event, RunResumed, RunStarted, TakenUp
from gateway.core.loop import replay
from gateway.core.ports import Index, Key
from gateway.core.run import Cancelled, Run, Status, reason_of
from gateway.core.stopping import Stop
from gateway.core.tree import children_of, is_child, is_orphan, owner_of, shows, surfaced
from gateway.service.driver import Driver
from gateway.service.ports import AnswersCalls, Ports, Suspended
from gateway.service.recorder import Recorder, record
from gateway.service.waiting import all_done, done, patiently

log = logging.getLogger(__name__)

BUSY_RETRY_AFTER_SECONDS = 1.0
CANCEL_SECONDS_MAX = 10.0
BEGIN_SECONDS_MAX = 10.0  # longer than the store waits for a file that somebody else has locked
PARENT_STOPPED = "the run that asked for this was stopped"


class Runs:
    """The runs of one gateway. At most `active_max` are driven at a time. `taken_up` is why runs go on here that
    another process drove."""

    def __init__(
        self,
        ports: Ports,
        index: Index,
        *,
        active_max: int,
        taken_up: TakenUp = "recovery",
        subagents: Callable[[Runs], AnswersCalls] | None = None,
    ) -> None:
        self._ports = dataclasses.replace(ports, subagents=subagents(self)) if subagents else ports
        self._index = index
        self._active_max = active_max
        self._taken_up: TakenUp = taken_up
        self._drivers: dict[str, Driver] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._promised = 0
        self._news = asyncio.Event()
        self._recovery: asyncio.Task[None] | None = None
        self._rejoining: set[asyncio.Task[Run]] = set()
        self._closing = False

    # --- looking ---

    async def get(self, run_id: str) -> Run:
        """The run as it is recorded. Raises NotFound."""
        driver = self._drivers.get(run_id)
        if driver is not None and driver.has_begun:
            return driver.run
        records = await self._ports.log.read(run_id)
        if not records:
            raise NotFound(f"there is no run {run_id}.", param="run_id")
        return replay(run_id, (decode_event(record.body) for record in records))

    async def settled(self, run_id: str) -> Run:
        """As `get`, once no command on the run is being carried out: it may be about to begin."""
        async with self._alone(run_id):
            return await self.get(run_id)

    async def wait(self, run_id: str, seconds: float | None) -> Run:
        """The run once it has stopped, or as it is when the time is up. One that is still to be taken up after a crash
        is waited for like any other."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            news = self._news  # as it is before the look: what comes during it is not missed
            run = await self.get(run_id)
            left = None if until is None else until - time.monotonic()
            if run.status is not Status.RUNNING or self._closing or (left is not None and left <= 0):
                return run
            driver = self._drivers.get(run_id)
            if driver is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await news.wait()  # until another run is driven, or none will be any more
                continue
            await done(driver.task, left)
            if driver.run.status is not Status.RUNNING:
                return driver.run  # as it is recorded, and need not be read again

    # --- changing ---

    def start(self, run_id: str, first: RunStarted, key: Key | None = None) -> Coroutine[Any, Any, Run]:
        """Record the run and drive it; once begun, that is done whether or not the caller is still there. Raises Busy
        when as many runs are under way as the gateway drives, WrongState if there is such a run or the key is taken."""
        self._require_place()
        return self._begin(run_id, first, key)

    async def _begin(self, run_id: str, first: RunStarted, key: Key | None = None) -> Run:
        self._require_open()
        async with self._lock(run_id):
            driver = self._drivers.get(run_id)
            if driver is not None and await driver.begins():
                raise WrongState(f"run {run_id} has begun already.")
            driver = self._drive(Recorder.of_new(run_id, first, key, self._ports))
            return await asyncio.shield(driver.beginning)

    async def judge(
        self, run_id: str, call_id: str, *, approved: bool, reason: str | None, seen_hash: str | None
    ) -> Run:
        """A verdict on a call of the run, or on one that a subagent's run waits for."""
        return await self._settle(
            run_id,
            call_id,
            lambda run: commands.verdict(
                run, call_id, approved=approved, reason=reason, seen_hash=seen_hash, now=self._ports.clock()
            ),
        )

    async def resume(self, run_id: str, raised: RaisedLimits) -> Run:
        return await self._command(run_id, lambda run: commands.resume(run, raised, self._ports.clock()))

    async def take_outputs(self, run_id: str, outputs: list[ToolOutput]) -> Run:
        """What came back from calls made elsewhere, by this run or one of its subagents'."""
        return await self._settle(
            run_id, outputs[0].call_id, lambda run: commands.tool_outputs(run, outputs, self._ports.clock())
        )

    async def go_on(self, run_id: str, words: Callable[[Run, datetime], list[Event]]) -> Run:
        """What a client says to a run, as events, by the functions of `core.conversation`."""
        return await self._command(run_id, lambda run: words(run, self._ports.clock()))

    async def _settle(self, run_id: str, call_id: str, events_of: Callable[[Run], list[Event]]) -> Run:
        """The command goes to the run whose call it is; those above it that waited for it go on too."""
        run = await self.get(owner_of(run_id, call_id))
        try:
            run = await self._command(run.id, events_of)
        finally:
            await self._rejoin_above(run)
        return await self.get(run_id)

    async def cancel(self, run_id: str, reason: str) -> Run:
        """Stop the run and its subagents' runs, whether driven or waiting. Raises WrongState if it ended otherwise
        first."""
        run = await self._cancel(run_id, reason)
        await self._rejoin_above(run)
        return run

    async def cancel_driven(self, run_id: str, reason: str) -> None:
        """Stop the run if it is under way, or about to begin. One that waits, or has ended, is left as it is."""
        with suppress(NotFound, WrongState):
            if (await self.settled(run_id)).status is Status.RUNNING:
                await self.cancel(run_id, reason)

    async def _cancel(self, run_id: str, reason: str) -> Run:
        async with self._alone(run_id):
            driver = self._drivers.get(run_id)
            if driver is None or driver.run.status is not Status.RUNNING:
                return await self._cancel_waiting(run_id, reason)
        await asyncio.wait(self._interrupt(driver, reason), timeout=CANCEL_SECONDS_MAX)
        run = driver.run
        if run.status is Status.RUNNING:
            raise Unavailable(f"run {run_id} stops as soon as the store takes its last event.", retry_after_seconds=1.0)
        await self._cancel_below(run, reason)
        if reason_of(run.interruption) != "cancelled":  # it stopped for something else just then
            return await self._command(run_id, lambda run: commands.cancel(run, reason, self._ports.clock()))
        return run

    async def _cancel_waiting(self, run_id: str, reason: str) -> Run:
        """What is below stops first: done halfway, it can be done again."""
        run = await self.get(run_id)
        self._cancelled(run, reason)  # raises WrongState before anything is stopped
        await self._cancel_below(run, reason)
        return await self._carry_out(run_id, lambda run: self._cancelled(run, reason))

    async def _cancel_below(self, run: Run, reason: str) -> None:
        for child_id in children_of(run):
            with suppress(NotFound, WrongState):
                await self._cancel(child_id, reason)

    def _interrupt(self, driver: Driver, reason: str) -> set[asyncio.Task[None]]:
        """Stop what is driven, and whatever is driven for it."""
        driver.cancel(reason)
        children = [other for other in self._drivers.values() if is_child(other.run, driver.run)]
        return {driver.task}.union(*(self._interrupt(child, reason) for child in children))

    def _cancelled(self, run: Run, reason: str) -> list[Event]:
        """The stop of a run that nobody drives. One that is still to be taken up is not driven first."""
        now = self._ports.clock()
        if run.status is not Status.RUNNING:
            return commands.cancel(run, reason, now)
        stop = Stop(Status.INTERRUPTED, Cancelled(reason))
        return [*commands.recover(run, now, self._taken_up), commands.stop(run, stop, now)]

    async def _command(self, run_id: str, events_of: Callable[[Run], list[Event]]) -> Run:
        """One command at a time a run: what it sees is what it changes."""
        async with self._alone(run_id):
            return await self._carry_out(run_id, events_of)

    async def _carry_out(self, run_id: str, events_of: Callable[[Run], list[Event]], *, has_place: bool = False) -> Run:
        self._require_open()
        run = await self.get(run_id)
        events = events_of(run)
        if not events:
            return run
        if not isinstance(events[-1], RunResumed):
            return await record(run, events, self._ports)
        with nullcontext() if has_place else self._place():
            run = await record(run, events, self._ports)
            if not self._closing:  # else the next process takes the run up
                self._drive(Recorder(run, self._ports))
        return run

    # --- subagents, which are driven in the place of the run that asked for them ---

    async def _rejoin_above(self, run: Run) -> None:
        """Those above the run that waited for it go on, or show what it waits for now."""
        while run.parent is not None:
            run = await self._rejoin(run.parent.run_id)

    async def _rejoin(self, run_id: str) -> Run:
        """Go on with a run that stopped for something that its subagents no longer wait for."""
        async with self._alone(run_id):
            run = await self.get(run_id)
            if not run.inner:
                return run
            children = [await self.get(child_id) for child_id in children_of(run)]
            if shows(run, tuple(waits for child in children for waits in surfaced(child))):
                return run
            return await self._carry_out(
                run_id,
                lambda run: commands.rejoin(run, self._ports.clock()),
                has_place=any(map(self._is_driven, children)),
            )

    def _rejoin_later(self, run_id: str) -> None:
        task = asyncio.create_task(patiently()(self._rejoin, run_id), name=f"rejoin {run_id}")
        self._rejoining.add(task)
        task.add_done_callback(self._rejoining.discard)

    async def begin_child(self, run_id: str, first: RunStarted) -> Run:
        """Raises Suspended when the gateway is shutting down: the next process begins it."""
        self._require_staying()
        return await self._begin(run_id, first)

    async def take_up_child(self, run_id: str, parent: Run) -> Run:
        """The run as it is, and driven again if it was cut off."""
        self._require_staying()
        async with self._alone(run_id):
            return await self._carry_out(run_id, lambda run: self._joined(run, parent), has_place=True)

    def _joined(self, run: Run, parent: Run) -> list[Event]:
        return [] if self._is_driven(run) else commands.take_up(run, parent, self._ports.clock(), self._taken_up)

    def abandon(self, run_id: str, reason: str) -> None:
        """Stop a child whose parent no longer waits for it, unless both are only left for the next process."""
        driver = self._drivers.get(run_id)
        if driver is not None and not self._closing:
            self._interrupt(driver, reason)

    def _require_staying(self) -> None:
        if self._closing:
            raise Suspended(())

    def _is_driven(self, run: Run) -> bool:
        driver = self._drivers.get(run.id)
        return driver is not None and driver.run.status is Status.RUNNING

    @asynccontextmanager
    async def _alone(self, run_id: str) -> AsyncIterator[None]:
        """One command at a time a run, and none before it has begun: whoever began it may have gone away meanwhile."""
        async with self._lock(run_id):
            if driver := self._drivers.get(run_id):
                await driver.begins()
            yield

    def _lock(self, run_id: str) -> asyncio.Lock:
        return self._locks.setdefault(run_id, asyncio.Lock())

    # --- driving ---

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Keeps a place for a run that is about to be driven. Raises Busy if there is none."""
        self._require_place()
        self._promised += 1
        try:
            yield
        finally:
            self._promised -= 1

    def _require_place(self) -> None:
        if len(self._drivers) + self._promised >= self._active_max:
            raise Busy(
                f"{self._active_max} runs are under way, as many as this gateway drives at once: try again.",
                retry_after_seconds=BUSY_RETRY_AFTER_SECONDS,
            )

    def _drive(self, recorder: Recorder) -> Driver:
        driver = Driver(recorder, self._ports)
        self._drivers[recorder.run.id] = driver
        self._tell_waiting()
        driver.task.add_done_callback(lambda _: self._driven(driver))
        return driver

    def _tell_waiting(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _driven(self, driver: Driver) -> None:
        run = driver.run
        if self._drivers.get(run.id) is driver:
            del self._drivers[run.id]
        if self._closing:
            return
        if run.inner:  # and a person may have spoken while others of its subagents were at work
            self._rejoin_later(run.id)
        if run.parent is not None and run.parent.run_id not in self._drivers:
            self._rejoin_later(run.parent.run_id)

    def recover(self) -> None:
        """Take up, in the background, every run that was running when its process ended."""
        self._recovery = asyncio.create_task(self._recover(), name="recovery")

    async def _recover(self) -> None:
        for run_id in await patiently()(self._index.running):
            try:
                await patiently()(self._take_up, run_id)
            except Exception:
                log.exception("run %s cannot be taken up", run_id)
        self._index.all_taken_up()

    async def _take_up(self, run_id: str) -> None:
        run = await self.get(run_id)
        if run.parent is not None and is_orphan(run, await self.get(run.parent.run_id)):
            await self._command(run_id, lambda run: self._cancelled(run, PARENT_STOPPED))
            return
        run = await self._command(run_id, self._recovered)
        log.info("run %s is taken up at turn %d", run.id, run.turns)
        await self._rejoin_above(run)

    def _recovered(self, run: Run) -> list[Event]:
        return [] if self._is_driven(run) else commands.recover(run, self._ports.clock(), self._taken_up)

    async def close(self, grace_seconds: float, begin_seconds: float = BEGIN_SECONDS_MAX) -> None:
        """Let steps under way finish and be recorded; what does not finish in time is left for recovery. Whether a run
        has begun is waited for longer: whoever starts it must not be told that there is none."""
        self._closing = True
        self._tell_waiting()
        for task in filter(None, (self._recovery, *self._rejoining)):
            task.cancel()
        drivers = list(self._drivers.values())
        for driver in drivers:
            driver.drain()
        await all_done((driver.task for driver in drivers), grace_seconds)
        await all_done((driver.beginning for driver in drivers), begin_seconds)
        for driver in drivers:
            driver.task.cancel()
        await asyncio.gather(*(driver.task for driver in drivers), return_exceptions=True)

    def _require_open(self) -> None:
        if self._closing:
            raise Unavailable("the gateway is shutting down: try again in a moment.", retry_after_seconds=1.0)

    @property
    def active(self) -> int:
        return len(self._drivers)
