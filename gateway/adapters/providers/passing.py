"""Replies that are passed on as they are: looked at for their usage, and for whether they are whole. No I/O.

Only whole events of a stream are passed on, so that what is wrong with one is known before it and what follows it,
[DONE] above all, have gone out.
"""

from __future__ import annotations

import re
from itertools import pairwise

from gateway.adapters.providers import failures, wire
from gateway.adapters.providers.assembling import DONE, decoded
from gateway.adapters.providers.usage import reported
from gateway.adapters.providers.wire import Body, Choice, Delta
from gateway.core.pricing import BYTES_PER_TOKEN, Usage

BOUNDARY = re.compile(rb"\r?\n\r?\n")
BOUNDARY_BYTES_MAX = 4
DATA = b"data:"
DONE_BYTES = DONE.encode()


class Seen:
    """What is known of a reply: its usage as reported, and the size of its text for where none is."""

    def __init__(self) -> None:
        self.reported: Usage | None = None
        self.has_choice = False
        self.finished = False
        self.text_bytes = 0

    def take(self, body: Body) -> None:
        """Raises Failed for an error inside of a reply."""
        if body.error:
            raise failures.reported(wire.as_problem(body.error))
        self.reported = reported(body.usage) or self.reported
        for choice in body.choices or ():
            self._choice(choice)

    def _choice(self, choice: Choice) -> None:
        self.has_choice = True
        self.finished = self.finished or choice.finish_reason is not None
        said = choice.delta or choice.message
        if said is not None:
            self.text_bytes += size_of(said)

    def usage(self, request_bytes: int) -> Usage:
        """As reported, or else an estimate from the bytes."""
        if self.reported is not None:
            return self.reported
        prompt, completion = request_bytes // BYTES_PER_TOKEN, self.text_bytes // BYTES_PER_TOKEN
        return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


def size_of(said: Delta) -> int:
    """The bytes of its text."""
    arguments = (call.function.arguments for call in said.tool_calls or () if call.function)
    texts = (said.content, said.reasoning_content, said.refusal, *arguments)
    return sum(len(text.encode()) for text in texts if isinstance(text, str))


def look_at_plain(data: bytes) -> Seen:
    """Raises Failed for what is no reply."""
    seen = Seen()
    seen.take(decoded(data))
    return seen


class PassingStream:
    """Events in, the same events out. With `hide_usage` the event that only reports the usage stays here: it was asked
    for by us, and the client does not expect it. An event of more than `event_bytes_max` is not waited for."""

    def __init__(self, *, hide_usage: bool, event_bytes_max: int) -> None:
        self.seen = Seen()
        self.done = False
        self._hide_usage = hide_usage
        self._event_bytes_max = event_bytes_max
        self._rest = bytearray()

    def feed(self, data: bytes) -> tuple[bytes, failures.Failed | None]:
        """The events that are whole now; and what is wrong with the one behind them, which is not passed on."""
        passed: list[bytes] = []
        try:
            for event in self._whole(data):
                if self._passes(event):
                    passed.append(event)
            if len(self._rest) > self._event_bytes_max:
                raise failures.too_large(self._event_bytes_max)
        except failures.Failed as failure:
            return b"".join(passed), failure
        return b"".join(passed), None

    def _whole(self, data: bytes) -> list[bytes]:
        """The events that these bytes complete, taken off the rest. What was searched before is not searched again,
        but for where a boundary may have begun: an event may come in any number of pieces."""
        new = max(0, len(self._rest) - BOUNDARY_BYTES_MAX + 1)
        self._rest += data
        ends = [boundary.end() for boundary in BOUNDARY.finditer(self._rest, new)]
        events = [bytes(self._rest[start:end]) for start, end in pairwise((0, *ends))]
        del self._rest[: sum(map(len, events))]
        return events

    def end(self) -> tuple[bytes, failures.Failed | None]:
        """What is left: an event without the line behind it. A stream that is not whole has failed."""
        passed, failure = self.feed(b"\n\n") if self._rest.strip() else (b"", None)
        if failure is None and not (self.done or self.seen.finished):
            failure = failures.broken("the stream ended before the reply did")
        return passed, failure

    def _passes(self, event: bytes) -> bool:
        for line in event.splitlines():
            if line.startswith(DATA) and not self._line(line[len(DATA) :].strip()):
                return False
        return True

    def _line(self, data: bytes) -> bool:
        if data == DONE_BYTES:
            self.done = True
            return True
        body = decoded(data)
        self.seen.take(body)
        return not (self._hide_usage and body.usage is not None and not body.choices)
