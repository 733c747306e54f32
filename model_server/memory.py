"""The exact tokens of what the model said, so that an agent's next turn finds its own words in the cache.

A client gets text and calls back, not tokens, and rendering them again need not give the same tokens: the model may
have written a call without its tag, or spaced its JSON differently. A turn is therefore remembered by **where it
stood** (a digest of all tokens before it) and **what the client was told**. If either differs, the turn is rendered
from its text: an edited history is taken as it is.

Pure but for the clockless LRU order. Not shared between threads.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import blake2b

from model_server.prompt import Said, Segment, Spoken

TOKENS_MAX = 1_000_000  # in all remembered turns together; about 8 MB

Tokenise = Callable[[Segment], list[int]]


class Remembered:
    """Turns of the assistant by place and content, the least recently used forgotten first."""

    def __init__(self, tokens_max: int = TOKENS_MAX) -> None:
        self._tokens_max = tokens_max
        self._tokens = 0
        self._turns: OrderedDict[tuple[bytes, Said], array[int]] = OrderedDict()

    def remember(self, before: Iterable[int], said: Said, tokens: Iterable[int]) -> None:
        """`before` is the whole prompt, `tokens` what was generated after it, without the token that ended it."""
        key = (_digest(before), said)
        self._forget(key)
        self._turns[key] = array("i", tokens)
        self._tokens += _cost(self._turns[key])
        while self._tokens > self._tokens_max and self._turns:
            self._forget(next(iter(self._turns)))

    def recall(self, before: Iterable[int], said: Said) -> list[int] | None:
        key = (_digest(before), said)
        if key not in self._turns:
            return None
        self._turns.move_to_end(key)
        return self._turns[key].tolist()

    def _forget(self, key: tuple[bytes, Said]) -> None:
        if key in self._turns:
            self._tokens -= _cost(self._turns.pop(key))


def tokens_of(segments: Iterable[Segment], tokenise: Tokenise, remembered: Remembered) -> list[int]:
    """The prompt in tokens, with the model's own turns as it really wrote them."""
    tokens: list[int] = []
    for segment in segments:
        recalled = remembered.recall(tokens, segment.said) if isinstance(segment, Spoken) else None
        tokens += tokenise(segment) if recalled is None else recalled
    return tokens


def _digest(tokens: Iterable[int]) -> bytes:
    return blake2b(array("i", tokens).tobytes(), digest_size=16).digest()


def _cost(turn: "array[int]") -> int:
    """A turn without tokens is not free, or there could be any number of them."""
    return len(turn) + 16
