"""Headers that are configured: what a request can carry, and what of them may be shown."""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"

FRAMING = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""They say how a request is sent, which whoever sends it knows (RFC 9110, 7.6.1 and 10.1)."""

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
BREAKS = re.compile(r"[\r\n\0]")


def masked(headers: Mapping[str, str]) -> dict[str, str]:
    """Values are where keys are."""
    return dict.fromkeys(headers, MASK)


def require_headers(headers: Mapping[str, str]) -> None:
    """Raises ValueError for headers that no request can carry, or that are not there to configure."""
    if framing := sorted(name for name in headers if name.lower() in FRAMING):
        raise ValueError(f"headers may not have {', '.join(framing)}: the gateway says how a request is sent")
    if len({name.lower() for name in headers}) < len(headers):
        raise ValueError("headers has a name twice: it is the same in upper and lower case")
    for name, value in headers.items():
        if not TOKEN.fullmatch(name):
            raise ValueError(f"headers has {name!r}, which cannot be the name of a header")
        if BREAKS.search(value):
            raise ValueError(f"headers.{name} has a line break or a null in it")
