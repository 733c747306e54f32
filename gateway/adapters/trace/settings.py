"""Where traces go. Without an endpoint there are none."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from gateway.adapters.headers import masked, require_headers


class OtelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An OTLP receiver over gRPC. At most `queue_spans_max` wait for it; beyond that the oldest are dropped."""

    endpoint: str | None = None
    insecure: bool = False
    service_name: Annotated[str, Meta(min_length=1)] = "agent-gateway"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    export_timeout_seconds: Annotated[float, Meta(gt=0)] = 5.0
    queue_spans_max: Annotated[int, Meta(ge=16)] = 2048

    def __post_init__(self) -> None:
        require_headers(self.headers)

    def __repr__(self) -> str:
        """Headers carry the receiver's key."""
        return Struct.__repr__(replace(self, headers=masked(self.headers)))
