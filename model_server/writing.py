"""The text of one reply while it grows: bytes of tokens in, whole characters out, up to a stop string. Pure."""

import codecs
from collections.abc import Sequence


class Writer:
    """`full` is all text that was written; `shown` as much of it as cannot turn out to be a stop string."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = stops
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._taken = 0
        self._tokens = 0
        self._beginnings: list[tuple[int, int]] = []
        self.full = ""
        self.shown = 0
        self.stopped = False

    def feed(self, piece: bytes) -> None:
        self._note_beginning()
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

    def token_at(self, index: int) -> tuple[int, str]:
        """From which token on the character at an index is written, and the text before it from there on: a token that
        begins within a character is not begun with."""
        start, number = next(each for each in reversed(self._beginnings) if each[0] <= index)
        return number, self.full[start:index]

    def _note_beginning(self) -> None:
        """Where the next token begins, in characters: bytes that are none have other lengths as text than they had."""
        unfinished, _ = self._decoder.getstate()
        if not unfinished:
            self._beginnings.append((len(self.full), self._tokens))
        self._tokens += 1

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
