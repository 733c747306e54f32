"""Writes down what happens in one run, and keeps its state in step with the record."""

from __future__ import annotations

import logging
from typing import Self

from tenacity import AsyncRetrying, before_sleep_log, retry_if_exception_type, wait_exponential

from gateway.core.codec import encode
from gateway.core.errors import Unavailable
from gateway.core.events import Event, RunStarted, ToolProgress, ToolResult, ToolStart, Turn, TurnStart
from gateway.core.loop import apply, start
from gateway.core.ports import Key, Record, Recorded, entry_of
from gateway.core.run import Run, ToolSpec
from gateway.service.ports import Ports

log = logging.getLogger(__name__)

UNLISTED = (TurnStart, ToolStart, ToolProgress)
"""Events that change nothing a list shows, so that the index row need not be written again."""


def recorded(run: Run, event: Event) -> Recorded:
    return run, event, Record(run.id, run.seq, encode(event))


async def record(run: Run, events: list[Event], ports: Ports) -> Run:
    """Make the events durable, all or none, and return the run after them. Raises what the log raises."""
    recorder = Recorder(run, ports)
    for event in events:
        recorder.note(event)
    await recorder.write()
    return recorder.run


class Recorder:
    """`run` is the state as far as it is durable, and all that anybody else may see. `ahead` is a little further:
    events that follow each other at once are noted, and written together before anything outside happens."""

    def __init__(self, run: Run, ports: Ports) -> None:
        self.run = run
        self.ahead = run
        self._ports = ports
        self._noted: list[Recorded] = []
        self._key: Key | None = None

    @classmethod
    def of_new(cls, run_id: str, first: RunStarted, key: Key | None, ports: Ports) -> Self:
        """Of a run whose first event is still to be written, and with it the key under which it was asked for."""
        recorder = cls(start(run_id, first), ports)
        recorder._noted.append(recorded(recorder.ahead, first))
        recorder._key = key
        return recorder

    @property
    def is_behind(self) -> bool:
        """Whether something is noted that is not written."""
        return bool(self._noted)

    def note(self, event: Event) -> bool:
        """Returns whether it is to be written before anything else is done."""
        self.ahead = apply(self.ahead, event)
        self._noted.append(recorded(self.ahead, event))
        return not leads_on(event, self.ahead)

    async def write(self) -> None:
        """Make what is noted durable, all or none, and tell the observers. Raises what the log raises."""
        noted = self._noted
        if not noted:
            return
        entry = None if all(isinstance(event, UNLISTED) for _, event, _ in noted) else entry_of(self.ahead)
        await self._ports.log.append([record for _, _, record in noted], entry, self._key)
        self._noted, self._key = [], None
        self.run = self.ahead
        for observer in self._ports.observers:
            observer.recorded(noted)

    async def write_when_possible(self) -> None:
        """A store that is down holds the run up; it does not lose it."""
        try:
            await self.write()
        except Unavailable:
            retrying = AsyncRetrying(
                retry=retry_if_exception_type(Unavailable),
                wait=wait_exponential(multiplier=0.1, max=5),
                before_sleep=before_sleep_log(log, logging.ERROR),
            )
            await retrying(self.write)


def leads_on(event: Event, run: Run) -> bool:
    """Whether the next event follows at once, without a wait or an effect in between, so that both are one write.

    After a reply it is decided what to do with it; after the last answer of a batch, what comes next. Not after one
    while other tools still run. A read that waits for nothing is done as soon as it begins, and whether it had begun
    makes no difference to a recovery.
    """
    match event:
        case Turn():
            return True
        case ToolStart():
            return answers_at_once(run.tool(event.tool_name))
        case ToolResult():
            running = [call for call in run.calls if call.started and call.outcome is None]
            return all(answers_at_once(run.tool(call.tool)) for call in running)
        case _:
            return False


def answers_at_once(spec: ToolSpec | None) -> bool:
    return spec is not None and spec.quick and spec.read_only
