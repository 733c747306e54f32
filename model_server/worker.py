"""The loop of the thread that owns the model: obey, plan, compute, speak, report.

What is computed is the scheduler's business, how is the engine's. This joins them, and sees to it that what goes wrong
with one request ends that one only.
"""

import logging
import queue
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from model_server.cells import Operation
from model_server.errors import DecodeFailed, ModelServerError
from model_server.jobs import (
    Cancel,
    Cancelled,
    Command,
    Ended,
    Event,
    Failed,
    Forget,
    Job,
    Report,
    Snapshot,
    Spent,
    Start,
    Stop,
    Wrote,
)
from model_server.sampling import Logits
from model_server.scheduler import Limits, Plan, QueueFull, Scheduler, Share
from model_server.voice import Tongue, Voice

NO_CELLS = 1  # what decode returns when the memory has no room, though the scheduler thought that it had

Clock = Callable[[], float]
_log = logging.getLogger(__name__)


class Computer(Tongue, Protocol):
    """What the loop needs of an engine."""

    def apply(self, operations: Sequence[Operation]) -> None: ...
    def decode(self, shares: Sequence[Share]) -> int: ...
    def logits(self, row: int) -> Logits: ...


class _Reply(Struct):
    """A request at work, with its times."""

    voice: Voice
    asked_at: float
    begun_at: float | None = None
    first_at: float | None = None


class Worker:
    def __init__(self, engine: Computer, limits: Limits, report: Callable[[Report], None], clock: Clock) -> None:
        self.inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._engine = engine
        self._scheduler = Scheduler(limits)
        self._report = report
        self._clock = clock
        self._replies: dict[int, _Reply] = {}
        self._events: list[Event] = []
        self._suspects: deque[int] = deque()
        self._stopping = False

    def run(self) -> None:
        """Until told to stop. Whatever is not about one request ends the thread, and is the caller's to report."""
        while not self._stopping:
            self.step()
        for reply in self._replies.values():
            reply.voice.close()

    def step(self) -> None:
        """One batch. Waits for a command when there is nothing to compute."""
        self._obey()
        plan = self._plan()
        failed = bool(plan) and not self._perform(plan)
        self._report(Report(tuple(self._events), self._snapshot(plan, failed)))
        self._events.clear()

    # ── commands ──

    def _obey(self) -> None:
        while not self._stopping:
            try:
                command = self.inbox.get(block=self._scheduler.is_idle and not self._events)
            except queue.Empty:
                return
            match command:
                case Start(job):
                    self._start(job)
                case Cancel(number):
                    self._cancel(number)
                case Forget():
                    self._scheduler.cells.forget_idle()
                case Stop():
                    self._stopping = True

    def _start(self, job: Job) -> None:
        try:
            self._replies[job.id] = _Reply(Voice(job, self._engine), asked_at=self._clock())
            self._scheduler.submit(job.id, job.prompt, job.tokens_max)
        except (ModelServerError, QueueFull, ValueError) as error:
            self._fail(job.id, str(error) or "The queue is full.")

    def _cancel(self, number: int) -> None:
        if number in self._replies:
            self._leave(number)
            self._events.append(Cancelled(number))

    # ── computing ──

    def _plan(self) -> Plan | None:
        while self._suspects:
            if plan := self._scheduler.plan_alone(self._suspects.popleft()):
                return plan
        return self._scheduler.plan()

    def _perform(self, plan: Plan) -> bool:
        self._engine.apply(plan.operations)
        if not plan.shares:
            return True
        self._note_begun(plan.shares)
        code = self._engine.decode(plan.shares)
        if code:
            self._recover(plan, code)
            return False
        row = -1
        for share in plan.shares:
            row += len(share.tokens)
            if share.whole:
                self._speak(share.task, row)
        return True

    def _recover(self, plan: Plan, code: int) -> None:
        """Nothing of the batch counts. Whoever makes it fail is found by computing each request alone."""
        _log.warning("a batch of %d requests failed with code %d", len(plan.shares), code)
        for share in plan.shares:
            self._scheduler.undo(share)
        if code == NO_CELLS and self._scheduler.cells.forget_idle():
            return
        if len(plan.shares) == 1:
            self._fail(plan.shares[0].task, f"The model could not compute this reply (llama_decode returned {code}).")
        else:
            self._suspects.extend(share.task for share in plan.shares)

    def _speak(self, number: int, row: int) -> None:
        reply = self._replies[number]
        try:
            token = reply.voice.choose(self._engine.logits(row))
            over = reply.voice.take(token)
        except DecodeFailed as error:
            return self._fail(number, str(error))
        except Exception:  # noqa: BLE001 - a bug in one reply must not end the others; it is logged with its traceback
            _log.exception("a reply failed")
            return self._fail(number, "The model server failed while it wrote this reply.")
        if reply.first_at is None:
            reply.first_at = self._clock()
        if text := reply.voice.writer.take():
            self._events.append(Wrote(number, text))
        return self._end(number) if over else self._scheduler.append(number, token)

    # ── endings ──

    def _end(self, number: int) -> None:
        reply, cached = self._replies[number], self._scheduler.task(number).cached or 0
        spent = _spent(reply, self._clock())
        self._leave(number)
        self._events.append(
            Ended(
                id=number,
                tokens=tuple(reply.voice.tokens),
                cached=cached,
                cut_off=reply.voice.cut_off,
                by_stop_string=reply.voice.writer.stopped,
                spent=spent,
            )
        )

    def _fail(self, number: int, reason: str) -> None:
        self._leave(number)
        self._events.append(Failed(number, reason))

    def _leave(self, number: int) -> None:
        self._scheduler.end(number)
        if reply := self._replies.pop(number, None):
            reply.voice.close()

    # ── telling ──

    def _note_begun(self, shares: Sequence[Share]) -> None:
        for share in shares:
            reply = self._replies[share.task]
            if reply.begun_at is None:
                reply.begun_at = self._clock()

    def _snapshot(self, plan: Plan | None, failed: bool) -> Snapshot:
        scheduler = self._scheduler
        return Snapshot(
            waiting=scheduler.waiting_count,
            working=scheduler.working_count,
            lines_kept=len(scheduler.cells.lines) - scheduler.working_count,
            cells_in_use=scheduler.cells.in_use,
            cells_evicted=scheduler.cells.evicted,
            preemptions=scheduler.preemptions,
            batch_tokens=plan.token_count if plan else 0,
            batch_failed=failed,
        )


def _spent(reply: _Reply, now: float) -> Spent:
    begun_at = reply.asked_at if reply.begun_at is None else reply.begun_at
    first_at = now if reply.first_at is None else reply.first_at
    return Spent(asked_at=reply.asked_at, begun_at=begun_at, first_at=first_at, ended_at=now)
