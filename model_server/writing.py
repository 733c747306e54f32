"""The text of one reply while it grows: bytes of tokens in, whole characters out, up to a stop string. Pure."""

import codecs
from collections.abc import Sequence


class Writer:
    """`full` is all text that was written; `shown` as much of it as cannot turn out to be a stop string."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = stops
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._taken = 0
        self._ends: list[int] = []  # of each token, in bytes
        self.full = ""
        self.shown = 0
        self.stopped = False

    def feed(self, piece: bytes) -> None:
        self._ends.append((self._ends[-1] if self._ends else 0) + len(piece))
        self.full += self._decoder.decode(piece)
        self._look_for_stops()

    def end(self) -> None:
        """Nothing follows, so nothing is held back any longer."""
        if not self.stopped:
            self.full += self._decoder.decode(b"", final=True)
            self.shown = len(self.full)

    def take(self) -> str:
        """What can be shown and was not yet taken."""
        start, self._taken = self._taken, self.shown
        return self.full[start : self.shown]

    def token_at(self, index: int) -> tuple[int, bytes]:
        """Which token holds the character at an index, and the bytes of the text before it in that token."""
        before = self.full[:index].encode()
        number = next(number for number, end in enumerate(self._ends) if end > len(before))
        start = self._ends[number - 1] if number else 0
        return number, before[start:]

    def _look_for_stops(self) -> None:
        found = [at for stop in self._stops if (at := self.full.find(stop, max(0, self.shown - len(stop)))) >= 0]
        if found:
            self.shown, self.stopped = min(found), True
        else:
            self.shown = len(self.full) - max((_overlap(self.full, stop) for stop in self._stops), default=0)


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of the text that is a beginning of the stop string."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
