"""A run told in chunks of a chat completion."""

from __future__ import annotations

from gateway.core.run import Run
from gateway.edge.openai.answering import Shown, chunk, ending
from gateway.edge.openai.errors import error_event, failed_event
from gateway.edge.openai.wire import Delta, Progress, ProgressExtension


class ChatVoice:
    """Satisfies `telling.Voice`. The role comes first, [DONE] last, and only behind an answer."""

    def __init__(self, head: Shown, *, progress: bool, include_usage: bool) -> None:
        self._head = head
        self._progress = progress
        self._include_usage = include_usage

    def opening(self) -> bytes:
        return chunk(self._head, Delta(role="assistant", content=""))

    def text(self, text: str) -> bytes:
        return chunk(self._head, Delta(content=text))

    def progress(self, progress: Progress) -> bytes:
        if not self._progress:
            return b""
        return chunk(self._head, Delta(), gateway=ProgressExtension(run_id=self._head.run_id, progress=progress))

    def ending(self, run: Run) -> bytes:
        return b"".join(ending(run, self._head, include_usage=self._include_usage))

    def failed(self, run: Run) -> bytes:
        return failed_event(run)

    def broken(self, message: str, code: str) -> bytes:
        return error_event(message, code)
