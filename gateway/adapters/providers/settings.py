"""What must be known of one OpenAI-compatible endpoint: its address and key, how long to wait, how often to try."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace
from yarl import URL

from gateway.adapters.headers import MASK, masked, require_headers
from gateway.adapters.providers.exchange import Patience
from gateway.core.run import RUN_FIELDS

CAPS = ("max_completion_tokens", "max_tokens")
"""What endpoints call the cap on a reply's tokens; the older name comes last, as those that know both prefer the first.
A body has the least of all caps, and has it once: of two, an endpoint may heed the larger."""

Seconds = Annotated[float, Meta(gt=0)]


class ProviderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`base_url` with its /v1. `read_timeout_seconds` is the longest silence: before the first byte and between bytes,
    so it must be longer than the slowest plain reply. `extra_body` goes into every request as it is, but for caps on a
    reply's tokens, which hold beside a run's own. `cap_name` is what this endpoint calls such a cap."""

    base_url: str
    name: str = "default"
    api_key: str | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    extra_body: dict[str, Any] = field(default_factory=dict[str, Any])
    cap_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    connect_timeout_seconds: Seconds = 5.0
    read_timeout_seconds: Seconds = 60.0
    total_timeout_seconds: Seconds = 600.0
    retries_max: Annotated[int, Meta(ge=0, le=100)] = 3
    backoff_seconds: Annotated[float, Meta(ge=0)] = 0.25
    backoff_max_seconds: Annotated[float, Meta(ge=0)] = 8.0
    retry_after_max_seconds: Annotated[float, Meta(ge=0)] = 60.0
    reply_bytes_max: Annotated[int, Meta(ge=1)] = 8 * 1024 * 1024
    connections_max: Annotated[int, Meta(ge=1)] = 256

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must begin with http:// or https://, not {self.base_url!r}")
        require_server(self.base_url)
        if clash := sorted(RUN_FIELDS & self.extra_body.keys()):
            raise ValueError(f"extra_body may not have {', '.join(clash)}: the run says what they are")
        for name in self.extra_body.keys() & CAPS:
            if type(cap := self.extra_body[name]) is not int or cap < 1:
                raise ValueError(f"extra_body.{name} must be a whole number of at least 1, not {cap!r}")
        require_headers(self.headers)
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ValueError("api_key has characters that no HTTP header can carry")

    def __repr__(self) -> str:
        """Without the key, and without the values of headers, which some providers take the key in."""
        key = None if self.api_key is None else MASK
        return Struct.__repr__(replace(self, api_key=key, headers=masked(self.headers)))

    @property
    def patience(self) -> Patience:
        return Patience(
            connect_seconds=self.connect_timeout_seconds,
            silence_seconds=self.read_timeout_seconds,
            total_seconds=self.total_timeout_seconds,
        )


def require_server(base_url: str) -> None:
    """Raises ValueError for a URL that names no server."""
    try:
        url = URL(base_url)
    except ValueError as error:
        raise ValueError(f"base_url is {base_url!r}, which is no address: {error}") from None
    if not url.host or not url.port:
        raise ValueError(f"base_url is {base_url!r}, which names no server")
