"""Runs in which anything happens, by the real service with a log in memory: what replays are made of. The model, the
tools, people and the machine are chance; everything that they do is in the record, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from decimal import Decimal
from random import Random
from typing import Any

from msgspec.structs import replace

from gateway.core.calls import Execute, waiting_for_verdict
from gateway.core.codec import decode_event
from gateway.core.commands import RaisedLimits, ToolOutput
from gateway.core.conversation import Word, converse
from gateway.core.errors import GatewayError, ProviderRefused, ProviderUnavailable, ToolFailed, WrongState
from gateway.core.events import TAKEN_UP, VERSION, Event, RunStarted
from gateway.core.messages import Assistant, Function, System, Tool, ToolCall, User
from gateway.core.ports import Announce, Entry, Key, Record, Reply, Sending, ToolContext
from gateway.core.pricing import Usage
from gateway.core.run import Approval, InDoubt, Limits, Policies, Run, Status, StopRules, ToolOutputs, ToolSpec
from gateway.core.stopping import RULES, predicates
from gateway.replay.playing import ReplayedRuns, utc_now
from gateway.service.ports import Ports, Suspended, ToolAnswer
from tests.core.chance import ASKED, PRICES, TOOLS
from tests.core.world import Asked, asks, tool

RUN_ID = "run_0123456789abcdef"
RESEARCH = ToolSpec(
    name="research",
    description="Investigate.",
    parameters=tool("research", "question").parameters,
    read_only=True,
    subagent="researcher",
    budget_usd=Decimal("0.05"),
)
ALL_TOOLS = (*TOOLS, RESEARCH)
ALL_ASKED: tuple[Asked, ...] = (*ASKED, asks("research", question="who?"), asks("research", question="why?"))
ACTS_MAX = 12


class MemoryLog:
    """An EventLog and Index, and the hand that stops the run or its process after some of its events."""

    def __init__(self, random: Random) -> None:
        self.records: list[Record] = []
        self.status = Status.RUNNING
        self.died = asyncio.Event()
        self.halted: Callable[[], None] = lambda: None
        self._random = random

    @property
    def events(self) -> list[Event]:
        return [decode_event(record.body) for record in self.records]

    async def append(self, records: Sequence[Record], entry: Entry | None, key: Key | None = None) -> None:
        if records[0].seq != len(self.records) + 1:
            raise WrongState("this seq is taken.")
        self.records += records
        self.status = entry.status if entry else self.status
        await asyncio.sleep(0)
        match self._random.randrange(24):
            case 0:
                self.died.set()
                await asyncio.Event().wait()
            case 1:
                self.halted()
                await asyncio.sleep(0)
            case _:
                return

    async def read(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Record]:
        return self.records[after:] if run_id == RUN_ID else []

    async def running(self) -> list[str]:
        return [RUN_ID] if self.status is Status.RUNNING else []

    def all_taken_up(self) -> None:
        pass

    async def page(self, **_: Any) -> Any:
        raise NotImplementedError

    async def count(self, reason: str) -> int:
        raise NotImplementedError


class RandomModel:
    def __init__(self, random: Random) -> None:
        self._random = random

    async def ask(
        self, run: Run, announce: Announce, on_delta: Callable[[str], None] | None, max_tokens: int | None = None
    ) -> Reply:
        await announce(Sending(1))
        attempt = 1
        while (fate := self._random.randrange(12)) < 2:
            attempt += self._random.randrange(1, 3)
            await announce(Sending(attempt, lost=True))
        await asyncio.sleep(0)
        if fate == 2:
            raise ProviderUnavailable("the provider is gone.", lost=self._random.random() < 0.5)
        if fate == 3 and self._random.random() < 0.3:
            raise ProviderRefused("the provider does not know you.", lost=False)
        return self._reply(max_tokens)

    def _reply(self, max_tokens: int | None) -> Reply:
        random = self._random
        asked = [random.choice(ALL_ASKED) for _ in range(random.choice((0, 1, 1, 2, 2, 3)))]
        calls = tuple(
            ToolCall(f"c{number}", "function", Function(one.tool, one.arguments)) for number, one in enumerate(asked)
        )
        text = random.choice(("Done.", "Fertig – 完成 🎉\n", "{turn}"))
        content = text if not calls or random.random() < 0.2 else None
        completion = random.randrange(1, min(60, max_tokens or 60) + random.choice((1, 1, 1, 30)))
        prompt = random.randrange(1, 600)
        usage = Usage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            total_tokens=prompt + completion + random.choice((0, 0, 5)),
            cached_tokens=random.randrange(prompt),
            reasoning_tokens=random.randrange(completion),
        )
        return Reply(
            message=Assistant(content, calls, reasoning_content=random.choice((None, None, "Hm. So."))),
            usage=usage,
            finish=random.choice(("length", "tool_calls" if calls else "stop")),
            ms=1.0,
            estimated=random.random() < 0.2,
        )


class RandomTools:
    def __init__(self, random: Random) -> None:
        self._random = random

    async def use(self, run: Run, spec: ToolSpec, args: dict[str, Any], ctx: ToolContext) -> str:
        for number in range(self._random.choice((0, 0, 1, 3))):
            await self._time_passes()
            ctx.progress(f"{spec.name} {number}")
        await self._time_passes()
        match self._random.randrange(16):
            case 0 | 1:
                raise ToolFailed("try again.")
            case 2:
                raise ToolFailed("permission denied.", permanent=True)
            case 3 if self._random.random() < 0.2:
                raise RuntimeError("a bug of the toolbox")
            case _:
                return self._random.choice(("", "done", "Error: not really", '"quoted"\n'))

    async def answer(self, parent: Run, step: Execute) -> ToolAnswer:
        await self._time_passes()
        child = step.call.id.replace(":", "-")
        match self._random.randrange(6):
            case 0:
                raise Suspended((InDoubt(f"{child}:1:0", "write", {"path": "a"}, (child,)),))
            case 1:
                first, second = (Approval(f"{child}:2:{n}", "delete", {"path": "a"}, "0" * 16, (child,)) for n in "01")
                raise Suspended((first, second))
            case 2:
                return ToolAnswer(content="", error="researcher failed: no", cost_usd=step.reserved_usd / 3)
            case _:
                return ToolAnswer(content="It is so.", cost_usd=step.reserved_usd / 7, unconfirmed_cost_usd=Decimal(0))

    async def _time_passes(self) -> None:
        for _ in range(self._random.randrange(6)):
            await asyncio.sleep(0)


def whim(seed: int) -> Callable[[Run], str | None]:
    """A rule of the operator's that fires now and then: at the same state always, as a predicate must."""
    return lambda run: "the operator said so." if Random(seed * 7919 + run.seq).random() < 0.05 else None


class Original:
    """One run, from its start until nobody does anything about it any more."""

    def __init__(self, seed: int, limits: Limits, policies: Policies, *, conversation: bool = False) -> None:
        self.random = Random(seed)
        self.log = MemoryLog(self.random)
        self._first = RunStarted(
            agent="test",
            model="some-model@2026",
            messages=(System("Answer."), User("Which file?")),
            tools=ALL_TOOLS,
            limits=limits,
            policies=policies,
            price=self.random.choice(PRICES),
            stream=self.random.random() < 0.5,
            stop_rules=StopRules(predicates=("whim",), repeated_calls=self.random.choice((None, 4))),
            conversation="talk" if conversation else None,
            version=VERSION,
            time=utc_now(),
        )
        tools = RandomTools(self.random)
        self._ports = Ports(
            log=self.log,
            model=RandomModel(self.random),
            toolbox=tools,
            subagents=tools,
            clock=utc_now,
            rules=(*RULES, predicates({"whim": whim(seed)})),
        )
        self._runs = ReplayedRuns(self._ports, self.log, active_max=1)
        self._commands: set[asyncio.Task[Any]] = set()

    async def events(self) -> list[Event]:
        self.log.halted = self._halt
        await self._through(self._runs.start(RUN_ID, self._first))
        for _ in range(ACTS_MAX):
            run = await self._runs.get(RUN_ID)
            over = run.status in (Status.COMPLETED, Status.FAILED) and run.conversation is None
            if over or self.random.random() < 0.1:
                break
            if run.status is Status.RUNNING:
                self._runs.recover()
                await self._through(asyncio.sleep(0))
            else:
                await self._through(self._act(run))
        await self._die()
        return self.log.events

    def _halt(self) -> None:
        task = asyncio.create_task(self._tried(self._runs.cancel(RUN_ID, "enough")))
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)

    async def _through(self, command: Any) -> None:
        """The command, and what it sets going, until the run rests or its process dies."""
        task = asyncio.create_task(self._at_rest(command))
        death = asyncio.create_task(self.log.died.wait())
        await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED)
        death.cancel()
        if self.log.died.is_set():
            await self._die()
        else:
            await task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _at_rest(self, command: Any) -> None:
        await self._tried(command)
        while (await self._runs.get(RUN_ID)).status is Status.RUNNING:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def _die(self) -> None:
        for task in list(self._commands):
            task.cancel()
        await self._runs.close(0, 0)
        self._runs = ReplayedRuns(self._ports, self.log, active_max=1, taken_up=self.random.choice(TAKEN_UP))
        self.log.died.clear()

    async def _tried(self, command: Any) -> None:
        try:
            await command
        except GatewayError:
            return

    async def _act(self, run: Run) -> None:
        if self.random.random() < 0.1:
            await self._runs.cancel(RUN_ID, "no more")
        elif run.inner:
            await self._runs.rejoin(RUN_ID)
        elif run.conversation is not None and self.random.random() < 0.8:
            await self._runs.go_on(RUN_ID, lambda run, now: converse(run, self._word(run), now))
        else:
            await self._go_on(run)

    async def _go_on(self, run: Run) -> None:
        match run.interruption:
            case Approval():
                await self._judge(self.random.choice(waiting_for_verdict(run)).id)
            case InDoubt(call_id=call_id) if self.random.random() < 0.5:
                await self._judge(call_id)
            case InDoubt(call_id=call_id):
                await self._runs.take_outputs(RUN_ID, [ToolOutput(call_id=call_id, output="it was done")])
            case ToolOutputs(call_ids=ids):
                some = ids[: self.random.randint(1, len(ids))]
                outputs = [ToolOutput(call_id=one, output=f"out {one}", ok=self.random.random() < 0.8) for one in some]
                await self._runs.take_outputs(RUN_ID, outputs)
            case _:
                await self._runs.resume(RUN_ID, self._raised(run))

    async def _judge(self, call_id: str) -> None:
        approved, reason = self.random.random() < 0.6, self.random.choice((None, "keep it."))
        await self._runs.judge(RUN_ID, call_id, approved=approved, reason=reason, seen_hash=None)

    def _word(self, run: Run) -> Word:
        """The client's next request: most often all that there is, outputs and a question, now and then less of it."""
        random = self.random
        kept = run.messages if random.random() < 0.7 else run.messages[: random.randint(1, len(run.messages))]
        given = [call for call in run.calls if kept is run.messages and random.random() < 0.8]
        outputs = tuple(Tool(call.id, call.tool, f"out {call.id}") for call in given if call.outcome is None)
        more = (User(random.choice(("And now?", "Go on."))),) if random.random() < 0.7 else ()
        return Word(
            messages=(*kept, *outputs, *more),
            tools=random.choice((run.tools, run.tools[:2])),
            params=random.choice((run.params, {"temperature": 0.5})),
            model=random.choice((run.model, "another-model")),
            price=random.choice(PRICES),
            stream=random.random() < 0.5,
            limits=self._raised(run) if random.random() < 0.7 else RaisedLimits(),
        )

    def _raised(self, run: Run) -> RaisedLimits:
        raised = RaisedLimits()
        if run.limits.max_turns is not None and run.turns >= run.limits.max_turns:
            raised = replace(raised, max_turns=run.turns + 2)
        if run.limits.max_budget_usd is not None and run.status is Status.BUDGET_EXCEEDED:
            raised = replace(raised, max_budget_usd=run.spent_usd + Decimal("0.01"))
        if run.limits.deadline_seconds is not None:
            raised = replace(raised, deadline_seconds=run.limits.deadline_seconds + 10)
        return raised
