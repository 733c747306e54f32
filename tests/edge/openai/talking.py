"""What a client of OpenAI's API sends and reads, by hand, so that each byte can be looked at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import aiohttp
from msgspec import Struct

from tests.serving import QUESTION, Gateway, Got

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
USER = {"role": "user", "content": QUESTION}
ANSWER = "errors.log mentions a timeout: worker 7 timed out after 30000 ms."


async def chat(
    gateway: Gateway, /, model: str = "files", messages: list[Any] | None = None, headers: Any = None, **fields: Any
) -> Got:
    body = {"model": model, "messages": messages or [USER], **fields}
    return await gateway.post("/v1/chat/completions", body, headers=headers)


class Streamed(Struct, frozen=True):
    """A stream as far as it came. `broken`: the connection was cut before its end."""

    status: int
    headers: Mapping[str, str]
    data: bytes
    broken: bool

    @property
    def done(self) -> bool:
        return b"[DONE]" in self.data

    @property
    def chunks(self) -> list[dict[str, Any]]:
        lines = [line[5:].strip() for line in self.data.split(b"\n") if line.startswith(b"data:")]
        return [json.loads(line, parse_float=Decimal) for line in lines if line != b"[DONE]"]

    @property
    def text(self) -> str:
        return "".join(choice["delta"].get("content") or "" for choice in self.choices)

    @property
    def choices(self) -> list[dict[str, Any]]:
        return [choice for chunk in self.chunks for choice in chunk.get("choices", ())]

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [call for choice in self.choices for call in choice["delta"].get("tool_calls") or ()]

    @property
    def finish(self) -> str | None:
        return next((choice["finish_reason"] for choice in self.choices if choice.get("finish_reason")), None)

    @property
    def error(self) -> dict[str, Any] | None:
        return next((chunk["error"] for chunk in self.chunks if "error" in chunk), None)

    @property
    def gateway(self) -> dict[str, Any]:
        return next(chunk["gateway"] for chunk in reversed(self.chunks) if "gateway" in chunk)


async def stream(
    gateway: Gateway, /, model: str = "files", messages: list[Any] | None = None, headers: Any = None, **fields: Any
) -> Streamed:
    body = json.dumps({"model": model, "messages": messages or [USER], "stream": True, **fields})
    data, broken = bytearray(), False
    url = f"{gateway.url}/v1/chat/completions"
    async with gateway.session.post(url, data=body, headers=headers) as response:
        try:
            async for piece in response.content.iter_any():
                data += piece
        except aiohttp.ClientPayloadError:
            broken = True
        return Streamed(response.status, response.headers, bytes(data), broken)


def answer_of(got: Got) -> dict[str, Any]:
    assert got.status == 200, got.body
    return got.json["choices"][0]


def outputs(reply: dict[str, Any], *texts: str) -> list[dict[str, Any]]:
    """The client's next messages: the reply, and what came back from its calls."""
    pairs = zip(reply["tool_calls"], texts, strict=True)
    return [reply, *({"role": "tool", "tool_call_id": call["id"], "content": text} for call, text in pairs)]


def provider_ids(run: dict[str, Any]) -> list[str]:
    return [call["id"] for message in run["messages"] for call in message.get("tool_calls", ())]
