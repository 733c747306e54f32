"""One reply while the model writes it: which token is next, and when it has ended. Runs on the thread of the engine."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from model_server import grammar as grammars
from model_server import sampling
from model_server.errors import DecodeFailed
from model_server.jobs import Governed, Job, WhenCalling
from model_server.sampling import Ids, Logits
from model_server.writing import Writer


class Grammar(Protocol):
    """What is asked of llama.cpp's grammar."""

    def allowed(self, ids: Ids) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]": ...
    def accept(self, token: int) -> None: ...
    def close(self) -> None: ...


class Tongue(Protocol):
    """What a voice needs of an engine."""

    def piece(self, token: int) -> bytes: ...
    def is_end(self, token: int) -> bool: ...
    def grammar(self, text: str) -> Grammar: ...


class Voice:
    def __init__(self, job: Job, tongue: Tongue) -> None:
        self.job = job
        self.tokens: list[int] = []
        self.writer = Writer(job.stops)
        self.cut_off = False
        self._tongue = tongue
        self._generator = np.random.default_rng(job.sampling.seed)
        self._banned = np.array(job.banned, np.int64)
        self._grammar = tongue.grammar(job.constraint.grammar) if isinstance(job.constraint, Governed) else None
        self._searched = 0
        self._may_commit = isinstance(job.constraint, WhenCalling)

    def close(self) -> None:
        if self._grammar:
            self._grammar.close()
            self._grammar = None

    def choose(self, logits: Logits) -> int:
        if len(self._banned):
            logits[self._banned] = -np.inf
        try:
            return sampling.choose(logits, self.job.sampling, self._generator, self._grammar)
        except sampling.NothingAllowed:
            raise DecodeFailed("The grammar of this reply allows no token of this model.") from None

    def take(self, token: int) -> bool:
        """Adds the chosen token. True when the reply has ended."""
        if self._tongue.is_end(token) and not self.job.past_the_end:
            self.writer.end()
            return True
        if self._grammar:
            self._grammar.accept(token)
        self.tokens.append(token)
        self.writer.feed(self._tongue.piece(token))
        if self._may_commit and not self._grammar:
            self._commit()
        return self._is_over()

    def _is_over(self) -> bool:
        self.cut_off = not self.writer.stopped and len(self.tokens) >= self.job.tokens_max
        if self.cut_off:
            self.writer.end()
        return self.cut_off or self.writer.stopped

    def _commit(self) -> None:
        """Goes on under the grammar of the tools if the reply can only be a call."""
        constraint = self.job.constraint
        assert isinstance(constraint, WhenCalling)
        start = constraint.reader.commitment(self.writer.full, self._searched)
        if start is None:
            self._searched = constraint.reader.safe(self.writer.full, self._searched)
            return
        self._may_commit = False
        number, prefix = self.writer.token_at(start)
        text = grammars.calls(constraint.tools, parallel=constraint.parallel, prefix=prefix)
        self._grammar = _caught_up(self._tongue.grammar, text, self.tokens[number:])


def _caught_up(make: Callable[[str], Grammar], text: str, tokens: list[int]) -> Grammar | None:
    """The grammar after the tokens, or none if they do not follow it: the reply is then read as it comes."""
    grammar = make(text)
    for token in tokens:
        if not grammar.allowed(np.array([token], np.int32))[0]:
            grammar.close()
            return None
        grammar.accept(token)
    return grammar
