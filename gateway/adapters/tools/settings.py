"""How a function of the operator's, or an address, becomes a tool, as it stands in the configuration."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from gateway.adapters.headers import masked, require_headers


class FunctionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="function"):
    """`function` is a dotted path. `description` left out is the first paragraph of its docstring, `parameters` left
    out are made from its annotations. `error_words` is the dotted path of a function that takes what was raised and
    returns what the model reads of it. The flags are those of `core.run.ToolSpec`."""

    function: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    read_only: bool = False
    needs_approval: bool = False
    idempotent: bool = False
    cacheable: bool = False
    timeout_seconds: Annotated[float, Meta(gt=0)] | None = None
    error_words: str | None = None


class HttpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="http"):
    """The arguments are posted to `url` as JSON, with these headers and the call's Idempotency-Key. `allow_private`
    lets the name resolve to this machine or its network."""

    url: str
    description: Annotated[str, Meta(min_length=1)]
    parameters: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    reply_bytes_max: Annotated[int, Meta(ge=1)] = 256 * 1024
    allow_private: bool = False
    read_only: bool = False
    needs_approval: bool = False
    idempotent: bool = False
    cacheable: bool = False
    timeout_seconds: Annotated[float, Meta(gt=0)] = 30.0

    def __post_init__(self) -> None:
        require_headers(self.headers)

    def __repr__(self) -> str:
        """Without the values of headers, which is where keys are."""
        return Struct.__repr__(replace(self, headers=masked(self.headers)))


ToolSettings = FunctionSettings | HttpSettings
