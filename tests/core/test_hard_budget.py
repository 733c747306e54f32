"""Budgets, over ten thousand runs by chance: a hard one is never overspent, a soft one by one turn at most.

The provider keeps its word and nothing else: a prompt has at most as many tokens as bytes were added since the last
count (and the margin), a reply at most `max_tokens`. Prices, sizes, lost replies, crashes, raised budgets: all chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from random import Random

import pytest
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.codec import encode
from gateway.core.errors import WrongState
from gateway.core.estimates import PROMPT_MARGIN_TOKENS, expected_usage
from gateway.core.loop import AskModel
from gateway.core.messages import Message
from gateway.core.pricing import ZERO, Price, Usage, cost, total
from gateway.core.run import Limits, ProviderDown, Run, Status
from gateway.core.stopping import Stop
from tests.core.world import Asked, Came, Player, Said, World, asks, tool

RUNS = 10_000
BATCHES = 10
ACTIONS_MAX = 40
TOOLS = (tool("list", read_only=True), tool("read", "path", read_only=True))
WORDS = ("ok", "a longer answer, in words", "ü–🙂" * 9, "x" * 700)


class Provider:
    """Counts, bills and keeps its word. `billed` is what it will ask for in the end, lost replies included."""

    def __init__(self, chance: Random, price: Price) -> None:
        self.billed = ZERO
        self.dearest_turn = ZERO
        self._chance = chance
        self._price = price
        self._counted_bytes = 0
        self._counted_tokens = 0

    def reply(self, run: Run, max_tokens: int | None) -> tuple[Said, str]:
        """A reply and why it ended, billed whether it arrives or not."""
        wanted = self._chance.choice((1, 30, 400, 5_000, 2_000_000))
        completion = wanted if max_tokens is None else min(wanted, max_tokens)
        prompt = self._prompt_tokens(run)
        usage = Usage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            total_tokens=prompt + completion,
            cached_tokens=self._chance.choice((0, prompt // 2, prompt)),
            reasoning_tokens=self._chance.choice((0, completion // 2, completion)),
        )
        self._bill(cost(self._price, usage))
        finish = "length" if completion < wanted else "stop"
        return Said(self._calls(cut=finish == "length"), self._chance.choice(WORDS), usage), finish

    def arrived(self, run: Run, said: Said) -> None:
        self._counted_bytes = request_bytes(run.messages)
        self._counted_tokens = said.usage.prompt_tokens

    def _prompt_tokens(self, run: Run) -> int:
        added = request_bytes(run.messages) - self._counted_bytes
        most = self._counted_tokens + added + PROMPT_MARGIN_TOKENS
        return self._chance.choice((most, most, self._chance.randint(0, most), added // 4))

    def _calls(self, *, cut: bool) -> tuple[Asked, ...]:
        if cut and self._chance.random() < 0.5:
            return (Asked("read", '{"path":"a'),)
        return self._chance.choice(((), (asks("list"),), (asks("list"), asks("read", "c2", path="a"))))

    def _bill(self, amount: Decimal) -> None:
        self.billed += amount
        self.dearest_turn = max(self.dearest_turn, amount)


def request_bytes(messages: Sequence[Message]) -> int:
    return sum(len(encode(message)) for message in messages) + len(encode(TOOLS))


class Tools(Player):
    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance = chance

    def use(self, *_: object) -> Came:
        return Came(self._chance.choice(WORDS) * self._chance.choice((1, 1, 40)))


class Life:
    """One run by chance, looked at after every event."""

    def __init__(self, seed: int, mode: str) -> None:
        self.chance = Random(seed)
        price = price_by(self.chance)
        budget = Decimal(self.chance.randint(1, 999)) / 10 ** self.chance.randint(1, 7)
        limits = Limits(max_turns=12, max_budget_usd=budget, budget_mode="hard" if mode == "hard" else "soft")
        self.world = World(limits=limits, tools=TOOLS, price=price)
        self.provider = Provider(self.chance, price)
        self.tools = Tools(self.chance)
        self.lost = False

    def go(self) -> None:
        for _ in range(ACTIONS_MAX):
            if self.world.run.status is not Status.RUNNING and not self.goes_on():
                return
            match self.world.decide():
                case AskModel() as action:
                    self.ask(action)
                case action:
                    for event in self.world.perform(action, self.tools):
                        self.record(event)

    def ask(self, action: AskModel) -> None:
        """As the service asks: what a request may cost is recorded before it is sent."""
        self.before_asking()
        run = self.world.run
        estimate = cost(run.price, expected_usage(run)) if action.worst_usd is None else action.worst_usd
        unconfirmed = total(run.unconfirmed_cost_usd, estimate)
        self.record(
            e.TurnStart(turn=run.turns + 1, estimate_usd=estimate, unconfirmed_usd=unconfirmed, time=self.world.now)
        )
        fate = self.chance.choice(("whole",) * 12 + ("lost", "crash", "down"))
        if fate == "down":
            self.record(self.world.turned_away(Stop(Status.INTERRUPTED, ProviderDown("503")), unconfirmed - estimate))
            return
        said, finish = self.provider.reply(run, action.max_tokens)
        if fate == "whole":
            turn = self.world.turn(said, unconfirmed - estimate)
            self.provider.arrived(run, said)
            self.record(replace(turn, finish=finish, max_tokens=action.max_tokens))
            return
        self.lost = True
        if fate == "crash":
            self.world.recover()

    def goes_on(self) -> bool:
        """Whoever resumes raises the budget, if only by a little."""
        run = self.world.run
        if run.status in (Status.COMPLETED, Status.FAILED, Status.MAX_TURNS_EXCEEDED) or self.chance.random() < 0.4:
            return False
        least = max(run.spent_usd, run.limits.max_budget_usd or ZERO)
        try:
            self.world.resume(max_budget_usd=least * self.chance.choice((2, Decimal("1.01"))) + Decimal("0.0001"))
        except WrongState:  # still too little for any reply
            return False
        return True

    def record(self, event: e.Event) -> None:
        self.world.record(event)
        self.after_event()

    def before_asking(self) -> None: ...

    def after_event(self) -> None: ...

    @property
    def budget(self) -> Decimal:
        assert self.world.run.limits.max_budget_usd is not None
        return self.world.run.limits.max_budget_usd


class HardLife(Life):
    def after_event(self) -> None:
        """What is billed is known or held as unconfirmed, and the two are within the budget: at every moment."""
        assert self.world.run.spent_usd <= self.budget


class SoftLife(Life):
    def before_asking(self) -> None:
        assert self.world.run.spent_usd < self.budget


def price_by(chance: Random) -> Price:
    def rate() -> Decimal:
        return chance.choice((ZERO, Decimal("0.013"), Decimal(2), Decimal(12), Decimal(chance.randint(1, 9999)) / 100))

    return Price(
        input=rate(),
        output=rate(),
        cached_input=chance.choice((None, rate())),
        reasoning=chance.choice((None, rate())),
    )


@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_hard_budget_is_never_overspent(batch: int) -> None:
    stops = set()
    for seed in range(batch, RUNS, BATCHES):
        life = HardLife(seed, "hard")
        life.go()
        stops.add(life.world.run.status)

        assert life.provider.billed <= life.world.run.spent_usd <= life.budget, seed

    assert {Status.COMPLETED, Status.BUDGET_EXCEEDED, Status.INTERRUPTED} <= stops


@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_soft_budget_is_overspent_by_one_turn_at_most(batch: int) -> None:
    over = 0
    for seed in range(batch, RUNS, BATCHES):
        life = SoftLife(seed, "soft")
        life.go()
        if not life.lost:
            assert life.provider.billed == life.world.run.cost_usd, seed
            assert life.world.run.cost_usd <= life.budget + life.provider.dearest_turn, seed
            over += life.world.run.cost_usd > life.budget

    assert over
