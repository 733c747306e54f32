"""A model, tools and limits that are anything: what hypothesis plays with."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from random import Random

from hypothesis import strategies as st

from gateway.core.calls import Execute
from gateway.core.pricing import Price
from gateway.core.run import Call, Limits, Policies, Run, ToolSpec
from tests.core.world import PRICE, Asked, Came, Fate, Player, Said, asks, says, tokens, tool

TOOLS = (
    tool("read", "path", read_only=True, cacheable=True),
    tool("poll", read_only=True),
    tool("write", "path"),
    tool("put", "path", idempotent=True),
    tool("delete", "path", needs_approval=True),
    tool("peek", "path", read_only=True, needs_approval=True),
    tool("ask_user", "question", client_side=True),
    tool("sign", "paper", client_side=True, needs_approval=True),
)
ASKED = (
    *(asks("read", path=path) for path in "aab"),
    asks("poll"),
    *(asks("write", path=path) for path in "ab"),
    asks("put", path="a"),
    *(asks("delete", path=path) for path in "ab"),
    asks("peek", path="a"),
    asks("ask_user", question="?"),
    asks("sign", paper="will"),
    asks("nothing"),
    asks("delete"),
    Asked("read", '{"path":'),
)
PRICES = (
    PRICE,
    Price(free=True),
    Price(input=Decimal("0.15"), output=Decimal("0.6"), cached_input=Decimal("0.075"), reasoning=Decimal(3)),
)

randoms = st.integers(0, 2**32).map(Random)
caps = st.none() | st.integers(1, 9)
budgets = st.none() | st.sampled_from([Decimal("0.0004"), Decimal("0.002"), Decimal("0.01"), Decimal("0.1")])
deadlines = st.none() | st.none() | st.sampled_from([3.0, 30.0])
limits = st.builds(Limits, max_turns=caps, max_budget_usd=budgets, deadline_seconds=deadlines).filter(
    lambda limits: limits.max_turns is not None or limits.max_budget_usd is not None
)
policies = st.builds(
    Policies,
    dedupe=st.sampled_from(["off", "read_only", "all"]),
    tool_errors=st.sampled_from(["worded", "worded", "worded", "fatal"]),
    on_permanent_error=st.sampled_from(["tell_once", "stop", "tell_model"]),
    approval=st.sampled_from(["ask", "ask", "auto", "deny"]),
    refusal=st.sampled_from(["worded", "silent"]),
)


class Chance(Player):
    """A provider and tools that do anything. What is read shows how often anything was written."""

    def __init__(self) -> None:
        super().__init__()
        self.random = Random(0)
        self.last_fate: Fate = "whole"
        self.writes = 0

    def fate(self) -> Fate:
        self.last_fate = self.random.choice(("whole",) * 20 + ("lost",) * 3 + ("down",) * 2 + ("refused",))
        return self.last_fate

    def reply(self, run: Run) -> Said:
        usage = tokens(self.random.randrange(600), self.random.randrange(60))
        asked = tuple(self.asked() for _ in range(self.random.choice((0, 1, 1, 2, 2, 2, 3, 3, 3))))
        return Said(asked, None if asked else "done", usage)

    def asked(self) -> Asked:
        one = self.random.choice(ASKED)
        return Asked(one.tool, one.arguments, self.random.choice(("c1", "c2", "c3", "n1:1:0")))

    def use(self, call: Call, spec: ToolSpec) -> Came:
        self.writes += not spec.read_only
        match self.random.randrange(20):
            case 0 | 1 | 2:
                return Came("Error: try again.", ok=False)
            case 3:
                return Came("Error: permission denied.", ok=False, permanent=True)
            case _:
                return Came(self.seen(call))

    def seen(self, call: Call) -> str:
        return f"{call.tool} {call.arguments} after {self.writes} writes"

    def finishing_order(self, steps: tuple[Execute, ...]) -> Sequence[Execute]:
        return self.random.sample(steps, len(steps))


class Tame(Player):
    """Everybody wants to go home."""

    def reply(self, run: Run) -> Said:
        return says("done")
