"""What a call found before it changed anything, under its idempotency key: so that one which is run again after a crash
changes nothing twice and gives the answer that was lost."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from math import inf
from pathlib import Path
from uuid import uuid4

KEPT_SECONDS = 30 * 24 * 3600.0
FORGETTING_EVERY_SECONDS = 3600.0


class Notes:
    """One small file a key. Written elsewhere and then linked to its place, it is there whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._forgets_at = -inf

    def first(self, key: str, text: str) -> tuple[str, bool]:
        """The text that was noted first under this key, and whether that was earlier."""
        note = self._folder / hashlib.sha256(key.encode()).hexdigest()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._folder / uuid4().hex
        draft.write_text(text)
        try:
            os.link(draft, note)
        except FileExistsError:
            return note.read_text(), True
        finally:
            draft.unlink()
        self._forget_old()
        return text, False

    def _forget_old(self) -> None:
        """All notes are looked at for it, which is too much for each call."""
        if time.monotonic() < self._forgets_at:
            return
        self._forgets_at = time.monotonic() + FORGETTING_EVERY_SECONDS
        oldest = time.time() - KEPT_SECONDS
        for note in self._folder.iterdir():
            with suppress(FileNotFoundError):
                if note.stat().st_mtime < oldest:
                    note.unlink()
