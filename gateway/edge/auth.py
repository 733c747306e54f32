"""Who may do what. Without keys the gateway is open to this machine's programs, but not to web pages opened on it."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from msgspec import Meta, Struct

from gateway.core.errors import Forbidden, Unauthorized

HOSTS_MAX = 256  # each request names one, and hardly ever a new one
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
CONSOLE_PREFIX = "/console/"


class ApiKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key that clients send as `Authorization: Bearer`. A `read` key may look and not touch."""

    key: Annotated[str, Meta(min_length=1)]
    role: Literal["full", "read"] = "full"

    def __repr__(self) -> str:
        return f"ApiKey(key='…', role={self.role!r})"


def guard(keys: Sequence[ApiKey], *, loopback_only: bool) -> Middleware:
    """The middleware that lets requests through, or raises Unauthorized or Forbidden."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in OPEN_PATHS:
            require_same_origin(request)
            if keys and not is_console(request.path):
                require_key(request, keys)
            elif loopback_only and not keys:
                require_loopback_name(request)
        return await handler(request)

    return check


def is_console(path: str) -> bool:
    """The console's own files hold nothing of anybody's: it asks for a key itself, and sends it with each call."""
    return path == "/" or path.startswith(CONSOLE_PREFIX)


def require_key(request: web.Request, keys: Sequence[ApiKey]) -> None:
    given = bearer(request)
    if given is None:
        raise Unauthorized("this gateway wants a key: send Authorization: Bearer KEY.")
    key = next((key for key in keys if same(key.key, given)), None)
    if key is None:
        raise Unauthorized("the key is not one of this gateway's.", code="invalid_api_key")
    if key.role == "read" and request.method not in ("GET", "HEAD", "OPTIONS"):
        raise Forbidden("this key may look and not touch: use one with the role full.")


def same(key: str, given: str) -> bool:
    """In a time that says nothing about the key. A header may hold bytes that are no text."""
    return hmac.compare_digest(key.encode(), given.encode(errors="surrogateescape"))


def bearer(request: web.Request) -> str | None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def require_same_origin(request: web.Request) -> None:
    """A page of another site must not start runs through the browser of whoever opened it."""
    origin = request.headers.get("Origin")
    if origin is not None and split(origin).netloc != request.host:
        raise Forbidden(f"requests from pages of {origin} are not taken.", code="cross_origin")


def require_loopback_name(request: web.Request) -> None:
    """Without keys, a name that was made to point at this machine (DNS rebinding) is not taken either."""
    name = host_name(request.host)
    if not is_loopback(name):
        raise Forbidden(
            f"this gateway has no keys and answers only as localhost, not as {name}: configure [[server.keys]].",
            code="unknown_host",
        )


@lru_cache(maxsize=HOSTS_MAX)
def host_name(host: str) -> str:
    return split(f"//{host}").hostname or ""


def split(url: str) -> SplitResult:
    """A URL from a header; an empty one for what is none."""
    with suppress(ValueError):
        return urlsplit(url)
    return urlsplit("")


@lru_cache(maxsize=HOSTS_MAX)
def is_loopback(name: str) -> bool:
    """Whether a host name or address means this machine, and nothing else can make it mean another."""
    with suppress(ValueError):
        return ip_address(name).is_loopback
    return name == "localhost"
