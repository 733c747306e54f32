"""Whatever the model says, the tools do, people decide and the power supply allows: what must be true of every run.

Hypothesis plays all of them against the pure core. `World` is the driver; the machine keeps its own books beside it, in
other words than the core does, and compares after every rule. `HYPOTHESIS_PROFILE=deep` looks for longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.core import commands
from gateway.core import events as e
from gateway.core.calls import Execute, UseTools, outstanding, waiting_for_verdict
from gateway.core.codec import args_hash
from gateway.core.commands import ToolOutput
from gateway.core.errors import RequestError
from gateway.core.loop import Action, AskModel, Rest, replay
from gateway.core.messages import Assistant, Message, Tool
from gateway.core.pricing import Price
from gateway.core.run import Cancelled, Limits, Policies, Status, reason_of
from gateway.core.stopping import Stop, driven_seconds
from tests.core.chance import PRICES, TOOLS, Chance, Tame, budgets, caps, deadlines, limits, policies, randoms
from tests.core.world import World, reloaded

ENDED = (Status.COMPLETED, Status.FAILED)
REASONS = {
    Status.COMPLETED: {None},
    Status.FAILED: {None},
    Status.MAX_TURNS_EXCEEDED: {"max_turns"},
    Status.BUDGET_EXCEEDED: {"max_budget"},
    Status.INTERRUPTED: {"approval", "cancelled", "tool_outputs", "in_doubt", "deadline", "provider_unavailable"},
}


class AnyRun(RuleBasedStateMachine):
    @initialize(policies=policies, limits=limits, price=st.sampled_from(PRICES))
    def start(self, policies: Policies, limits: Limits, price: Price) -> None:
        self.world = World("n1", limits=limits, policies=policies, price=price, tools=TOOLS)
        self.chance = Chance()
        self.paid = Decimal(0)
        self.owed = Decimal(0)
        self.estimate = Decimal(0)
        self.asking = False
        self.executed = 0
        self.begun: set[str] = set()
        self.may_run_again: set[str] = set()
        self.verdicts: dict[str, bool] = {}
        self.answered: dict[str, str] = {}

    # --- what happens

    @rule(random=randoms)
    @precondition(lambda self: self.running)
    def step(self, random: Random) -> None:
        self.act(random)

    @rule(random=randoms)
    @precondition(lambda self: self.world.run.status not in ENDED)
    def a_good_day(self, random: Random) -> None:
        """Everybody does what the run waits for, but the power fails while something is written."""
        for _ in range(8):
            if not self.running:
                self.help_on(random)
            elif about_to_write(self.world.decide()) and random.random() < 0.3:
                self.crash(random, 1, random.random() < 0.5, 1)
            else:
                self.act(random)

    @rule(random=randoms, events=st.integers(0, 6), deed_done=st.booleans(), asleep=st.integers(0, 10**5))
    @precondition(lambda self: self.running)
    def crash(self, random: Random, events: int, deed_done: bool, asleep: int) -> None:
        """After so many events of a step; what was under way then may have had its effect."""
        flight = self.act(random, events)
        if deed_done:
            next(flight, None)
        self.world.reload()
        self.world.now += timedelta(seconds=asleep)
        self.took(commands.recover(self.world.run, self.world.now))

    @rule(random=randoms, events=st.integers(0, 6), deed_done=st.booleans())
    @precondition(lambda self: self.running)
    def somebody_presses_stop(self, random: Random, events: int, deed_done: bool) -> None:
        flight = self.act(random, events)
        if deed_done:
            next(flight, None)
        if self.running:
            self.took([commands.stop(self.world.run, Stop(Status.INTERRUPTED, Cancelled("stop")), self.world.now)])

    @rule(
        random=randoms,
        approved=st.booleans(),
        seen=st.sampled_from(["not looked", "looked", "looked at another"]),
        named=st.sampled_from(["waiting", "ours", "theirs", "any"]),
    )
    def somebody_judges(self, random: Random, approved: bool, seen: str, named: str) -> None:
        run = self.world.run
        choices = {
            "waiting": [call.id for call in waiting_for_verdict(run)],
            "ours": [call.id for call in run.calls],
            "theirs": [call.provider_id for call in run.calls],
            "any": [f"n1:{turn}:{index}" for turn in range(1, run.turns + 1) for index in range(3)],
        }[named] or ["n1:1:0"]
        call_id = random.choice(choices)
        looked = next((args_hash(call.tool, call.args or {}) for call in run.calls if call.id == call_id), None)
        seen_hash = {"not looked": None, "looked": looked, "looked at another": "0" * 16}[seen]
        self.attempt(
            lambda now: commands.verdict(run, call_id, approved=approved, reason=None, seen_hash=seen_hash, now=now)
        )

    @rule(approved=st.booleans())
    @precondition(lambda self: self.waits_for("approval"))
    def somebody_judges_all(self, approved: bool) -> None:
        for call in waiting_for_verdict(self.world.run):
            self.attempt(
                lambda now, id=call.id: commands.verdict(
                    self.world.run, id, approved=approved, reason=None, seen_hash=None, now=now
                )
            )

    @rule(max_turns=caps, budget=budgets, deadline=deadlines, which=st.integers(0, 7))
    def somebody_resumes(
        self, max_turns: int | None, budget: Decimal | None, deadline: float | None, which: int
    ) -> None:
        raised: dict[str, Any] = {}
        if which & 1:
            raised["max_turns"] = max_turns
        if which & 2:
            raised["max_budget_usd"] = budget
        if which & 4:
            raised["deadline_seconds"] = deadline
        self.attempt(lambda now: commands.resume(self.world.run, commands.RaisedLimits(**raised), now))

    @rule()
    def somebody_raises_every_limit(self) -> None:
        run = self.world.run
        raised = commands.RaisedLimits(max_turns=run.turns + 3, max_budget_usd=None, deadline_seconds=None)
        self.attempt(lambda now: commands.resume(run, raised, now))

    @rule()
    def somebody_cancels(self) -> None:
        self.attempt(lambda now: commands.cancel(self.world.run, "stop", now))

    @rule(random=randoms, ok=st.booleans(), everything=st.booleans())
    def the_client_posts_outputs(self, random: Random, ok: bool, everything: bool) -> None:
        """Of the calls that it was asked to make, or of any."""
        awaited = commands.awaited(self.world.run)
        posted = awaited or list(self.world.run.calls)
        if not everything:
            posted = random.sample(posted, random.randint(0, len(posted)))
        self.chance.writes += bool(awaited and posted)
        outputs = [ToolOutput(call_id=call.id, output=self.chance.seen(call), ok=ok) for call in posted]
        self.attempt(lambda now: commands.tool_outputs(self.world.run, outputs, now))

    @rule(seconds=st.sampled_from([1, 20, 3600]))
    def time_passes(self, seconds: int) -> None:
        self.world.now += timedelta(seconds=seconds)

    # --- how it happens

    @property
    def running(self) -> bool:
        return self.world.run.status is Status.RUNNING

    def help_on(self, random: Random) -> None:
        match reason_of(self.world.run.interruption):
            case "approval":
                self.somebody_judges(random, random.random() < 0.8, "looked", "waiting")
            case "tool_outputs":
                self.the_client_posts_outputs(random, random.random() < 0.8, random.random() < 0.5)
            case "in_doubt" if random.random() < 0.3:
                self.the_client_posts_outputs(random, True, True)
            case "in_doubt":
                call = commands.awaited(self.world.run)[0]
                approved = random.random() < 0.7
                self.attempt(
                    lambda now: commands.verdict(
                        self.world.run, call.id, approved=approved, reason=None, seen_hash=None, now=now
                    )
                )
            case _:
                self.somebody_raises_every_limit()

    def waits_for(self, reason: str) -> bool:
        return self.world.run.reason == reason

    def act(self, random: Random, events: int = 10**6) -> Iterator[e.Event]:
        """So many events of the next action; returns what is left of it."""
        self.chance.random = random
        action = self.world.decide()
        self.check_action(action)
        flight = self.world.perform(action, self.chance)
        for _ in range(events):
            event = next(flight, None)
            if event is None:
                break
            self.took([event])
        self.asking = False
        return flight

    def attempt(self, command: Callable[[Any], list[e.Event]]) -> None:
        """What a command refuses changes nothing; what it gives is recorded as one."""
        before = self.world.run
        with suppress(RequestError):
            self.took(command(self.world.now))
            return
        assert self.world.run == before

    def took(self, events: list[e.Event]) -> None:
        for event in events:
            assert self.world.run.status not in ENDED, f"{event} after the end"
            self.book(event)
            self.world.record(event)

    # --- the books

    def book(self, event: e.Event) -> None:
        match event:
            case e.TurnStart():
                self.owed += event.estimate_usd
                self.estimate = event.estimate_usd
            case e.Turn():
                self.paid += bill(self.world.run.price, event)
                self.owed -= self.estimate
            case e.RunStopped():
                assert event.reason in REASONS[event.status]
                if self.asking and self.chance.last_fate in ("down", "refused"):
                    self.owed -= self.estimate
            case e.ToolStart():
                self.book_intent(event)
            case e.ToolResult():
                self.book_result(event)
            case e.VerdictGiven():
                self.verdicts[event.call] = event.approved
                (self.may_run_again.add if event.approved else self.may_run_again.discard)(event.call)
            case _:
                pass

    def book_intent(self, event: e.ToolStart) -> None:
        run, spec = self.world.run, self.world.run.tool(event.tool_name)
        assert spec is not None
        assert not spec.client_side
        if spec.needs_approval:
            assert run.policies.approval != "deny"
            assert run.policies.approval == "auto" or self.verdicts.get(event.call) is True
        assert self.verdicts.get(event.call) is not False
        if event.call in self.begun and not (spec.read_only or spec.idempotent):
            assert event.call in self.may_run_again, "a write was run twice and nobody had said so"
        self.may_run_again.discard(event.call)
        self.begun.add(event.call)

    def book_result(self, event: e.ToolResult) -> None:
        run, spec = self.world.run, self.world.run.tool(event.tool_name)
        assert event.call not in self.answered
        self.answered[event.call] = event.content
        self.executed += event.source in ("tool", "settled")
        if event.source == "cache":
            assert spec is not None
            assert run.policies.dedupe != "off"
            if run.policies.dedupe == "read_only":
                assert spec.cacheable
                assert event.content.endswith(f" after {self.chance.writes} writes"), "a stale answer"
        if event.source == "refusal":
            assert self.verdicts.get(event.call) is False or run.policies.approval == "deny"
            assert event.content or run.policies.refusal == "silent"
        if event.source == "client" and spec is not None and spec.needs_approval:
            assert run.policies.approval == "auto" or self.verdicts.get(event.call) is True

    def check_action(self, action: Action) -> None:
        run, limits = self.world.run, self.world.run.limits
        assert action == self.world.decide()
        match action:
            case AskModel():
                self.asking = True
                assert not outstanding(run)
                assert all(call.id in self.answered for call in run.calls)
                assert limits.max_turns is None or run.turns < limits.max_turns
                assert limits.max_budget_usd is None or self.paid + self.owed < limits.max_budget_usd
                assert limits.deadline_seconds is None or driven_seconds(run, self.world.now) < limits.deadline_seconds
            case UseTools(steps=steps):
                together = [step.call.id for step in steps]
                assert together == [call.id for call in outstanding(run) if call.id in together]
                assert len(steps) == 1 or not about_to_write(action)
            case Stop() | Rest():
                pass

    # --- what must be true

    @invariant()
    def the_run_is_its_replay(self) -> None:
        run, events = self.world.run, self.world.events
        assert reloaded("n1", events) == run
        assert replay("n1", events) == run
        assert run.seq == len(events)

    @invariant()
    def a_stopped_run_never_acts(self) -> None:
        assert (self.world.decide() == Rest()) == (not self.running)

    @invariant()
    def no_turn_is_paid_twice_and_none_is_forgotten(self) -> None:
        run = self.world.run
        assert run.cost_usd == self.paid
        assert run.unconfirmed_cost_usd == self.owed
        assert run.turns == sum(isinstance(message, Assistant) for message in run.messages)

    @invariant()
    def every_call_has_one_answer_and_in_the_order_asked(self) -> None:
        for turn, (assistant, answers, last) in enumerate(turns_of(self.world.run.messages), start=1):
            asked = [(f"n1:{turn}:{index}", call) for index, call in enumerate(assistant.tool_calls)]
            expected = [
                Tool(call.id, call.function.name, self.answered[id]) for id, call in asked if id in self.answered
            ]
            assert answers == expected
            assert last or len(answers) == len(asked)

    @invariant()
    def executions_are_counted(self) -> None:
        assert self.world.run.tool_runs == self.executed

    @invariant()
    def verdicts_are_never_lost(self) -> None:
        run = self.world.run
        for call in run.calls:
            assert (call.verdict and call.verdict.approved) == self.verdicts.get(call.id)
        given = Counter(self.verdicts.values())
        assert (len(run.approved), len(run.rejected)) == (given[True], given[False])

    @invariant()
    def a_run_that_waits_says_what_it_waits_for(self) -> None:
        run = self.world.run
        match reason_of(run.interruption):
            case "approval":
                assert run.interruption.call_id == waiting_for_verdict(run)[0].id
            case "tool_outputs" | "in_doubt":
                assert commands.awaited(run)
            case None:
                assert run.status in (Status.RUNNING, *ENDED)
            case _:
                pass
        assert (run.error is not None) == (run.status is Status.FAILED)
        assert run.output == ("done" if run.status is Status.COMPLETED else "")

    @invariant()
    def driving_takes_no_longer_than_the_clock(self) -> None:
        run = self.world.run
        assert timedelta() <= run.driven <= self.world.now - run.created_at

    def teardown(self) -> None:
        """Every run can be brought to its end by people of good will."""
        if not hasattr(self, "world"):
            return
        for _ in range(60):
            if self.world.run.status in ENDED:
                return
            self.bring_on()
        raise AssertionError(f"never ends: {self.world.run.status} {self.world.run.interruption}")

    def bring_on(self) -> None:
        world = self.world
        match reason_of(world.run.interruption):
            case None:
                world.step(Tame())
            case "approval":
                world.approve(waiting_for_verdict(world.run)[-1].id)
            case "in_doubt":
                world.reject(commands.awaited(world.run)[0].id)
            case "tool_outputs":
                world.post_all([ToolOutput(call_id=call.id, output="ok") for call in commands.awaited(world.run)])
            case _:
                world.resume(max_turns=world.run.turns + 9, max_budget_usd=None, deadline_seconds=None)


def bill(price: Price, turn: e.Turn) -> Decimal:
    """In other words than the core: input and output, a million at a time."""
    return (price.input * turn.prompt_tokens + price.output * turn.completion_tokens) / 10**6


def about_to_write(action: Action) -> bool:
    return isinstance(action, UseTools) and any(
        isinstance(step, Execute) and not step.spec.read_only for step in action.steps
    )


def turns_of(messages: tuple[Message, ...]) -> Iterator[tuple[Assistant, list[Tool], bool]]:
    """Each reply, the answers behind it, and whether it is the last."""
    places = [place for place, message in enumerate(messages) if isinstance(message, Assistant)]
    for place, end in pairwise([*places, len(messages)]):
        assistant, behind = messages[place], messages[place + 1 : end]
        assert isinstance(assistant, Assistant)
        assert all(isinstance(message, Tool) for message in behind)
        yield assistant, [message for message in behind if isinstance(message, Tool)], end == len(messages)


TestAnyRun = AnyRun.TestCase
TestAnyRun.settings = settings(max_examples=5 * settings().max_examples)
