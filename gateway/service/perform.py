"""Carries out what `decide` decided. What happens is recorded as it happens, and an intent before the deed."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from gateway.core import commands
from gateway.core import events as e
from gateway.core.calls import Answer, Execute, Step, UseTools, waiting_for_verdict
from gateway.core.errors import ProviderError, ProviderRefused, ToolFailed
from gateway.core.estimates import expected_usage
from gateway.core.loop import Action, AskModel, Rest, decide
from gateway.core.messages import ToolCall
from gateway.core.ports import Clock, Reply, Sending
from gateway.core.pricing import cost, total
from gateway.core.run import Call, ProviderDown, Run, Status
from gateway.core.stopping import Stop
from gateway.service.checking import check
from gateway.service.ports import Ports, Suspended, ToolAnswer

log = logging.getLogger(__name__)

STOP_GRACE_SECONDS = 0.01
"""How long a cancelled tool may take to end before the run stops without it."""

PROGRESS_MAX = 1000
LABEL_CHARS_MAX = 500

Emit = Callable[[e.Event], None]
RecordEvent = Callable[[e.Event], Awaitable[None]]
"""Makes an event durable, or notes it to be written with what follows it at once. What it raises ends the step."""


def perform(action: Action, run: Run, now: datetime, ports: Ports, record: RecordEvent) -> Awaitable[None]:
    """`now` is when it was decided."""
    match action:
        case AskModel():
            return ask_model(action, run, now, ports, record)
        case UseTools(steps):
            return use_tools(steps, run, now, ports, record)
        case Stop():
            return stop(action, run, now, record)
        case Rest():
            return asyncio.sleep(0)
        case _:
            assert_never(action)


async def stop(why: Stop, run: Run, now: datetime, record: RecordEvent) -> None:
    """Announces every call that waits for a verdict, then stops."""
    if commands.reason_of(why.interruption) == "approval":
        for call in waiting_for_verdict(run):
            if not call.announced:
                await record(
                    e.ApprovalRequired(
                        tool_name=call.tool,
                        args=call.arguments,
                        provider_id=call.provider_id,
                        call=call.id,
                        time=now,
                    )
                )
    await record(commands.stop(run, why, now))


# --- the model ------------------------------------------------------------------------------------------------------


class Overtaken(Exception):
    """What an attempt may have cost calls for another step than to ask again. Never leaves this module."""


async def ask_model(action: AskModel, run: Run, now: datetime, ports: Ports, record: RecordEvent) -> None:
    """One turn. The estimate of each attempt that may be billed is recorded before it is sent."""
    estimate = cost(run.price, expected_usage(run)) if action.worst_usd is None else action.worst_usd
    settled = unconfirmed = run.unconfirmed_cost_usd  # without the attempt under way, and with it

    async def announce(sending: Sending) -> None:
        nonlocal settled, unconfirmed
        if sending.attempt > 1:
            report(run, ports, "lost" if sending.lost else "unavailable", again=True)
        if sending.lost and decided_anew(run, unconfirmed, ports) != action:
            raise Overtaken
        if sending.attempt == 1 or sending.lost:
            settled, unconfirmed = unconfirmed, total(unconfirmed, estimate)
            time = now if sending.attempt == 1 else ports.clock()
            await record(turn_start(run, sending.attempt, estimate, unconfirmed, time))

    try:
        reply = await ports.model.ask(run, announce, speaker(run, ports) if run.stream else None, action.max_tokens)
    except Overtaken:
        return
    except ProviderError as error:
        report(run, ports, "refused" if isinstance(error, ProviderRefused) else "lost" if error.lost else "unavailable")
        await record(turned_away(run, error, unconfirmed if error.lost else settled, ports.clock()))
        return
    report(run, ports, "ok")
    await record(turn(run, reply, action, settled, ports.clock()))


def decided_anew(run: Run, unconfirmed: Decimal, ports: Ports) -> Action:
    """A reply that was lost may be billed. Where what is left calls for another step or a shorter reply, the driver
    takes that one instead of asking again."""
    return decide(replace(run, unconfirmed_cost_usd=unconfirmed), ports.rules, ports.clock())


def speaker(run: Run, ports: Ports) -> Callable[[str], None]:
    def say(text: str) -> None:
        for observer in ports.observers:
            observer.said(run, text)

    return say


def turn_start(run: Run, attempt: int, estimate: Decimal, unconfirmed: Decimal, now: datetime) -> e.TurnStart:
    return e.TurnStart(
        turn=run.turns + 1, attempt=attempt, estimate_usd=estimate, unconfirmed_usd=unconfirmed, time=now
    )


def report(run: Run, ports: Ports, outcome: str, *, again: bool = False) -> None:
    for observer in ports.observers:
        observer.attempted(run, outcome, again=again)


def turn(run: Run, reply: Reply, asked: AskModel, unconfirmed: Decimal, now: datetime) -> e.Turn:
    """The reply as an event: priced, its calls parsed and checked."""
    usage = reply.usage
    turn_cost = cost(run.price, usage)
    return e.Turn(
        turn=run.turns + 1,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        cost_usd=total(run.cost_usd, turn_cost),
        finish=reply.finish,
        turn_cost_usd=turn_cost,
        unconfirmed_usd=unconfirmed,
        cached_tokens=usage.cached_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        estimated=reply.estimated,
        max_tokens=asked.max_tokens,
        fault=overcharge(turn_cost, asked),
        message=reply.message,
        checks=tuple([checked(call, run) for call in reply.message.tool_calls]),
        ms=round(reply.ms, 3),  # what a turn takes beyond this is the harness's, and that is little
        first_token_ms=reply.first_token_ms,
        provider_ms=reply.provider_ms,
        time=now,
    )


def checked(call: ToolCall, run: Run) -> e.Check:
    """In a conversation the client judges the calls: they are its own."""
    return e.Check(None) if run.conversation is not None else check(call, run.tools)


def overcharge(turn_cost: Decimal, asked: AskModel) -> str | None:
    """A hard budget rests on the provider keeping to `max_tokens`; one that does not is reported, in words."""
    if asked.worst_usd is None or turn_cost <= asked.worst_usd:
        return None
    words = f"the reply cost ${turn_cost:f}, more than the ${asked.worst_usd:f} that it could cost at most"
    log.error("a fault of the provider: %s", words)
    return words


def turned_away(run: Run, error: ProviderError, unconfirmed: Decimal, now: datetime) -> e.RunStopped:
    if isinstance(error, ProviderRefused):
        why = Stop(Status.FAILED, error=str(error))
    else:
        why = Stop(Status.INTERRUPTED, ProviderDown(str(error)))
    return commands.stop(run, why, now, unconfirmed_usd=unconfirmed)


# --- tools ----------------------------------------------------------------------------------------------------------


async def use_tools(steps: Sequence[Step], run: Run, now: datetime, ports: Ports, record: RecordEvent) -> None:
    """Answers in words at once; runs the rest side by side, each intent recorded before any of them begins."""
    executions: list[Execute] = []
    for step in steps:
        match step:
            case Answer():
                await record(answer(step, now))
            case Execute():
                executions.append(step)
                await record(
                    e.ToolStart(
                        tool_name=step.call.tool,
                        args=step.call.arguments,
                        provider_id=step.call.provider_id,
                        call=step.call.id,
                        reserved_usd=step.reserved_usd,
                        time=now,
                    )
                )
    if not all(step.spec.quick for step in executions):
        await execute(executions, run, ports, record)
        return
    for step in executions:
        reported: list[e.Event] = []
        reported.append(await executed(step, run, ports, CallContext(step.call, reported.append, ports.clock)))
        for event in reported:
            await record(event)


def answer(step: Answer, now: datetime) -> e.ToolResult:
    return e.ToolResult(
        tool_name=step.call.tool,
        ms=0,
        ok=step.ok,
        provider_id=step.call.provider_id,
        call=step.call.id,
        content=step.content,
        source=step.source,
        time=now,
    )


class CallContext:
    """What a running tool is given: its key, whether Stop was pressed, and a way to report progress."""

    def __init__(self, call: Call, emit: Emit, clock: Clock) -> None:
        self.idempotency_key = call.id
        self.cancelled = False
        self._call = call
        self._emit = emit
        self._clock = clock
        self._told = 0

    def cancel(self) -> None:
        self.cancelled = True

    def progress(self, label: str) -> None:
        """Bounded, since each is recorded: a tool that tells of each of a million steps is not followed to its end."""
        if self.cancelled or self._told == PROGRESS_MAX:
            return
        self._told += 1
        words = (
            as_text(str(label)) if self._told < PROGRESS_MAX else f"{PROGRESS_MAX - 1} labels are recorded: no more."
        )
        self._emit(e.ToolProgress(tool_name=self._call.tool, label=words, call=self._call.id, time=self._clock()))


def from_any_thread(emit: Emit) -> Emit:
    """The same on the event loop's thread, whoever calls; from there at once, or it would come behind the result."""
    loop, thread = asyncio.get_running_loop(), threading.get_ident()

    def told(event: e.Event) -> None:
        if threading.get_ident() == thread:
            emit(event)
        else:
            loop.call_soon_threadsafe(emit, event)

    return told


def as_text(label: str) -> str:
    """A label that can be recorded, whatever a tool made it of."""
    return label[:LABEL_CHARS_MAX].encode(errors="replace").decode()


class Waiting(Struct, frozen=True):
    """The subagent that the call asks for cannot go on without a person."""

    call_id: str
    suspended: Suspended


Queue = asyncio.Queue[e.Event | Waiting | BaseException]


async def execute(executions: Sequence[Execute], run: Run, ports: Ports, record: RecordEvent) -> None:
    """Runs tools side by side and records what they report, as it comes. Whatever ends it early cancels those that
    still run.

    A subagent that waits for a person is asked again once another call is answered: the person may have spoken."""
    queue: Queue = asyncio.Queue()
    emit = from_any_thread(queue.put_nowait)
    contexts = [CallContext(step.call, emit, ports.clock) for step in executions]

    def begin(step: Execute, context: CallContext) -> asyncio.Task[None]:
        return asyncio.create_task(execute_one(step, run, ports, context, queue))

    tasks = list(map(begin, executions, contexts))
    running, waiting = len(tasks), dict[str, Suspended]()
    try:
        while running:
            event = await queue.get()
            match event:
                case Waiting(call_id, suspended):
                    waiting[call_id] = suspended
                case BaseException():
                    raise event
                case _:
                    await record(event)
            running -= isinstance(event, e.ToolResult | Waiting)
            if isinstance(event, e.ToolResult):
                again = [pair for pair in zip(executions, contexts, strict=True) if pair[0].call.id in waiting]
                tasks += [begin(*pair) for pair in again]
                running += len(again)
                waiting.clear()
    finally:
        if running:
            await abandon(contexts, tasks)
    if waiting:
        raise together([waiting[step.call.id] for step in executions if step.call.id in waiting])


def together(waiting: Sequence[Suspended]) -> Suspended:
    """What all of them wait for; and if one was only cut off by a shutdown, the next process asks all again."""
    cut_off = any(not suspended.inner for suspended in waiting)
    return Suspended(() if cut_off else tuple(waits for suspended in waiting for waits in suspended.inner))


async def abandon(contexts: Sequence[CallContext], tasks: Sequence[asyncio.Task[None]]) -> None:
    for context in contexts:
        context.cancel()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=STOP_GRACE_SECONDS)


async def execute_one(step: Execute, run: Run, ports: Ports, context: CallContext, queue: Queue) -> None:
    """Puts the result into the queue, or whatever else ended the execution: without it the run would wait for ever."""
    try:
        queue.put_nowait(await executed(step, run, ports, context))
    except Suspended as suspended:
        queue.put_nowait(Waiting(step.call.id, suspended))
    except Exception as fault:  # noqa: BLE001  the consumer raises it
        queue.put_nowait(fault)


async def executed(step: Execute, run: Run, ports: Ports, context: CallContext) -> e.ToolResult:
    """Raises Suspended, and faults of the gateway."""
    began = time.perf_counter()
    answer = await use(step, run, ports, context)
    return e.ToolResult(
        tool_name=step.call.tool,
        ms=round((time.perf_counter() - began) * 1000),
        ok=answer.error is None,
        provider_id=step.call.provider_id,
        call=step.call.id,
        content=answer.content if answer.error is None else failure_words(run, answer.error),
        error=answer.error,
        permanent=answer.permanent,
        child_cost_usd=answer.cost_usd,
        child_unconfirmed_usd=answer.unconfirmed_cost_usd,
        time=ports.clock(),
    )


async def use(step: Execute, run: Run, ports: Ports, context: CallContext) -> ToolAnswer:
    """What came of the call. Raises Suspended, and faults of the gateway."""
    try:
        if step.spec.subagent is not None:
            return await ports.subagents.answer(run, step)
        return ToolAnswer(content=await ports.toolbox.use(run, step.spec, step.call.args or {}, context))
    except ToolFailed as failed:
        return ToolAnswer(content="", error=str(failed), permanent=failed.permanent)


def failure_words(run: Run, error: str) -> str:
    return "Error: the tool failed." if run.policies.tool_errors == "vague" else f"Error: {error}"
