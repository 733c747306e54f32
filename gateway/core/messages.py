"""The transcript in the wire shape of OpenAI's chat completions. Key order is part of the contract (token counts)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct, field

Content = str | list[dict[str, Any]]

TASK_CHARS_MAX = 120


class Function(Struct, frozen=True):
    name: str
    arguments: str


class ToolCall(Struct, frozen=True):
    id: str
    type: Literal["function"]
    function: Function


class System(Struct, frozen=True, omit_defaults=True, tag_field="role", tag="system"):
    content: Content
    name: str | None = None


class Developer(Struct, frozen=True, omit_defaults=True, tag_field="role", tag="developer"):
    content: Content
    name: str | None = None


class User(Struct, frozen=True, omit_defaults=True, tag_field="role", tag="user"):
    content: Content
    name: str | None = None


class Assistant(Struct, frozen=True, omit_defaults=True, tag_field="role", tag="assistant"):
    content: Content | None = field(default_factory=lambda: None)  # sent also where it is null
    tool_calls: tuple[ToolCall, ...] = ()
    refusal: str | None = None
    reasoning_content: str | None = None
    name: str | None = None


class Tool(Struct, frozen=True, omit_defaults=True, tag_field="role", tag="tool"):
    tool_call_id: str
    name: str | None = None
    content: Content = field(default_factory=lambda: "")  # sent also where it is empty


Message = System | Developer | User | Assistant | Tool


def text_of(content: Content | None) -> str:
    """The text of a message's content: the string itself, or its text parts joined."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(str(part.get("text", "")) for part in content if part.get("type") == "text")


def task_of(messages: Sequence[Message]) -> str:
    """The beginning of what the user said first, on one line."""
    for message in messages:
        if isinstance(message, User):
            return on_one_line(text_of(message.content)[: 4 * TASK_CHARS_MAX])
    return ""


@lru_cache(maxsize=1024)
def on_one_line(text: str) -> str:
    return " ".join(text.split())[:TASK_CHARS_MAX]
