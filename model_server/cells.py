"""The model's memory of tokens, as the scheduler knows it: sequences, their cells, and who may be evicted. Pure.

One cell holds what the model computed for one token at one position. Sequences that begin alike share cells. What this
decides becomes a list of operations (`Copy`, `Keep`) that the engine carries out on the real memory in the same order,
so the account here is exact as long as nobody else touches that memory.

An **idle** sequence belongs to no request. It is kept because a later prompt may begin like it, and is the only thing
that is ever evicted: from its end, cell by cell, the least recently used sequence first.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Run

from msgspec import Struct, field


class Copy(Struct, frozen=True, tag=True):
    """The first `length` cells of `source` also belong to `target`, which is empty."""

    source: int
    target: int
    length: int


class Keep(Struct, frozen=True, tag=True):
    """The sequence keeps its first `length` cells and lets go of the others."""

    sequence: int
    length: int


Operation = Copy | Keep


class Line(Struct, eq=False):
    """A sequence: the tokens computed so far, and the cell of each. `busy` while a request works on it."""

    id: int
    tokens: list[int] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)
    busy: bool = True
    used_at: int = 0


class Cells:
    """Pairs: `fits`/`extend`, `seat`/`park`, `keep`/`extend`."""

    def __init__(self, cells_max: int, lines_max: int) -> None:
        self.cells_max = cells_max
        self.evicted = 0
        self.lines: dict[int, Line] = {}
        self._free_ids = list(range(lines_max - 1, -1, -1))
        self._free_cells = list(range(cells_max - 1, -1, -1))
        self._holders = [0] * cells_max
        self._operations: list[Operation] = []
        self._clock = 0

    @property
    def in_use(self) -> int:
        return self.cells_max - len(self._free_cells)

    def take_operations(self) -> tuple[Operation, ...]:
        taken, self._operations = tuple(self._operations), []
        return taken

    def longest(self, tokens: Run[int]) -> tuple[Line | None, int]:
        """The sequence that shares the longest beginning with the tokens. An idle one wins over a busy one."""
        found: tuple[Line | None, int] = (None, 0)
        for line in sorted(self.lines.values(), key=lambda line: (line.busy, -line.used_at)):
            shared = shared_length(line.tokens, tokens)
            if shared > found[1]:
                found = (line, shared)
        return found

    # ── room ──

    def fits(self, count: int, keeping: Line | None = None, length: int = 0) -> bool:
        """Whether `count` cells can be had without touching busy sequences or the beginning of `keeping`."""
        held = {cell for line in self.lines.values() if line.busy for cell in line.cells}
        held.update(keeping.cells[:length] if keeping else ())
        return count <= self.cells_max - len(held)

    def make_room(self, count: int) -> bool:
        """Evicts idle sequences until `count` cells are free, or says that it cannot be done."""
        while len(self._free_cells) < count:
            victim = min((line for line in self.lines.values() if not line.busy), key=_age, default=None)
            if victim is None:
                return False
            self._shorten(victim, count - len(self._free_cells))
        return True

    def _shorten(self, line: Line, wanted: int) -> None:
        """Drops cells that only this sequence holds from its end. One that has none of its own, or is left with none,
        is dropped whole."""
        length = len(line.cells)
        while length and wanted and self._holders[line.cells[length - 1]] == 1:
            length, wanted = length - 1, wanted - 1
        self.evicted += len(line.cells) - length
        if length in (0, len(line.cells)):
            self.drop(line)
        else:
            self.keep(line, length)

    # ── lines ──

    def seat(self, source: Line | None, length: int) -> Line:
        """A busy sequence that begins with the first `length` tokens of `source`.

        The source itself if it is idle and nothing of it would be lost, or if there is no other place.
        """
        if source and not source.busy and length == len(source.tokens):
            return self._adopt(source, length)
        if not self._free_ids and not self._drop_one(source):
            assert source is not None, "there are more sequences than requests at work"
            return self._adopt(source, length)
        line = Line(self._free_ids.pop(), used_at=self._tick())
        self.lines[line.id] = line
        if source and length:
            self._share(source, line, length)
        return line

    def extend(self, line: Line, tokens: Run[int]) -> bool:
        """Takes a cell for each token, or nothing at all if there is no room."""
        if not self.make_room(len(tokens)):
            return False
        taken = [self._free_cells.pop() for _ in tokens]
        for cell in taken:
            self._holders[cell] = 1
        line.tokens += tokens
        line.cells += taken
        return True

    def keep(self, line: Line, length: int) -> None:
        self._release(line.cells[length:])
        del line.tokens[length:], line.cells[length:]
        self._operations.append(Keep(line.id, length))

    def park(self, line: Line) -> None:
        """The request is done with it. What it computed stays, as long as nobody needs the room."""
        line.busy, line.used_at = False, self._tick()
        if not line.tokens:
            self.drop(line)

    def drop(self, line: Line) -> None:
        self.keep(line, 0)
        del self.lines[line.id]
        self._free_ids.append(line.id)

    def forget_idle(self) -> bool:
        """Drops all idle sequences. False if there were none."""
        idle = [line for line in self.lines.values() if not line.busy]
        for line in idle:
            self.drop(line)
        return bool(idle)

    def _adopt(self, line: Line, length: int) -> Line:
        line.busy, line.used_at = True, self._tick()
        if length < len(line.tokens):
            self.keep(line, length)
        return line

    def _share(self, source: Line, target: Line, length: int) -> None:
        target.tokens, target.cells = source.tokens[:length], source.cells[:length]
        for cell in target.cells:
            self._holders[cell] += 1
        source.used_at = self._tick()
        self._operations.append(Copy(source.id, target.id, length))

    def _drop_one(self, spared: Line | None) -> bool:
        """Frees the number of an idle sequence: one without cells of its own if there is any, else the oldest."""
        idle = [line for line in self.lines.values() if not line.busy and line is not spared]
        if not idle:
            return False
        victim = min(idle, key=lambda line: (self._holders[line.cells[-1]] == 1, line.used_at))
        self.evicted += sum(self._holders[cell] == 1 for cell in victim.cells)
        self.drop(victim)
        return True

    def _release(self, cells: Iterable[int]) -> None:
        for cell in cells:
            self._holders[cell] -= 1
            if not self._holders[cell]:
                self._free_cells.append(cell)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


def shared_length(one: Run[int], other: Run[int]) -> int:
    """How many tokens two runs have in common at their beginnings. Compared in blocks, since most differ early."""
    limit, start = min(len(one), len(other)), 0
    while start < limit and one[start : start + 256] == other[start : start + 256]:
        start += 256
    start = min(start, limit)
    while start < limit and one[start] == other[start]:
        start += 1
    return start


def _age(line: Line) -> int:
    return line.used_at
