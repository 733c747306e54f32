"""Plays a recording: the real core and service, the real store in a temporary folder, the real provider adapter against
a scripted provider over loopback HTTP. Tools answer from the record."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import asdict, replace

from gateway.adapters.providers.openai import OpenAIModel, server_of
from gateway.adapters.providers.settings import ProviderSettings
from gateway.adapters.store.sqlite import SqliteStore
from gateway.core import commands
from gateway.core.commands import RaisedLimits, find_call, result_of
from gateway.core.errors import GatewayError
from gateway.core.events import Event, RunResumed, RunStarted, TakenUp
from gateway.core.loop import replay
from gateway.core.ports import Index
from gateway.core.run import Cancelled, Limits, Run
from gateway.core.stopping import RULES
from gateway.replay.comparing import Difference, figures_difference
from gateway.replay.recording import (
    RUN,
    Action,
    Cancel,
    Death,
    Figures,
    Halt,
    Outputs,
    Recording,
    Recovery,
    Rejoin,
    Resume,
    Verdict,
    Words,
    figures_of,
)
from gateway.replay.stage import RecordedModel, RecordedTools, Stage, scripts_of
from gateway.service.ports import Ports
from gateway.service.runs import Runs
from scripted.app import create_app, serving

STALL_SECONDS_MAX = 10.0
"""A replay has nothing to wait for: one in which nothing happens for so long waits for what never comes."""

DEADLINE_LIFTED_SECONDS = 10.0**6
REQUEST_BYTES_MAX = 1024**3


class Played(Struct, frozen=True, kw_only=True):
    """What a replay came to, up to the first difference if there is one."""

    difference: Difference | None
    events: int
    recorded: Figures
    replayed: Figures | None


class ReplayedRuns(Runs):
    async def rejoin(self, run_id: str) -> None:
        """What a verdict on a subagent's call does to the run above it; here there is no run below."""
        await self._command(run_id, lambda run: commands.rejoin(run, utc_now()))


def utc_now() -> datetime:
    return datetime.now(UTC)


async def play(recording: Recording, *, stall_seconds: float = STALL_SECONDS_MAX) -> Played:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-replay-"))
        store = await stack.enter_async_context(await SqliteStore.open(Path(folder) / "runs.db"))
        app = create_app(scripts=scripts_of(recording.script), request_bytes_max=REQUEST_BYTES_MAX)
        settings = ProviderSettings(base_url=f"{await stack.enter_async_context(serving(app))}/v1", retries_max=0)
        server = await stack.enter_async_context(server_of(settings))
        stage = Stage(store, recording)
        tools = RecordedTools(recording, stage)
        ports = Ports(
            log=stage,
            model=RecordedModel(OpenAIModel(server, settings), recording),
            toolbox=tools,
            subagents=tools,
            clock=utc_now,
            rules=(*RULES, stage.rule),
        )
        player = Player(recording, stage, ports, store)
        try:
            await finished_or_over(player, stage, stall_seconds)
        finally:
            await player.die()
    return played(recording, stage)


async def finished_or_over(player: Player, stage: Stage, stall_seconds: float) -> None:
    """Until the record is played to its end, something differs, or nothing happens any more."""
    acting = asyncio.create_task(player.act())
    waiting = {acting, asyncio.create_task(stage.over.wait()), asyncio.create_task(stalled(stage, stall_seconds))}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    if not acting.cancelled():
        acting.result()


async def stalled(stage: Stage, seconds: float) -> None:
    while await stage.moves(seconds):
        pass
    stage.lacks()


def played(recording: Recording, stage: Stage) -> Played:
    expected = recording.expected.figures
    replayed = figures_of(replay(RUN, stage.events)) if stage.events else None
    return Played(
        difference=stage.difference or figures_difference(stage.count, expected, replayed),
        events=stage.count,
        recorded=expected,
        replayed=replayed,
    )


class Player:
    """Everybody else: does at each place what the record says was done there, by the service's own methods."""

    def __init__(self, recording: Recording, stage: Stage, ports: Ports, index: Index) -> None:
        self._recording = recording
        self._stage = stage
        self._ports = ports
        self._index = index
        self._runs = self._process("recovery")
        self._under_way: set[asyncio.Task[None]] = set()

    def _process(self, taken_up: TakenUp) -> ReplayedRuns:
        return ReplayedRuns(self._ports, self._index, active_max=1, taken_up=taken_up)

    async def act(self) -> None:
        self._do(self._runs.start(RUN, opening(self._recording.started)))
        for action in self._recording.actions:
            await self._stage.until(action.at)
            await self._act(action)
        await self._stage.until(len(self._recording.expected.events))
        await self._at_rest()

    async def _act(self, action: Action) -> None:
        match action:
            case Halt():
                if action.during != "decision":
                    await self._halt(action)
            case Death(in_order=in_order):
                await self.die("handover" if in_order else "recovery")
            case Recovery():
                self._runs.recover()
            case _:
                await self._at_rest()
                self._do(self._command(action))

    def _command(self, action: Verdict | Outputs | Words | Resume | Rejoin | Cancel) -> Coroutine[Any, Any, object]:
        match action:
            case Verdict(call=call, approved=approved, reason=reason):
                return self._runs.judge(RUN, call, approved=approved, reason=reason, seen_hash=None)
            case Outputs(outputs=outputs):
                return self._runs.take_outputs(RUN, list(outputs))
            case Words():
                return self._runs.go_on(RUN, lambda run, now: went_on(run, action, now))
            case Resume() if self._recording.started.conversation is not None:
                return self._runs.go_on(RUN, lambda run, now: [asked_again(action, now)])
            case Resume(limits=limits):
                return self._runs.resume(RUN, raised(limits))
            case Rejoin():
                return self._runs.rejoin(RUN)
            case Cancel(reason=reason):
                return self._runs.cancel(RUN, reason)
            case _:
                assert_never(action)

    def _do(self, command: Coroutine[Any, Any, object]) -> None:
        """Beside what comes next: the process may die in the middle of it."""
        task = asyncio.create_task(self._carried_out(command, self._stage.count))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _carried_out(self, command: Coroutine[Any, Any, object], at: int) -> None:
        """A command that is refused differs from the record, unless it took effect first."""
        try:
            await command
        except GatewayError as error:
            if self._stage.count == at:
                self._stage.lacks(str(error))

    async def _halt(self, halt: Halt) -> None:
        """Stop is pressed before the step goes on: the driver hears of it in the turn that the sleep gives away.
        Between two events that are written together nobody can press it, and there `Stage.rule` has stopped the run."""
        if self._stage.count > halt.at:
            return
        self._do(self._runs.cancel(RUN, reason_of_halt(halt)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self._stage.let_go(halt.at)

    async def _at_rest(self) -> None:
        """Once nobody drives the run, so that it is what is stored."""
        while self._runs.active:
            await self._runs.wait(RUN, None)
            await asyncio.sleep(0)

    async def die(self, taken_up: TakenUp = "recovery") -> None:
        """The process ends where it stands; the next one is ready, and has taken up nothing yet."""
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._runs.close(0, 0)
        self._runs = self._process(taken_up)


def opening(started: RunStarted) -> RunStarted:
    return replace(started, limits=lifted(started.limits), time=utc_now())


def went_on(run: Run, words: Words, now: datetime) -> list[Event]:
    """What a client's message became: it was told apart from the transcript before when it came."""
    results = [result_of(run, find_call(run, output.call_id), output, now) for output in words.outputs]
    limits = words.limits and lifted(words.limits)
    return [*results, RunResumed(cause="message", limits=limits, said=words.said, time=now)]


def asked_again(resume: Resume, now: datetime) -> RunResumed:
    """In a conversation a request that comes again resumes the run too, whatever room its limits leave."""
    return RunResumed(cause="resume", limits=resume.limits and lifted(resume.limits), time=now)


def lifted(limits: Limits) -> Limits:
    """The clock of the replay is not that of the record: a deadline strikes where the record says, not by itself."""
    seconds = limits.deadline_seconds
    return limits if seconds is None else replace(limits, deadline_seconds=seconds + DEADLINE_LIFTED_SECONDS)


def raised(limits: Limits | None) -> RaisedLimits:
    return RaisedLimits() if limits is None else RaisedLimits(**asdict(lifted(limits)))


def reason_of_halt(halt: Halt) -> str:
    return halt.interruption.reason if isinstance(halt.interruption, Cancelled) else "the record says so"
