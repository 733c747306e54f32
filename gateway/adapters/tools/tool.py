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
    """`quick`: a plain function that is done in less time than handing it to a thread would take."""

    spec: ToolSpec
    run: Function
    quick: bool = False
