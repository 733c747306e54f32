"""What the process writes to stderr: one line a record, as text or as JSON, with secrets masked.

A record may carry `fields`, a dict that JSON shows as they are and text as `name=value`.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal

from gateway.core.codec import encode

MASK = "***"
SECRET_LENGTH_MIN = 4  # what is shorter stands in too many words
KEY_LIKE = re.compile(r"(?i)\b(bearer\s+|sk-)[A-Za-z0-9._~+/=-]{8,}")

Format = Literal["text", "json"]


def set_up(level: str, form: Format, secrets: Iterable[str]) -> None:
    """From here on, everything that is logged in this process."""
    formatter = (JsonLines if form == "json" else TextLines)(Mask(secrets))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    leave_out_what_no_line_shows()
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def leave_out_what_no_line_shows() -> None:
    """Where a record was made, by which thread and process: the switches that `logging` documents for it."""
    logging._srcfile = None  # type: ignore[attr-defined]
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


class Mask:
    """Takes out what is configured as a secret, and what looks like a key."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({each for each in secrets if len(each) >= SECRET_LENGTH_MIN}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        if "sk-" in text or "earer " in text or "EARER " in text:
            text = KEY_LIKE.sub(rf"\g<1>{MASK}", text)
        return text


class Lines(logging.Formatter):
    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self._mask = mask

    def trouble_of(self, record: logging.LogRecord) -> str | None:
        """The traceback, if there is one. Messages of exceptions may quote anything, so it is masked too."""
        return self._mask(self.formatException(record.exc_info)) if record.exc_info else None


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    return getattr(record, "fields", {})


class JsonLines(Lines):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._mask(record.getMessage()),
            **{
                name: self._mask(value) if isinstance(value, str) else value
                for name, value in fields_of(record).items()
            },
        }
        if trouble := self.trouble_of(record):
            line["traceback"] = trouble
        return encode(line).decode()


class TextLines(Lines):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(sep=" ", timespec="milliseconds")
        fields = "".join([f" {name}={value}" for name, value in fields_of(record).items()])
        line = self._mask(f"{time} {record.levelname} {record.name}: {record.getMessage()}{fields}")
        trouble = self.trouble_of(record)
        return f"{line}\n{trouble}" if trouble else line
