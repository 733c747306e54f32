"""The asyncio side of the model: loads it on a thread of its own, hands it jobs, and brings back what they wrote.

Knows no HTTP. A caller that stops reading, for whatever reason, cancels its job.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Literal, Protocol

from model_server.errors import ModelServerError, Refused
from model_server.jobs import Cancel, Cancelled, Ended, Event, Failed, Forget, Job, Report, Snapshot, Start, Stop, Wrote
from model_server.prompt import Segment
from model_server.scheduler import Limits
from model_server.worker import Computer, Worker

RETRY_SECONDS_MAX = 60
_JOIN_SECONDS = 30

Phase = Literal["loading", "ready", "failed"]
_log = logging.getLogger(__name__)


class Engine(Computer, Protocol):
    """What the whole server needs of an engine."""

    def tokenise(self, segment: Segment) -> list[int]: ...
    def close(self) -> None: ...


Load = Callable[[Callable[[float], None]], Engine]
Observe = Callable[[Snapshot], None]


class Service:
    def __init__(self, load: Load, limits: Limits, observe: Observe = lambda _: None) -> None:
        """`load` is called on the model's thread with something to tell its progress to, from 0 to 1."""
        self.limits = limits
        self.phase: Phase = "loading"
        self.progress = 0.0
        self.failure: ModelServerError | None = None
        self.settled = asyncio.Event()  # loaded, or failed
        self.broken = asyncio.Event()  # failed, now or later
        self._load = load
        self._observe = observe
        self._engine: Engine | None = None
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._inboxes: dict[int, asyncio.Queue[Event]] = {}
        self._last_id = 0
        self._reply_seconds = 1.0  # a moving average, from which Retry-After is guessed

    # ── life ──

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._live, name="model", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Waits until the model is closed; if it is still being loaded, until it is loaded."""
        self._closing.set()
        if self._worker:
            self._worker.inbox.put(Stop())
        if self._thread:
            await asyncio.to_thread(self._thread.join, _JOIN_SECONDS)

    @property
    def engine(self) -> Engine:
        """Raises Refused (503) until the weights are loaded."""
        if self.phase == "failed":
            raise Refused(
                503, "The model failed; this server must be restarted.", code="model_failed", kind="server_error"
            )
        if self._engine is None or self.phase == "loading":
            words = f"The model is being loaded ({self.progress:.0%})."
            raise Refused(503, words, code="model_loading", kind="server_error", retry_seconds=1)
        return self._engine

    def _live(self) -> None:
        """The thread of the model, from loading to closing."""
        engine: Engine | None = None
        try:
            engine = self._load(self._tell_progress)
            self._worker = Worker(engine, self.limits, self._tell, time.monotonic)
            self._engine = engine
            self._call(self._settle, "ready", None)
            if not self._closing.is_set():
                self._worker.run()
        except ModelServerError as error:
            self._call(self._settle, "failed", error)
        except Exception as error:  # noqa: BLE001 - the end of a thread: logged, told to all who wait, and shown by readyz
            _log.exception("the thread of the model failed")
            self._call(self._settle, "failed", ModelServerError(f"The model server failed: {error!r}."))
        finally:
            if engine:
                engine.close()

    # ── jobs ──

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def refuse_if_full(self) -> None:
        """Raises Refused (429) when as many replies as may work and wait are asked for already."""
        if len(self._inboxes) >= self.limits.sequences + self.limits.queue:
            words = f"{self.limits.sequences} replies are being written and {self.limits.queue} wait: no more can wait."
            raise Refused(429, words, code="queue_full", kind="rate_limit_error", retry_seconds=self._retry_seconds())

    async def run(self, job: Job) -> AsyncGenerator[Wrote | Ended, None]:
        """What the job writes, and how it ended. Raises Refused. Leaving it early cancels it."""
        self.refuse_if_full()
        _ = self.engine
        assert self._worker
        inbox = self._inboxes[job.id] = asyncio.Queue()
        self._worker.inbox.put(Start(job))
        ended = False
        try:
            while not ended:
                event = await inbox.get()
                ended = not isinstance(event, Wrote)
                yield _told(event)
        finally:
            del self._inboxes[job.id]
            if not ended:
                self._worker.inbox.put(Cancel(job.id))

    def forget(self) -> None:
        """Drop what is kept of requests that are over, so that the next one begins with an empty memory."""
        if self._worker:
            self._worker.inbox.put(Forget())

    def _retry_seconds(self) -> int:
        waiting = len(self._inboxes) - self.limits.sequences
        guess = self._reply_seconds * max(1, waiting) / self.limits.sequences
        return max(1, min(RETRY_SECONDS_MAX, math.ceil(guess)))

    # ── from the thread ──

    def _call(self, function: Callable[..., None], *args: object) -> None:
        assert self._loop
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)

    def _tell(self, report: Report) -> None:
        self._call(self._deliver, report)

    def _tell_progress(self, progress: float) -> None:
        self._call(self._note_progress, progress)

    def _note_progress(self, progress: float) -> None:
        self.progress = progress

    def _settle(self, phase: Phase, failure: ModelServerError | None) -> None:
        self.phase, self.failure = phase, failure
        self.progress = 1.0 if phase == "ready" else self.progress
        self.settled.set()
        if failure:
            self.broken.set()
            for number, inbox in self._inboxes.items():
                inbox.put_nowait(Failed(number, "The model failed."))

    def _deliver(self, report: Report) -> None:
        for event in report.events:
            if isinstance(event, Ended):
                seconds = event.spent.ended_at - event.spent.begun_at
                self._reply_seconds += 0.2 * (seconds - self._reply_seconds)
            if event.id in self._inboxes:
                self._inboxes[event.id].put_nowait(event)
        self._observe(report.snapshot)


def _told(event: Event) -> Wrote | Ended:
    match event:
        case Wrote() | Ended():
            return event
        case Failed(reason=reason):
            raise Refused(500, reason, code="decode_failed", kind="server_error")
        case Cancelled():
            raise Refused(499, "The request was cancelled.", code="cancelled", kind="server_error")


async def whole(service: Service, job: Job) -> tuple[str, Ended]:
    """All that a job writes, at once."""
    text: list[str] = []
    async with aclosing(service.run(job)) as events:
        async for event in events:
            if isinstance(event, Ended):
                return "".join(text), event
            text.append(event.text)
    raise AssertionError("a job ends with Ended or raises")
