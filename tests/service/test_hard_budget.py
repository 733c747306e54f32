"""Hard budgets where replies are lost on their way: what may have been billed is never asked for again."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from gateway.core.errors import ProviderUnavailable
from gateway.core.estimates import worst_prompt_tokens
from gateway.core.events import Event
from gateway.core.loop import apply, decide
from gateway.core.messages import Assistant, Function, ToolCall
from gateway.core.ports import Announce, Reply, Sending
from gateway.core.pricing import ZERO, Price, Usage, cost
from gateway.core.run import Limits, Run, Status
from gateway.core.stopping import RULES
from gateway.service.perform import perform
from gateway.service.ports import Ports
from tests.core.world import NOON, World

RUNS = 1000
ATTEMPTS = 4


class LossyModel:
    """Loses replies after it has billed them, and asks again by itself, as the adapter does."""

    def __init__(self, chance: Random) -> None:
        self.billed = ZERO
        self.caps: list[int | None] = []
        self._chance = chance

    async def ask(
        self, run: Run, announce: Announce, on_delta: Callable[[str], None] | None, max_tokens: int | None = None
    ) -> Reply:
        for attempt in range(1, ATTEMPTS + 1):
            await announce(Sending(attempt, lost=attempt > 1))
            self.caps.append(max_tokens)
            usage = self._usage(run, max_tokens)
            self.billed += cost(run.price, usage)
            if self._chance.random() < 0.5:
                call = ToolCall("c1", "function", Function("list", "{}"))
                return Reply(message=Assistant(None, (call,)), usage=usage, finish="tool_calls", ms=1)
        raise ProviderUnavailable("every reply was lost.", lost=True)

    def _usage(self, run: Run, max_tokens: int | None) -> Usage:
        """As much as is allowed, half of the time."""
        completion = min(max_tokens or 0, self._chance.choice((10, 2_000_000)))
        prompt = worst_prompt_tokens(run) // self._chance.choice((1, 4))
        return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


class Echo:
    async def use(self, *_: Any) -> str:
        return "[]"


async def drive(run: Run, model: LossyModel) -> Run:
    ports = Ports(log=None, model=model, toolbox=Echo(), clock=lambda: NOON)  # type: ignore[arg-type]

    async def record(event: Event) -> None:
        nonlocal run
        run = apply(run, event)

    while run.status is Status.RUNNING:
        await perform(decide(run, RULES, NOON), run, NOON, ports, record)
    return run


def a_run(budget: Decimal, price: Price) -> Run:
    return World(limits=Limits(max_turns=8, max_budget_usd=budget, budget_mode="hard"), price=price).run


async def test_asking_again_after_a_lost_reply_is_within_what_is_left() -> None:
    """A budget for more tokens than one reply may ever have: the first attempt does not set all of it aside."""
    model = LossyModel(chance := Random(1))
    chance.random = lambda: 0.9  # type: ignore[method-assign]  # every reply is lost
    run = await drive(a_run(Decimal(15), Price(input=Decimal(1), output=Decimal(10))), model)

    assert model.caps[0] == 1_000_000
    assert model.caps[1] is not None
    assert model.caps[1] < 500_000
    assert model.billed <= run.spent_usd <= Decimal(15)
    assert run.status is Status.BUDGET_EXCEEDED


@pytest.mark.parametrize("batch", range(4))
async def test_no_loss_by_chance_overspends_a_hard_budget(batch: int) -> None:
    for seed in range(batch, RUNS, 4):
        chance = Random(seed)
        price = Price(input=Decimal(chance.randint(0, 500)) / 100, output=Decimal(chance.randint(1, 5000)) / 100)
        budget = Decimal(chance.randint(1, 9999)) / 10 ** chance.randint(0, 6)
        model = LossyModel(chance)
        run = await drive(a_run(budget, price), model)

        assert model.billed <= run.spent_usd <= budget, seed
