"""The scheduler against a model of memory that knows nothing but llama.cpp's rules: cells, and who they belong to."""

import dataclasses
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from model_server.cells import Copy, Keep, Operation, shared_length
from model_server.scheduler import Limits, Plan, QueueFull, Scheduler

LIMITS = Limits(cells=1000, sequences=4, kept=4, queue=8, batch_tokens=64, batch_tokens_beside_replies=32)


class Memory:
    """A unified KV cache: each cell has a token, a position and owners. Refuses what llama.cpp would refuse."""

    def __init__(self, cells_max: int, lines_max: int) -> None:
        self.cells_max = cells_max
        self.lines: dict[int, list[object]] = {number: [] for number in range(lines_max)}
        self.tokens: dict[int, int] = {}

    def apply(self, operations: tuple[Operation, ...]) -> None:
        for operation in operations:
            match operation:
                case Copy(source, target, length):
                    assert not self.lines[target], "a sequence is copied over another one"
                    assert len(self.lines[source]) >= length, "cells are copied that do not exist"
                    self.lines[target] = self.lines[source][:length]
                case Keep(sequence, length):
                    assert len(self.lines[sequence]) >= length, "cells are kept that do not exist"
                    del self.lines[sequence][length:]

    def decode(self, plan: Plan) -> None:
        for share in plan.shares:
            assert share.position == len(self.lines[share.sequence]), "a position is left out or computed twice"
            self.lines[share.sequence] += [Cell(token) for token in share.tokens]
        assert self.in_use <= self.cells_max, "there are not that many cells"

    @property
    def in_use(self) -> int:
        return len({id(cell) for cells in self.lines.values() for cell in cells})

    def read(self, line: int) -> list[int]:
        return [cell.token for cell in self.lines[line]]  # type: ignore[attr-defined]


@dataclasses.dataclass(eq=False)
class Cell:
    token: int


class Bench:
    """A scheduler, the memory it rules, and a model whose next token is always the same function of what it saw."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.scheduler = Scheduler(limits)
        self.memory = Memory(limits.cells, limits.sequences + limits.kept)
        self.wanted: dict[int, tuple[list[int], int]] = {}
        self.written: dict[int, list[int]] = {}
        self.ended: set[int] = set()
        self.number = 0
        self.plans: list[Plan] = []
        self.first_batch: dict[int, int] = {}

    def submit(self, prompt: list[int], tokens_max: int) -> int:
        self.number += 1
        self.scheduler.submit(self.number, prompt, tokens_max)
        self.wanted[self.number] = (prompt, tokens_max)
        self.written[self.number] = []
        return self.number

    def end(self, number: int) -> None:
        self.scheduler.end(number)
        self.ended.add(number)

    def step(self) -> Plan | None:
        plan = self.scheduler.plan()
        if plan is None:
            return None
        self.plans.append(plan)
        self.memory.apply(plan.operations)
        self.memory.decode(plan)
        for share in plan.shares:
            seen = self.memory.read(share.sequence)
            assert seen == (self.wanted[share.task][0] + self.written[share.task])[: len(seen)]
            if share.whole:
                self._write(share.task, seen)
        return plan

    def _write(self, number: int, seen: list[int]) -> None:
        prompt, tokens_max = self.wanted[number]
        assert seen == prompt + self.written[number]
        self.first_batch.setdefault(number, len(self.plans))
        self.written[number].append(-1 - len(seen) % 7)
        if len(self.written[number]) == tokens_max:
            self.end(number)
        else:
            self.scheduler.append(number, self.written[number][-1])

    def run(self) -> None:
        for _ in range(5000):
            if self.step() is None:
                return
        raise AssertionError("it does not come to an end")

    def cached(self, number: int) -> int | None:
        return self.scheduler.task(number).cached

    def check(self) -> None:
        cells = self.scheduler.cells
        holders = Counter(cell for line in cells.lines.values() for cell in line.cells)
        assert cells.in_use == len(holders) <= cells.cells_max
        assert len({line.id for line in cells.lines.values()}) == len(cells.lines) <= len(self.memory.lines)
        assert sum(line.busy for line in cells.lines.values()) == self.scheduler.working_count
        assert all(len(line.tokens) == len(line.cells) for line in cells.lines.values())


# ── by example ────────────────────────────────────────────────────────────────────────────────────────────────────────

SYSTEM = [*range(1, 101)]


def test_a_prompt_is_computed_in_chunks_and_then_a_token_at_a_time() -> None:
    bench = Bench()
    bench.submit(SYSTEM, 3)
    bench.run()

    assert [plan.token_count for plan in bench.plans if plan.shares] == [64, 36, 1, 1]


def test_the_next_turn_of_an_agent_computes_only_what_it_adds() -> None:
    bench = Bench()
    first = bench.submit(SYSTEM, 5)
    bench.run()
    said = bench.written[first]
    second = bench.submit([*SYSTEM, *said, 500, 501], 1)
    plan = bench.step()

    assert plan is not None
    assert plan.token_count == 3  # the last token that was said was never computed
    assert bench.ended >= {first, second}
    assert bench.scheduler.cells.in_use == 107


def test_the_same_prompt_again_computes_one_token() -> None:
    bench = Bench()
    bench.submit(SYSTEM, 1)
    bench.run()
    bench.submit(SYSTEM, 1)
    plan = bench.step()

    assert plan is not None
    assert [share.tokens for share in plan.shares] == [(100,)]


def test_another_agent_shares_the_cells_of_the_beginning_they_have_in_common() -> None:
    bench = Bench()
    bench.submit([*SYSTEM, 500], 1)
    bench.run()
    bench.submit([*SYSTEM, 600], 1)
    bench.run()

    assert bench.scheduler.cells.in_use == 102
    assert [plan.token_count for plan in bench.plans if plan.shares] == [64, 37, 1]


def test_requests_that_come_together_compute_what_they_share_only_once() -> None:
    bench = Bench()
    for number in range(4):
        bench.submit([*SYSTEM, 500 + number], 1)
    bench.run()

    assert sum(plan.token_count for plan in bench.plans) == 104
    assert bench.scheduler.cells.in_use == 104


def test_who_waits_for_the_other_s_prompt_goes_on_alone_when_the_other_is_cancelled() -> None:
    bench = Bench()
    first = bench.submit([*SYSTEM, 500], 1)
    second = bench.submit([*SYSTEM, 600], 1)
    bench.step()
    bench.end(first)
    bench.run()

    assert second in bench.ended
    assert sum(plan.token_count for plan in bench.plans) == 101


def test_replies_get_a_token_in_every_batch_while_prompts_are_computed() -> None:
    bench = Bench()
    bench.submit([1], 50)
    bench.step()
    bench.submit([*range(200, 500)], 1)
    counts = [plan.token_count for plan in iter(bench.step, None)]

    assert counts[:9] == [33] * 9
    assert len(bench.written[1]) == 50


def test_a_short_prompt_does_not_wait_for_a_long_one_nor_a_long_one_for_ever() -> None:
    bench = Bench(dataclasses_replace(LIMITS, cells=4000, sequences=8))
    long = bench.submit([*range(1000, 2000)], 1)
    bench.step()
    short = [bench.submit([*range(number * 100, number * 100 + 60)], 1) for number in range(20, 26)]
    bench.run()

    assert bench.first_batch[short[0]] <= 4
    assert all(bench.first_batch[number] < bench.first_batch[long] for number in short)
    halves = [plan for plan in bench.plans if any(share.task == long for share in plan.shares)]
    assert len(halves) >= len(bench.plans) // 2


def dataclasses_replace(limits: Limits, **changes: int) -> Limits:
    from msgspec.structs import replace

    return replace(limits, **changes)


def test_agents_that_take_turns_do_not_evict_each_other() -> None:
    bench = Bench(dataclasses_replace(LIMITS, cells=4000, kept=12))
    histories = {agent: [*SYSTEM, 1000 * agent] for agent in range(1, 9)}
    for turn in range(5):
        for agent, history in histories.items():
            number = bench.submit(history, 4)
            before = sum(plan.token_count for plan in bench.plans)
            bench.run()
            computed = sum(plan.token_count for plan in bench.plans) - before
            assert computed <= (101 if turn == 0 and agent == 1 else 4) + 4
            history += [*bench.written[number], 5000 + turn]

    assert bench.scheduler.cells.evicted == 0


def test_the_least_recently_used_sequence_is_evicted_from_its_end() -> None:
    bench = Bench(dataclasses_replace(LIMITS, cells=300))
    for start in (1000, 2000, 3000):
        bench.submit([*range(start, start + 90)], 1)
        bench.run()
    bench.submit([*range(4000, 4100)], 1)
    bench.run()

    kept = {line.tokens[0]: len(line.tokens) for line in bench.scheduler.cells.lines.values()}
    assert kept == {1000: 20, 2000: 90, 3000: 90, 4000: 100}


def test_a_reply_that_outgrows_the_memory_sends_the_youngest_request_back_and_both_end() -> None:
    bench = Bench(dataclasses_replace(LIMITS, cells=300))
    bench.submit([*range(1000, 1100)], 150)
    bench.submit([*range(2000, 2080)], 100)
    bench.run()

    assert bench.scheduler.preemptions >= 1
    assert bench.ended == {1, 2}


def test_more_requests_than_may_wait_are_refused() -> None:
    bench = Bench()
    for number in range(LIMITS.sequences + LIMITS.queue):
        bench.submit([number], 1)

    with pytest.raises(QueueFull):
        bench.submit([99], 1)


@pytest.mark.parametrize(("prompt", "tokens_max"), [([], 1), ([1] * 1000, 1), ([1], 1000)])
def test_what_can_never_fit_is_refused_before_anything_is_computed(prompt: list[int], tokens_max: int) -> None:
    bench = Bench()

    with pytest.raises(ValueError, match="fit"):
        bench.submit(prompt, tokens_max)
    assert bench.step() is None


def test_a_batch_that_was_not_computed_is_planned_again() -> None:
    bench = Bench()
    bench.submit(SYSTEM, 2)
    plan = bench.scheduler.plan()
    assert plan is not None
    bench.memory.apply(plan.operations)
    for share in plan.shares:
        bench.scheduler.undo(share)
    bench.run()

    assert bench.ended == {1}


def test_a_request_can_be_computed_alone() -> None:
    bench = Bench()
    for number in range(3):
        bench.submit([number] * 40, 2)
    plan = bench.scheduler.plan()
    assert plan is not None
    assert len(plan.shares) == 2
    for share in plan.shares:
        bench.scheduler.undo(share)
    alone = bench.scheduler.plan_alone(2)

    assert alone is not None
    assert [share.task for share in alone.shares] == [2]


@given(st.lists(st.integers(0, 2), max_size=600), st.lists(st.integers(0, 2), max_size=600), st.integers(0, 600))
def test_shared_beginnings_are_found_to_the_token(one: list[int], other: list[int], copied: int) -> None:
    other = one[:copied] + other
    naive = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))

    assert shared_length(one, other) == naive


# ── whatever happens ──────────────────────────────────────────────────────────────────────────────────────────────────


class AnyHistory(RuleBasedStateMachine):
    """Requests with common beginnings come, go and are cancelled, in a memory that is too small for all of them."""

    bench: Bench

    @initialize(
        cells=st.integers(60, 400), sequences=st.integers(1, 4), kept=st.integers(0, 4), batch=st.integers(4, 64)
    )
    def begin(self, cells: int, sequences: int, kept: int, batch: int) -> None:
        limits = Limits(cells=cells, sequences=sequences, kept=kept, queue=6, batch_tokens=batch)
        self.bench = Bench(limits)

    @rule(parent=st.integers(0, 20), kept=st.integers(0, 80), added=st.integers(1, 60), tokens_max=st.integers(1, 40))
    def submit(self, parent: int, kept: int, added: int, tokens_max: int) -> None:
        prompt, _ = self.bench.wanted.get(parent, ([], 0))
        prompt = (prompt + self.bench.written.get(parent, []))[:kept] + [self.bench.number] * added
        try:
            self.bench.submit(prompt, tokens_max)
        except QueueFull:
            assert self.bench.scheduler.waiting_count >= 1
        except ValueError:
            assert len(prompt) + tokens_max > self.bench.scheduler.limits.cells

    @rule()
    def step(self) -> None:
        self.bench.step()

    @rule()
    def reuse_is_at_least_the_naive_longest_common_prefix(self) -> None:
        lines = [list(line.tokens) for line in self.bench.scheduler.cells.lines.values()]
        waiting = {number for number in self.bench.wanted if number not in self.bench.ended} - set(
            self.bench.scheduler._working
        )
        self.bench.step()
        for number in waiting & set(self.bench.scheduler._working):
            prompt, _ = self.bench.wanted[number]
            naive = max((shared_length(line, prompt) for line in lines), default=0)
            if not self.bench.written[number] and self.bench.scheduler.preemptions == 0:
                cached = self.bench.cached(number)
                assert cached is not None
                assert cached >= min(naive, len(prompt) - 1) or self.bench.scheduler.cells.evicted

    @precondition(lambda self: set(self.bench.wanted) - self.bench.ended)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.bench.end(data.draw(st.sampled_from(sorted(set(self.bench.wanted) - self.bench.ended))))

    @rule()
    def run_until_all_have_ended(self) -> None:
        self.bench.run()
        assert set(self.bench.wanted) == self.bench.ended

    @invariant()
    def the_account_is_right(self) -> None:
        if hasattr(self, "bench"):
            self.bench.check()

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.run_until_all_have_ended()
            self.bench.memory.apply(self.bench.scheduler.cells.take_operations())
            assert self.bench.memory.in_use == self.bench.scheduler.cells.in_use
            self.bench.scheduler.cells.forget_idle()
            assert self.bench.scheduler.cells.in_use == 0


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=150, stateful_step_count=40)
