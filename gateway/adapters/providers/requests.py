"""The bodies of requests. Turn n sends everything that turn n-1 sent and a little more, and only that is encoded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from gateway.adapters.providers.settings import CAPS
from gateway.core import codec
from gateway.core.messages import Message
from gateway.core.run import RUN_FIELDS, Run, ToolSpec

RUNS_MAX = 1024
BYTES_MAX = 64 * 1024 * 1024
OURS = RUN_FIELDS.union(CAPS)
FREE_CHOICES = (None, "auto", "none")


class FunctionDefinition(Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]
    strict: bool | UnsetType = UNSET


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """A tool as the model is told of it. The order of the keys is counted in tokens."""

    type: Literal["function"] = "function"
    function: FunctionDefinition


def definitions(tools: tuple[ToolSpec, ...]) -> list[ToolDefinition]:
    return [ToolDefinition(function=definition(tool)) for tool in tools]


def definition(tool: ToolSpec) -> FunctionDefinition:
    strict = UNSET if tool.strict is None else tool.strict
    return FunctionDefinition(tool.name, tool.description, tool.parameters, strict)


class _Encoded:
    """What is encoded of one run already: its model, its tools, and the first `count` messages, the last of which is
    `last`."""

    __slots__ = ("_model", "_tools", "count", "head", "last", "messages", "tools_json")

    def __init__(self, run: Run, head: bytes, tools_json: bytes) -> None:
        self.head = head
        self.messages = bytearray()
        self.count = 0
        self.last: Message | None = None
        self.tools_json = tools_json
        self._model = run.model
        self._tools = run.tools

    @property
    def size(self) -> int:
        return len(self.head) + len(self.messages) + len(self.tools_json)

    def begins(self, run: Run) -> bool:
        """Whether this is the beginning of the run as it is now. Messages are frozen and transcripts only grow, so it
        is enough to look at the last one."""
        if self._tools is not run.tools or self._model != run.model or self.count > len(run.messages):
            return False
        return self.count == 0 or run.messages[self.count - 1] is self.last


class Bodies:
    """Builds request bodies, remembering the encoded transcripts of the runs that asked last.

    A cache and nothing else: it is bounded, and what it forgets is encoded anew.
    """

    def __init__(
        self,
        extra_body: dict[str, Any],
        *,
        cap_name: str = "max_tokens",
        runs_max: int = RUNS_MAX,
        bytes_max: int = BYTES_MAX,
        encode: Callable[[Any], bytes] = codec.encode,
    ) -> None:
        self._encode = encode
        self._runs_max = runs_max
        self._bytes_max = bytes_max
        self._known: OrderedDict[str, _Encoded] = OrderedDict()
        self._bytes = 0
        self._tools_json = codec.remembers_last(self._encoded_tools)
        self._caps: list[int] = [extra_body[name] for name in CAPS if name in extra_body]
        self._cap_name = next(name for name in CAPS if name in extra_body or name == cap_name)
        self._ours = OURS | extra_body.keys()
        extra_body = {name: value for name, value in extra_body.items() if name not in CAPS}
        plain = {"stream": False}
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        self._plain_end, self._streamed_end = (
            b"," + codec.encode({**options, **extra_body})[1:] for options in (plain, streamed)
        )

    def build(self, run: Run, *, stream: bool, max_tokens: int | None = None) -> bytes:
        encoded = self._up_to_date(run)
        end = self._streamed_end if stream else self._plain_end
        if run.params or self._caps or max_tokens is not None:
            end = self._chosen(run, max_tokens) + end
        return b"".join((encoded.head, encoded.messages, b"]", encoded.tools_json, end))

    def forget(self, run: Run) -> None:
        """It will not ask again, as far as can be told."""
        self._take_out(run.id)

    def _chosen(self, run: Run, max_tokens: int | None) -> bytes:
        """The lowest of the caps on a reply's tokens, and the fields that the client gave."""
        params, asked = self._params(run)
        cap_name = next(iter(asked), self._cap_name)
        caps = [cap for cap in (max_tokens, *self._caps, *asked.values()) if cap is not None]
        cap = b',"%b":%d' % (cap_name.encode(), min(caps)) if caps else b""
        return cap + b"," + self._encode(params)[1:-1] if params else cap

    def _params(self, run: Run) -> tuple[dict[str, Any], dict[str, int]]:
        """The fields that the client gave, but not over the operator's; and its caps on a reply's tokens by name. In a
        loop that goes on by itself a tool is forced once, or there would be no end."""
        params = {name: value for name, value in run.params.items() if name not in self._ours}
        if run.turns and run.conversation is None and params.get("tool_choice") not in FREE_CHOICES:
            params.pop("tool_choice", None)
        asked = {name: cap for name in CAPS if isinstance(cap := run.params.get(name), int)}
        return params, asked

    def _up_to_date(self, run: Run) -> _Encoded:
        encoded = self._known.get(run.id)
        if encoded is not None and encoded.begins(run):
            self._known.move_to_end(run.id)
        else:
            encoded = self._begun(run)
        self._append_new(encoded, run.messages)
        self._forget_oldest()
        return encoded

    def _begun(self, run: Run) -> _Encoded:
        self._take_out(run.id)
        head = b'{"model":%b,"messages":[' % self._encode(run.model)
        encoded = self._known[run.id] = _Encoded(run, head, self._tools_json(run.tools))
        self._bytes += encoded.size
        return encoded

    def _take_out(self, run_id: str) -> None:
        if encoded := self._known.pop(run_id, None):
            self._bytes -= encoded.size

    def _append_new(self, encoded: _Encoded, messages: tuple[Message, ...]) -> None:
        new = b",".join([self._encode(message) for message in messages[encoded.count :]])
        if new and encoded.messages:
            new = b"," + new
        encoded.messages += new
        encoded.count = len(messages)
        encoded.last = messages[-1] if messages else None
        self._bytes += len(new)

    def _encoded_tools(self, tools: tuple[ToolSpec, ...]) -> bytes:
        return b',"tools":' + self._encode(definitions(tools)) if tools else b""

    def _forget_oldest(self) -> None:
        while self._known and (len(self._known) > self._runs_max or self._bytes > self._bytes_max):
            self._take_out(next(iter(self._known)))
