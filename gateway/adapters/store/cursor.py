"""The cursor of a page: where the next one begins. Opaque to clients, and the same for every store."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

from gateway.core.codec import encode
from gateway.core.errors import BadRequest
from gateway.core.ports import Entry

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The place behind a run in the order of lists: newest first, then by id."""

    created_us: _Int64
    id: str


NEWEST = Cursor(2**63 - 1, "")
"""Before every run."""


def microseconds(time: datetime) -> int:
    return (time - EPOCH) // _MICROSECOND


def instant(us: int) -> datetime:
    return EPOCH + us * _MICROSECOND


def behind(entry: Entry) -> str:
    """The cursor of the page that follows this run."""
    return base64.urlsafe_b64encode(encode(Cursor(microseconds(entry.created_at), entry.id))).decode().rstrip("=")


def parse(text: str | None) -> Cursor:
    """What a client sent. Raises BadRequest for what no page of ours has given."""
    if text is None:
        return NEWEST
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=Cursor)
    except (ValueError, msgspec.DecodeError):
        raise BadRequest(
            "the cursor is not one that a page has given: leave it out to begin with the newest run.", param="cursor"
        ) from None
