"""A tool that is one POST to a URL. Whatever goes wrong becomes words for the model.

The address is the operator's, but what its name resolves to is not: unless it is allowed, no private address is
connected to, and no redirect is followed. A session a call, so there is nothing to close.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import ClientResponse, ClientSession, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.adapters.dotted import CannotLoad
from gateway.adapters.tools.settings import HttpSettings
from gateway.adapters.tools.tool import Tool
from gateway.core.codec import encode
from gateway.core.errors import ToolFailed
from gateway.core.ports import ToolContext
from gateway.core.run import ToolSpec

PERMANENT = frozenset({401, 403, 404})
WORDS_CHARS_MAX = 500
NAT64 = IPv6Network("64:ff9b::/96")
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


def http_tool(name: str, settings: HttpSettings) -> Tool:
    """Raises CannotLoad, in one sentence, for what cannot be called."""
    address = urlsplit(settings.url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise CannotLoad(f"url is {settings.url!r}: it must begin with http:// or https:// and name a host.")
    parameters = NO_PARAMETERS if settings.parameters is None else settings.parameters
    if parameters.get("type") != "object":
        raise CannotLoad('parameters must be the JSON Schema of an object: type = "object".')
    spec = ToolSpec(
        name=name,
        description=settings.description,
        parameters=parameters,
        read_only=settings.read_only,
        needs_approval=settings.needs_approval,
        idempotent=settings.idempotent,
        cacheable=settings.cacheable,
        timeout_seconds=settings.timeout_seconds,
    )
    return Tool(spec, HttpTool(name, settings).run)


class HttpTool:
    """The time that a call may take is the toolbox's to watch, as for any other tool."""

    def __init__(self, name: str, settings: HttpSettings) -> None:
        self._name = name
        self._settings = settings

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> str:
        try:
            async with (
                self._session() as session,
                session.post(
                    self._settings.url,
                    data=encode(args),
                    headers={"Content-Type": "application/json", **self._settings.headers, **idempotency(ctx)},
                    allow_redirects=False,
                ) as response,
            ):
                text = await read_at_most(response, self._settings.reply_bytes_max)
        except PrivateAddress as error:
            raise ToolFailed(f"{self._name} is at {error}, which is private.", permanent=True) from None
        except aiohttp.ClientConnectorError as error:
            raise ToolFailed(f"{self._name} cannot be reached: {error}.") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            words = f"{self._name} gave no whole answer, and may have done it: {str(error) or type(error).__name__}."
            raise ToolFailed(words) from error
        require_success(self._name, response, text)
        return text

    def _session(self) -> ClientSession:
        """Its timeouts are none: the whole call has one."""
        if not self._settings.allow_private:
            require_public_literal(urlsplit(self._settings.url).hostname or "")
        resolver = aiohttp.ThreadedResolver() if self._settings.allow_private else PublicOnly()
        return ClientSession(
            connector=TCPConnector(resolver=resolver, use_dns_cache=False, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
        )


def idempotency(ctx: ToolContext) -> dict[str, str]:
    return {"Idempotency-Key": ctx.idempotency_key}


def require_success(name: str, response: ClientResponse, text: str) -> None:
    if 200 <= response.status < 300:
        return
    location = response.headers.get("Location")
    words = f"a redirect to {location}, which is not followed" if location else " ".join(text.split())
    said = f": {words[:WORDS_CHARS_MAX].rstrip('.')}" if words else ""
    raise ToolFailed(f"{name} answered {response.status}{said}.", permanent=response.status in PERMANENT)


async def read_at_most(response: ClientResponse, bytes_max: int) -> str:
    """The answer's text, saying so where it is cut."""
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > bytes_max:
            return f"{data[:bytes_max].decode(errors='ignore')}… [cut: only the first {bytes_max} bytes are read]"
    return data.decode(errors="replace")


# --- addresses ------------------------------------------------------------------------------------------------------


class PrivateAddress(Exception):
    """A host that is, or resolves to, an address that is not on the public Internet."""


class PublicOnly(AbstractResolver):
    """Resolves names at the moment of connecting, and refuses those that mean this machine or its network."""

    def __init__(self) -> None:
        self._resolver = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for each in found:
            require_public(host, each["host"])
        return found

    async def close(self) -> None:
        await self._resolver.close()


def require_public_literal(host: str) -> None:
    """An address that is written out is never resolved, so it is looked at here."""
    try:
        ip_address(host)
    except ValueError:
        return
    require_public(host, host)


def require_public(host: str, address: str) -> None:
    if not is_public(ip_address(address.partition("%")[0])):
        raise PrivateAddress(address if host == address else f"{host} ({address})")


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether the address is on the public Internet, and so is the older address inside of it, if there is one."""
    inner = embedded(address)
    public = address.is_global and not address.is_multicast
    return is_public(inner) if inner is not None else public


def embedded(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    if isinstance(address, IPv4Address):
        return None
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
