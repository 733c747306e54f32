"""Who may do what. Without keys the gateway is open to this machine's programs, but not to web pages opened on it."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Literal
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from msgspec import Struct

from gateway.core.errors import Forbidden, Unauthorized

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class ApiKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key that clients send as `Authorization: Bearer`. A `read` key may look and not touch."""

    key: str
    role: Literal["full", "read"] = "full"

    def __repr__(self) -> str:
        return f"ApiKey(key='…', role={self.role!r})"


def guard(keys: Sequence[ApiKey], *, loopback_only: bool) -> Middleware:
    """The middleware that lets requests through, or raises Unauthorized or Forbidden."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in OPEN_PATHS:
            require_same_origin(request)
            if keys:
                require_key(request, keys)
            elif loopback_only:
                require_loopback_name(request)
        return await handler(request)

    return check


def require_key(request: web.Request, keys: Sequence[ApiKey]) -> None:
    given = bearer(request)
    if given is None:
        raise Unauthorized("this gateway wants a key: send Authorization: Bearer KEY.")
    key = next((key for key in keys if hmac.compare_digest(key.key.encode(), given.encode())), None)
    if key is None:
        raise Unauthorized("the key is not one of this gateway's.", code="invalid_api_key")
    if key.role == "read" and request.method not in ("GET", "HEAD", "OPTIONS"):
        raise Forbidden("this key may look and not touch: use one with the role full.")


def bearer(request: web.Request) -> str | None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def require_same_origin(request: web.Request) -> None:
    """A page of another site must not start runs through the browser of whoever opened it."""
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        raise Forbidden(f"requests from pages of {origin} are not taken.", code="cross_origin")


def require_loopback_name(request: web.Request) -> None:
    """Without keys, a name that was made to point at this machine (DNS rebinding) is not taken either."""
    name = urlsplit(f"//{request.host}").hostname or ""
    if name not in LOOPBACK_NAMES:
        raise Forbidden(
            f"this gateway has no keys and answers only as localhost, not as {name}: configure [[server.keys]].",
            code="unknown_host",
        )
