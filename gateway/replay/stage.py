"""What surrounds a run while it is played again: a log that watches every event, and a model and tools that say at each
place what the record says came there. They know nothing of what they are given to: it is the real service."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Never

from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.calls import Execute
from gateway.core.codec import decode_event, encode
from gateway.core.errors import ProviderRefused, ProviderUnavailable, ToolFailed
from gateway.core.ports import Announce, Entry, EventLog, Key, Model, Record, Reply, Sending, ToolContext
from gateway.core.run import Cancelled, Run, ToolSpec, reason_of
from gateway.core.stopping import Stop
from gateway.replay.comparing import Difference, first_difference, normal
from gateway.replay.recording import RUN, Answer, Ask, Death, Halt, Progress, Recording, Suspension, ToolInput
from gateway.service.ports import Suspended, ToolAnswer
from gateway.service.recorder import answers_at_once
from scripted.scripts import Script


async def for_ever() -> Never:
    while True:
        await asyncio.Event().wait()


class Stage:
    """An EventLog that compares each event with the record once it is durable. It holds the run up where the record
    shows that it was stopped between two steps or died, and for good at the first difference."""

    def __init__(self, log: EventLog, recording: Recording) -> None:
        self.events: list[e.Event] = []
        self.difference: Difference | None = None
        self.over = asyncio.Event()
        self._log = log
        self._expected = recording.expected.events
        self._halts = {action.at: action for action in recording.actions if isinstance(action, Halt)}
        held = (a for a in recording.actions if isinstance(a, Death) or (isinstance(a, Halt) and a.during == "step"))
        self._gates = {action.at: asyncio.Event() for action in held}
        self._moved = asyncio.Event()
        self._due: dict[int, Callable[[], None]] = {}

    @property
    def count(self) -> int:
        """How many events are recorded."""
        return len(self.events)

    async def until(self, count: int) -> None:
        while self.count < count:
            await self._moved.wait()

    def when(self, count: int, do: Callable[[], None]) -> None:
        """Once so many events are recorded."""
        self._due[count] = do

    async def moves(self, seconds: float) -> bool:
        """Whether anything is recorded within so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._moved.wait()
        except TimeoutError:
            return False
        return True

    def let_go(self, at: int) -> None:
        if at in self._gates:
            self._gates[at].set()

    def differ(self, difference: Difference) -> None:
        """Only the first counts: what comes after it follows from it."""
        self.difference = self.difference or difference
        self.over.set()

    def lacks(self, what: str | None = None) -> None:
        """What should come next does not come; `what` comes instead, in words."""
        recorded = self._expected[self.count] if self.count < len(self._expected) else {}
        kind = recorded.get("type")
        self.differ(Difference(event=self.count, type=str(kind), field="type", recorded=kind, replayed=what))

    # --- as a rule, and as a log ---

    def rule(self, run: Run, now: datetime) -> Stop | None:
        """Stops the run where the record shows that a decision did, by a rule that is not here; or that a person did,
        between two events that are written together and so cannot be held apart."""
        halt = self._halts.get(run.seq)
        if halt is None or halt.during == "wait":
            return None
        return Stop(halt.status, halt.interruption, halt.error)

    async def append(self, records: Sequence[Record], entry: Entry | None, key: Key | None = None) -> None:
        seen = [self._as_recorded(decode_event(record.body)) for record in records]
        bodies = zip(records, seen, strict=True)
        await self._log.append([replace(record, body=encode(event)) for record, event in bodies], entry, key)
        for event in seen:
            self._see(event)
        self._move()
        if self.difference is not None:
            await for_ever()
        if gate := self._gates.get(self.count):
            await gate.wait()

    async def read(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Record]:
        return await self._log.read(run_id, after, limit)

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
        if do := self._due.pop(self.count, None):
            do()

    def _see(self, event: e.Event) -> None:
        recorded = self._expected[self.count] if self.count < len(self._expected) else None
        if difference := first_difference(self.count, recorded, normal(event)):
            self.differ(difference)
        self.events.append(event)

    def _as_recorded(self, event: e.Event) -> e.Event:
        """Whatever stopped the run in the middle of a step, here it is cancelled. What it was is stored, so that
        the run goes on from there."""
        halt = self._halts.get(self.count)
        if halt is None or not isinstance(event, e.RunStopped) or not isinstance(event.interruption, Cancelled):
            return event
        return replace(
            event,
            status=halt.status,
            reason=reason_of(halt.interruption),
            interruption=halt.interruption,
            error=halt.error,
        )


async def unheard(_: Sending) -> None:
    """The attempts of the replay are not those of the record."""


class RecordedModel:
    """The real adapter over HTTP for every reply that was recorded. Replies that were lost and requests that failed are
    told as they were recorded, without their waits."""

    def __init__(self, model: Model, recording: Recording) -> None:
        self._model = model
        self._steps = len(recording.script.steps)
        self._odd = {asked.at: asked for asked in recording.asks}

    async def ask(
        self, run: Run, announce: Announce, on_delta: Callable[[str], None] | None, max_tokens: int | None = None
    ) -> Reply:
        asked = self._odd.get(run.seq, Ask(at=0))
        for attempt in asked.attempts:
            await announce(Sending(attempt, lost=attempt > 1))
        match asked.ending:
            case "reply":
                return await self._model.ask(replace(run, model=self._script(run)), unheard, on_delta, max_tokens)
            case "refused":
                raise ProviderRefused(asked.words, lost=asked.maybe_billed)
            case "unavailable":
                raise ProviderUnavailable(asked.words, lost=asked.maybe_billed)
            case "lost":
                await announce(Sending(asked.attempts[-1] + 1, lost=True))
                return await for_ever()
            case "silence":
                return await for_ever()

    def _script(self, run: Run) -> str:
        return RUN if run.conversation is None else script_of_turn(min(run.turns, self._steps - 1))


def script_of_turn(turns: int) -> str:
    return f"{RUN}-{turns}"


def scripts_of(script: Script) -> Mapping[str, Script]:
    """The script, and each of its steps by itself: a client may have taken replies out of its conversation, by whose
    number a script tells the turn."""
    alone = enumerate(replace(step, turn=None) for step in script.steps)
    return {RUN: script, **{script_of_turn(turns): replace(script, steps=(step,)) for turns, step in alone}}


class RecordedTools:
    """Toolbox and subagents: answers from the record, in the order of the record, and does nothing. A call of which
    nothing more is recorded waits until it is stopped."""

    def __init__(self, recording: Recording, stage: Stage) -> None:
        self._stage = stage
        self._inputs = by_call(recording.tools)

    async def use(self, run: Run, spec: ToolSpec, args: dict[str, Any], ctx: ToolContext) -> str:
        answer = await self._answer(ctx.idempotency_key, ctx.progress, at_once=answers_at_once(spec))
        if not answer.ok:
            raise ToolFailed(answer.text, permanent=answer.permanent)
        return answer.text

    async def answer(self, parent: Run, step: Execute) -> ToolAnswer:
        answer = await self._answer(step.call.id, lambda label: None, at_once=False)
        return ToolAnswer(
            content=answer.text,
            error=None if answer.ok else answer.text,
            permanent=answer.permanent,
            cost_usd=answer.cost_usd,
            unconfirmed_cost_usd=answer.unconfirmed_cost_usd,
        )

    async def _answer(self, call_id: str, progress: Callable[[str], None], *, at_once: bool) -> Answer:
        """What is answered at once is written together with what goes before it, so it cannot wait for that."""
        inputs = self._inputs.get(call_id, deque())
        while inputs:
            if not at_once:
                await self._stage.until(inputs[0].at)
            match said := inputs.popleft():
                case Answer():
                    self._speak_late(inputs, progress)
                    return said
                case Suspension(inner=inner, order=order):
                    for _ in range(order):
                        await asyncio.sleep(0)
                    raise Suspended(inner)
                case Progress(at=at, label=label):
                    progress(label)
                    await self._stage.until(at + 1)
        return await for_ever()

    def _speak_late(self, inputs: Sequence[ToolInput], progress: Callable[[str], None]) -> None:
        """What a tool reported last may be recorded behind its answer."""
        for said in inputs:
            if isinstance(said, Progress):
                self._stage.when(said.at, partial(progress, said.label))


def by_call(tools: Sequence[ToolInput]) -> Mapping[str, deque[ToolInput]]:
    found: defaultdict[str, deque[ToolInput]] = defaultdict(deque)
    for said in tools:
        found[said.call].append(said)
    return found
