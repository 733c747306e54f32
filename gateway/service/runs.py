"""All that can be done with runs: start, look, judge, resume, cancel. One code path serves a waiting run, a capped one
and one whose process died: load, record the events of the command, drive on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from weakref import WeakValueDictionary

from gateway.core import commands
from gateway.core.codec import decode_event, encode
from gateway.core.commands import RaisedLimits, ToolOutput
from gateway.core.errors import Busy, NotFound, Unavailable, WrongState
from gateway.core.events import Event, RunStarted
from gateway.core.loop import replay, start
from gateway.core.ports import Index, Key, Record, entry_of
from gateway.core.run import Run, Status, reason_of
from gateway.service.driver import Driver, announce, record
from gateway.service.ports import Ports

log = logging.getLogger(__name__)

BUSY_RETRY_AFTER_SECONDS = 1.0


class Runs:
    """The runs of one gateway. At most `active_max` are driven at a time."""

    def __init__(self, ports: Ports, index: Index, *, active_max: int) -> None:
        self._ports = ports
        self._index = index
        self._active_max = active_max
        self._drivers: dict[str, Driver] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._room = asyncio.Event()
        self._recovery: asyncio.Task[None] | None = None
        self._closing = False

    # --- looking ---

    async def get(self, run_id: str) -> Run:
        """The run as it is recorded. Raises NotFound."""
        if driver := self._drivers.get(run_id):
            return driver.run
        records = await self._ports.log.read(run_id)
        if not records:
            raise NotFound(f"there is no run {run_id}.", param="run_id")
        return replay(run_id, (decode_event(record.body) for record in records))

    async def wait(self, run_id: str, seconds: float | None) -> Run:
        """The run once it has stopped, or as it is when the time is up."""
        if driver := self._drivers.get(run_id):
            await asyncio.wait({driver.task}, timeout=seconds)
            return driver.run
        return await self.get(run_id)

    # --- changing ---

    async def start(self, run_id: str, first: RunStarted, key: Key | None = None) -> Run:
        """Record the run and drive it. Raises Busy when as many runs are under way as the gateway drives."""
        self._require_open()
        if len(self._drivers) >= self._active_max:
            raise Busy(
                f"{self._active_max} runs are under way, as many as this gateway drives at once: try again.",
                retry_after_seconds=BUSY_RETRY_AFTER_SECONDS,
            )
        run = start(run_id, first)
        begun = Record(run_id, run.seq, encode(first))
        await self._ports.log.append([begun], entry_of(run), key)
        announce([(run, first, begun)], self._ports)
        self._drive(run)
        return run

    async def judge(
        self, run_id: str, call_id: str, *, approved: bool, reason: str | None, seen_hash: str | None
    ) -> Run:
        return await self._command(
            run_id,
            lambda run: commands.verdict(
                run, call_id, approved=approved, reason=reason, seen_hash=seen_hash, now=self._ports.clock()
            ),
        )

    async def resume(self, run_id: str, raised: RaisedLimits) -> Run:
        return await self._command(run_id, lambda run: commands.resume(run, raised, self._ports.clock()))

    async def take_outputs(self, run_id: str, outputs: list[ToolOutput]) -> Run:
        return await self._command(run_id, lambda run: commands.tool_outputs(run, outputs, self._ports.clock()))

    async def cancel(self, run_id: str, reason: str) -> Run:
        """Stop the run, whether it is driven or waits. Raises WrongState if it ended otherwise first."""
        driver = self._drivers.get(run_id)
        if driver is None or driver.run.status is not Status.RUNNING:
            return await self._command(run_id, lambda run: commands.cancel(run, reason, self._ports.clock()))
        driver.cancel(reason)
        await asyncio.wait({driver.task})
        if reason_of(driver.run.interruption) != "cancelled":
            raise WrongState(f"run {run_id} had stopped already: {driver.run.status}.")
        return driver.run

    async def _command(self, run_id: str, events_of: Callable[[Run], list[Event]]) -> Run:
        """One command at a time a run: what it sees is what it changes."""
        self._require_open()
        async with self._locks.setdefault(run_id, asyncio.Lock()):
            run = await self.get(run_id)
            if events := events_of(run):
                run = await record(run, events, self._ports)
                if run.status is Status.RUNNING:
                    self._drive(run)
            return run

    # --- driving ---

    def _drive(self, run: Run) -> None:
        driver = Driver(run, self._ports)
        self._drivers[run.id] = driver
        driver.task.add_done_callback(lambda _: self._driven(driver))

    def _driven(self, driver: Driver) -> None:
        if self._drivers.get(driver.run.id) is driver:
            del self._drivers[driver.run.id]
        self._room.set()

    def recover(self) -> None:
        """Take up, in the background, every run that was running when its process ended."""
        self._recovery = asyncio.create_task(self._recover(), name="recovery")

    async def _recover(self) -> None:
        for run_id in await self._index.running():
            while len(self._drivers) >= self._active_max:
                self._room.clear()
                await self._room.wait()
            try:
                await self._take_up(run_id)
            except Exception:
                log.exception("run %s cannot be taken up", run_id)

    async def _take_up(self, run_id: str) -> None:
        if run_id in self._drivers:
            return
        run = await self._command(run_id, lambda run: commands.recover(run, self._ports.clock()))
        log.info("run %s is taken up at turn %d", run.id, run.turns)

    async def close(self, grace_seconds: float) -> None:
        """Let steps under way finish and be recorded; what does not finish in time is left for recovery."""
        self._closing = True
        if self._recovery is not None:
            self._recovery.cancel()
        tasks = {driver.task for driver in self._drivers.values()}
        for driver in self._drivers.values():
            driver.drain()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _require_open(self) -> None:
        if self._closing:
            raise Unavailable("the gateway is shutting down: try again in a moment.", retry_after_seconds=1.0)

    @property
    def active(self) -> int:
        return len(self._drivers)
