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
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


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

    def fields_of(self, record: logging.LogRecord) -> dict[str, Any]:
        fields: dict[str, Any] = getattr(record, "fields", {})
        return {name: self._mask(value) if isinstance(value, str) else value for name, value in fields.items()}

    def trouble_of(self, record: logging.LogRecord) -> str | None:
        """The traceback, if there is one. Messages of exceptions may quote anything, so it is masked too."""
        return self._mask(self.formatException(record.exc_info)) if record.exc_info else None


class JsonLines(Lines):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._mask(record.getMessage()),
            **self.fields_of(record),
        }
        if trouble := self.trouble_of(record):
            line["traceback"] = trouble
        return encode(line).decode()


class TextLines(Lines):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(sep=" ", timespec="milliseconds")
        fields = "".join(f" {name}={value}" for name, value in self.fields_of(record).items())
        message = self._mask(record.getMessage())
        trouble = self.trouble_of(record)
        line = f"{time} {record.levelname} {record.name}: {message}{fields}"
        return f"{line}\n{trouble}" if trouble else line
