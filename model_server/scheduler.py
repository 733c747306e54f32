"""Which tokens are computed next, and for whom. Pure: no model, no clock, no threads.

Schedule, run, settle: `plan` says what to compute, somebody computes it, and `append`, `end` or `undo` say how it went;
then `plan` again. In every batch:
- each reply that is being written gets its next token;
- the rest of the batch goes to prompts, the shortest remainder first in one batch and the oldest request first in the
  next, so that short prompts answer soon and long ones are not starved;
- a request that begins like another one whose prompt is being computed waits for it, and then shares its cells.

A request needs cells as it grows. If there are none left, idle sequences are evicted; if that is not enough, the
youngest request goes back to the queue with what it has written, and is computed again later. The oldest never does,
so something always ends.
"""

from bisect import insort
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from model_server.cells import Cells, Line, Operation, shared_length

HEADROOM_CELLS = 32  # left to each running reply when another request is admitted
WAIT_TOKENS_MIN = 16  # a shared beginning shorter than this is not worth waiting for


class Limits(Struct, frozen=True, kw_only=True):
    cells: int
    sequences: int  # that work at the same time
    kept: int  # idle sequences that are remembered besides
    queue: int  # requests that wait
    batch_tokens: int = 256
    batch_tokens_beside_replies: int = 128  # so that replies being written do not stall for long


class Task(Struct, eq=False):
    """A request: the prompt, and what was written after it. `cached` prompt tokens were found when it first began."""

    id: int
    tokens: list[int]
    prompt_tokens: int
    line: Line | None = None
    cached: int | None = None

    @property
    def done(self) -> int:
        return len(self.line.tokens) if self.line else 0

    @property
    def left(self) -> int:
        return len(self.tokens) - self.done


class Share(Struct, frozen=True):
    """One request's part of a batch. `whole` says that nothing is left to compute, so that a token can be chosen."""

    task: int
    sequence: int
    position: int
    tokens: tuple[int, ...]
    whole: bool


class Plan(Struct, frozen=True):
    """Operations on the memory, in order, and then a batch, which may be empty."""

    operations: tuple[Operation, ...]
    shares: tuple[Share, ...]

    @property
    def token_count(self) -> int:
        return sum(len(share.tokens) for share in self.shares)


class QueueFull(Exception):
    pass


class Scheduler:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.cells = Cells(limits.cells, limits.sequences + limits.kept)
        self.preemptions = 0
        self._waiting: list[Task] = []
        self._working: dict[int, Task] = {}
        self._oldest_first = False

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @property
    def working_count(self) -> int:
        return len(self._working)

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._working

    def task(self, number: int) -> Task:
        return self._working[number]

    # ── requests come and go ──

    def submit(self, number: int, prompt: Sequence[int], tokens_max: int) -> None:
        """Numbers grow with time. `tokens_max` of reply and the prompt must fit into all cells together."""
        if not prompt or len(prompt) + tokens_max > self.limits.cells:
            raise ValueError("a request must have a prompt, and fit into the cells with its reply")
        if len(self._waiting) >= self.limits.queue + self.limits.sequences - len(self._working):
            raise QueueFull
        self._waiting.append(Task(number, list(prompt), len(prompt)))

    def append(self, number: int, token: int) -> None:
        """The token that was chosen after the request's last one. It is computed in the next batch."""
        self._working[number].tokens.append(token)

    def end(self, number: int) -> None:
        """Answered, failed or cancelled, in whatever state it is. What was computed of it stays as an idle sequence."""
        if task := self._working.pop(number, None):
            self._leave(task)
        else:
            self._waiting = [task for task in self._waiting if task.id != number]

    def undo(self, share: Share) -> None:
        """The share was planned and not computed."""
        task = self._working.get(share.task)
        if task and task.line:
            self.cells.keep(task.line, share.position)

    # ── what is next ──

    def plan(self) -> Plan | None:
        """None when there is nothing at all to do."""
        self._admit()
        shares = [*self._replies()]
        shares += self._prompts(shares)
        operations = self.cells.take_operations()
        return Plan(operations, tuple(shares)) if operations or shares else None

    def plan_alone(self, number: int) -> Plan | None:
        """A batch for one request only: how the one is found that makes batches fail."""
        task = self._working.get(number)
        if task is None or not self.cells.make_room(1):
            return None
        share = self._share(task, self._room_for(min(self.limits.batch_tokens, task.left), alone=False))
        return Plan(self.cells.take_operations(), (share,))

    def _admit(self) -> None:
        for task in [*self._waiting]:
            if len(self._working) >= self.limits.sequences:
                return
            source, shared = self.cells.longest(task.tokens)
            shared = min(shared, len(task.tokens) - 1)  # the last token is always computed, or there is no logit
            if self._is_coming(task, shared):
                continue
            if not self.cells.fits(len(task.tokens) - shared + self._promised(), source, shared):
                return
            self._begin(task, source, shared)

    def _is_coming(self, task: Task, shared: int) -> bool:
        """Whether somebody is computing more of this prompt just now than is already there."""
        worth = shared + WAIT_TOKENS_MIN
        return any(
            min(shared_length(other.tokens, task.tokens), len(task.tokens) - 1) >= max(worth, other.done + 1)
            for other in self._working.values()
        )

    def _promised(self) -> int:
        """Cells that the requests at work will still take."""
        return sum(task.left + HEADROOM_CELLS for task in self._working.values())

    def _begin(self, task: Task, source: Line | None, shared: int) -> None:
        self._waiting.remove(task)
        self._working[task.id] = task
        task.line = self.cells.seat(source, shared)
        if task.cached is None:
            task.cached = shared

    def _replies(self) -> Iterator[Share]:
        for task in self._by_age():
            if task.left == 1 and task.line and self._make_room(task):
                yield self._share(task, 1)

    def _make_room(self, task: Task) -> bool:
        """One cell for a reply, at the cost of the youngest request, which may be this one."""
        while not self.cells.make_room(1):
            youngest = self._by_age()[-1]
            self._preempt(youngest)
            if youngest is task:
                return False
        return True

    def _prompts(self, replies: Sequence[Share]) -> Iterator[Share]:
        budget = self.limits.batch_tokens - len(replies)
        if replies:
            budget = min(budget, self.limits.batch_tokens_beside_replies)
        order: Callable[[Task], int] = _age if self._oldest_first else _left
        self._oldest_first = not self._oldest_first
        planned = {share.task for share in replies}
        for task in sorted((task for task in self._working.values() if task.id not in planned), key=order):
            count = self._room_for(min(budget, task.left), alone=not planned)
            if count and task.line:
                planned.add(task.id)
                budget -= count
                yield self._share(task, count)

    def _room_for(self, count: int, *, alone: bool) -> int:
        """How much of `count` there is room for. Only when nothing else could go on does another request make way."""
        while count and not self.cells.make_room(count):
            count //= 2
            if not count and alone and len(self._working) > 1:
                self._preempt(self._by_age()[-1])
                count = 1
        return count

    def _share(self, task: Task, count: int) -> Share:
        assert task.line is not None
        start = task.done
        tokens = task.tokens[start : start + count]
        self.cells.extend(task.line, tokens)
        return Share(task.id, task.line.id, start, tuple(tokens), whole=not task.left)

    def _preempt(self, task: Task) -> None:
        self.preemptions += 1
        del self._working[task.id]
        self._leave(task)
        insort(self._waiting, task, key=_age)

    def _leave(self, task: Task) -> None:
        if task.line:
            self.cells.park(task.line)
            task.line = None

    def _by_age(self) -> list[Task]:
        return sorted(self._working.values(), key=_age)


def _age(task: Task) -> int:
    return task.id


def _left(task: Task) -> int:
    return task.left
