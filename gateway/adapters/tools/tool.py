"""A tool: what the model sees of it, and the code behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from gateway.core.ports import ToolContext
from gateway.core.run import ToolSpec

Function = Callable[[dict[str, Any], ToolContext], Any]
"""Takes validated arguments. Returns text, what becomes JSON, or an awaitable of either; a plain function that takes
its time looks at `ctx.cancelled`. Raises ToolFailed in words for the model."""


class Tool(Struct, frozen=True):
    """What the model sees, and what is run: where `spec.quick`, a plain function that is not worth a thread."""

    spec: ToolSpec
    run: Function
