"""Chooses a token from logits. Greedy unless a temperature was asked for. Pure but for the generator it is given.

A grammar is asked about as few tokens as possible: looking at a whole vocabulary takes it longer than a small model
takes to compute a token.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from model_server.jobs import Sampling

Logits = NDArray[np.float32]
Ids = NDArray[np.int32]

CANDIDATES = 256  # the best tokens, that a grammar is shown before it is shown all


class Grammar(Protocol):
    def allowed(self, ids: Ids) -> NDArray[np.bool_]: ...


class NothingAllowed(Exception):
    """The grammar allows no token at all, not even the end."""


def choose(logits: Logits, sampling: Sampling, generator: np.random.Generator, grammar: Grammar | None = None) -> int:
    """The distribution under a grammar is the same as if all forbidden tokens had been struck out first."""
    first = _draw(logits, sampling, generator)
    if grammar is None or grammar.allowed(np.array([first], np.int32))[0]:
        return first
    if sampling.temperature == 0 and (best := _best_allowed(logits, grammar)) is not None:
        return best
    allowed = grammar.allowed(np.arange(len(logits), dtype=np.int32))
    if not allowed.any():
        raise NothingAllowed
    return _draw(np.where(allowed, logits, np.float32(-np.inf)), sampling, generator)


def _best_allowed(logits: Logits, grammar: Grammar) -> int | None:
    count = min(CANDIDATES, len(logits))
    ids = np.argpartition(logits, -count)[-count:].astype(np.int32)
    allowed = ids[grammar.allowed(ids)]
    return int(allowed[np.argmax(logits[allowed])]) if len(allowed) else None


def _draw(logits: Logits, sampling: Sampling, generator: np.random.Generator) -> int:
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    scaled = logits.astype(np.float64) / sampling.temperature
    weights = np.exp(scaled - scaled.max())
    weights /= weights.sum()
    if sampling.top_p >= 1:
        return int(generator.choice(len(weights), p=weights))
    order = np.argsort(-weights)
    kept = order[: int(np.searchsorted(np.cumsum(weights[order]), sampling.top_p)) + 1]
    return int(generator.choice(kept, p=weights[kept] / weights[kept].sum()))
