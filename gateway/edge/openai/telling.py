"""A run as it is told to a client that streams: text as it comes, comments or progress while tools run. Pure.

What was sent cannot be taken back. A reply that was lost half-way and asked for again must begin with what was told of
it already, or the stream ends in an error. Text before the calls of a turn is told too, since nobody knows then that
calls follow; a blank line parts it from what comes next.
"""

from __future__ import annotations

from typing import Protocol

from gateway.core import events as e
from gateway.core.codec import decode_event, kind_of
from gateway.core.errors import GatewayError
from gateway.core.messages import text_of
from gateway.core.ports import Record
from gateway.core.run import Run
from gateway.edge.openai.answering import has_reply, in_words, last_reply
from gateway.edge.openai.wire import Progress
from gateway.service.feed import Delta, Item

KEEP_ALIVE = b": keep-alive\n\n"
TOLD = ("turn_start", "turn", "tool_start", "tool_progress", "tool_result")
PART = "\n\n"


class Differs(GatewayError):
    """The second attempt at a reply says something else than what was told of the first."""


class Voice(Protocol):
    """One way to say it: the events of one of OpenAI's APIs."""

    def opening(self) -> bytes: ...

    def text(self, text: str) -> bytes: ...

    def progress(self, progress: Progress) -> bytes:
        """Empty if nobody asked for it."""
        ...

    def ending(self, run: Run) -> bytes:
        """What follows the text of an answer, up to the end of the stream."""
        ...

    def failed(self, run: Run) -> bytes: ...

    def broken(self, message: str, code: str) -> bytes:
        """The stream cannot go on, whatever becomes of the run."""
        ...


class Telling:
    """Takes what the feed says of a run, and gives what is to be sent. Whoever joins in the middle of a reply is told
    it when it is whole."""

    def __init__(self, voice: Voice) -> None:
        self.voice = voice
        self._told: list[str] = []
        self._again = ""
        self._live = False
        self._opened = False
        self._parted = False
        self._turn_told = 0

    def take(self, item: Item) -> bytes:
        """Raises Differs."""
        if isinstance(item, Delta):
            return self._delta(item.text) if self._live else b""
        return self._event(item) if kind_of(item.body) in TOLD else b""

    def end(self, run: Run) -> bytes:
        """What is missing of the answer, and the end of the stream."""
        rest = self._rest(run)
        return rest + self._open() + self.voice.ending(run)

    def _rest(self, run: Run) -> bytes:
        if not has_reply(run):
            self._parted = self._parted or bool(self._told)
            return self._say(in_words(run))
        return b"" if self._turn_told == run.turns else self._say(text_of(last_reply(run).content))

    # --- events -----------------------------------------------------------------------------------------------------

    def _event(self, record: Record) -> bytes:
        match decode_event(record.body):
            case e.TurnStart() as start:
                return self._begin(start)
            case e.Turn() as turn:
                return self._turn(turn)
            case e.ToolStart(tool_name=name):
                return self._tool(Progress(type="tool_start", tool_name=name))
            case e.ToolProgress(tool_name=name, label=label):
                return self._tool(Progress(type="tool_progress", tool_name=name, label=label))
            case e.ToolResult(tool_name=name, ok=ok):
                return self._tool(Progress(type="tool_result", tool_name=name, ok=ok))
            case _:
                return b""

    def _begin(self, start: e.TurnStart) -> bytes:
        self._live = True
        if start.attempt == 1:
            self._told.clear()
        self._again = "".join(self._told)
        return b""

    def _turn(self, turn: e.Turn) -> bytes:
        whole, told = text_of(turn.message.content), "".join(self._told)
        if not whole.startswith(told):
            raise Differs("the reply was lost half-way, and when it was asked for again it was another one.")
        rest = self._say(whole[len(told) :])
        self._live = False
        self._turn_told = turn.turn
        self._parted = bool(self._opened and whole and turn.message.tool_calls)
        return rest

    def _tool(self, progress: Progress) -> bytes:
        """Those who did not ask for progress get a comment, so that they see that something goes on."""
        told = self.voice.progress(progress)
        return self._open() + told if told else KEEP_ALIVE

    # --- text -------------------------------------------------------------------------------------------------------

    def _delta(self, text: str) -> bytes:
        known = min(len(self._again), len(text))
        if self._again[:known] != text[:known]:
            raise Differs("the reply was lost half-way, and when it was asked for again it began in another way.")
        self._again = self._again[known:]
        return self._say(text[known:])

    def _say(self, text: str) -> bytes:
        if not text:
            return b""
        self._told.append(text)
        part = PART if self._parted else ""
        self._parted = False
        return self._open() + self.voice.text(part + text)

    def _open(self) -> bytes:
        if self._opened:
            return b""
        self._opened = True
        return self.voice.opening()
