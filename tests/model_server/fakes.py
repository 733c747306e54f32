"""A model without weights: one token a byte, and replies that are a function of the prompt.

Its memory is real all the same: the next token is found from what is really in the sequence, so a batch that was
planned wrongly writes nonsense, or fails.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from model_server.cells import Copy, Keep, Operation
from model_server.prompt import Control, Segment
from model_server.scheduler import Share

END, START, CALL = 256, 257, 258
VOCABULARY = 259
_CONTROL = {"<|im_start|>": START, "<|im_end|>": END}

Reply = Callable[[str], str]


def echo(prompt: str) -> str:
    return "you said: " + prompt.rsplit("user\n", 1)[-1].split("\0", 1)[0]


class FakeEngine:
    """`reply` is asked with the prompt. `code` may make a decode fail. `go` can be cleared to hold the model up, and
    `seconds` is how long each batch takes at least."""

    def __init__(
        self, reply: Reply = echo, *, code: Callable[[Sequence[Share]], int] = lambda _: 0, seconds: float = 0
    ) -> None:
        self.lines: dict[int, list[int]] = {}
        self.batches: list[int] = []
        self.closed = False
        self.go = threading.Event()
        self.go.set()
        self._reply = reply
        self._code = code
        self._seconds = seconds
        self._rows: dict[int, int] = {}

    # ── vocabulary ──

    def tokenise(self, segment: Segment) -> list[int]:
        if isinstance(segment, Control):
            return [_CONTROL[segment.text]]
        return [CALL] if segment.text == "<tool_call>" else [*segment.text.encode()]

    def piece(self, token: int) -> bytes:
        return {CALL: b"<tool_call>"}.get(token, bytes([token]) if token < 256 else b"")

    def is_end(self, token: int) -> bool:
        return token == END

    def grammar(self, text: str) -> "FakeGrammar":
        return FakeGrammar(text)

    # ── computing ──

    def apply(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            match operation:
                case Copy(source, target, length):
                    self.lines[target] = self.lines[source][:length]
                case Keep(sequence, length):
                    self.lines[sequence] = self.lines.get(sequence, [])[:length]

    def decode(self, shares: Sequence[Share]) -> int:
        assert self.go.wait(10)
        time.sleep(self._seconds)
        if code := self._code(shares):
            return code
        self._rows.clear()
        row = -1
        for share in shares:
            line = self.lines.setdefault(share.sequence, [])
            assert len(line) == share.position
            line += share.tokens
            row += len(share.tokens)
            if share.whole:
                self._rows[row] = self._next(line)
        self.batches.append(row + 1)
        return 0

    def logits(self, row: int) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
        logits = np.zeros(VOCABULARY, np.float32)
        logits[self._rows[row]] = 1
        return logits

    def close(self) -> None:
        self.closed = True

    def _next(self, line: list[int]) -> int:
        start = len(line) - line[::-1].index(START)
        turn = b"".join(map(self.piece, line[start:])).removeprefix(b"assistant\n")
        prompt = "".join("\0" if token >= 256 else chr(token) for token in line[: start - 1])
        reply = self._reply(prompt).encode()
        return reply[len(turn)] if len(turn) < len(reply) else END


class FakeGrammar:
    """Allows everything: what a grammar forbids is llama.cpp's business, and tested with real weights."""

    def __init__(self, text: str) -> None:
        self.text = text

    def allowed(
        self, ids: "np.ndarray[tuple[int], np.dtype[np.int32]]"
    ) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        return np.ones(len(ids), np.bool_)

    def accept(self, token: int) -> None:
        pass

    def close(self) -> None:
        pass


def answers(known: Mapping[str, str]) -> Reply:
    """The reply of the first key that the prompt contains."""
    return lambda prompt: next(reply for key, reply in known.items() if key in prompt)
