"""How a function of the operator's becomes a tool, as it stands in the configuration."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct


class FunctionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
