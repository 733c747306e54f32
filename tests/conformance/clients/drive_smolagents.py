"""smolagents: its model asks and streams, and its agent writes code, which calls the tools. All is synchronous."""

from __future__ import annotations

import asyncio
from typing import Any

from lines import NEXT_QUESTION, Weather, answer, serve
from smolagents import ChatMessage, CodeAgent, LogLevel, MessageRole, OpenAIModel, Tool

OUTPUTS = "string"


class WeatherTool(Tool):
    name = "weather"
    description = "The weather of a city."
    inputs = {"city": {"type": "string", "description": "The city."}}  # noqa: RUF012  its way to declare it
    output_type = OUTPUTS

    def __init__(self, weather: Weather) -> None:
        super().__init__()
        self.weather = weather

    def forward(self, city: str) -> str:
        return self.weather.of(city)


def model_of(order: Any) -> OpenAIModel:
    return OpenAIModel(
        model_id=order.model,
        api_base=order.base_url,
        api_key="none",
        client_kwargs={"default_headers": order.headers},
    )


def said(order: Any) -> list[ChatMessage]:
    return [ChatMessage(role=MessageRole.USER, content=order.question)]


def told(message: ChatMessage, **more: Any) -> dict[str, Any]:
    raw: Any = message.raw
    usage: Any = message.token_usage
    run_id = raw.model_extra["gateway"]["run_id"]
    tokens = (usage.input_tokens, usage.output_tokens)
    return answer(str(message.content), raw.choices[0].finish_reason, tokens, run_id=run_id, **more)


async def ask(order: Any) -> dict[str, Any]:
    return told(await asyncio.to_thread(model_of(order).generate, said(order)))


async def again(order: Any) -> dict[str, Any]:
    model, question = model_of(order), said(order)
    first = await asyncio.to_thread(model.generate, question)
    next_question = ChatMessage(role=MessageRole.USER, content=NEXT_QUESTION)
    return told(await asyncio.to_thread(model.generate, [*question, first, next_question]))


async def stream(order: Any) -> dict[str, Any]:
    deltas = await asyncio.to_thread(lambda: list(model_of(order).generate_stream(said(order))))
    texts = [delta.content for delta in deltas if delta.content]
    usage: Any = next(delta.token_usage for delta in deltas if delta.token_usage)
    return answer("".join(texts), None, (usage.input_tokens, usage.output_tokens), deltas=texts)


async def tool(order: Any) -> dict[str, Any]:
    weather = Weather()
    agent = CodeAgent(
        tools=[WeatherTool(weather)],
        model=model_of(order),
        stream_outputs=order.stream,
        verbosity_level=LogLevel.OFF,
    )
    result: Any = await asyncio.to_thread(agent.run, order.question, return_full_result=True)
    usage = result.token_usage
    return answer(result.output, result.state, (usage.input_tokens, usage.output_tokens), executed=weather.asked)


def first_piece(order: Any) -> str:
    """Closing the pieces alone would leave the connection open until garbage is collected."""
    model = model_of(order)
    deltas: Any = model.generate_stream(said(order))
    text = next(delta.content for delta in deltas if delta.content)
    deltas.close()
    model.client.close()
    return text


async def leave(order: Any) -> dict[str, Any]:
    return answer(await asyncio.to_thread(first_piece, order), None, None)


if __name__ == "__main__":
    serve(ask=ask, again=again, stream=stream, tool=tool, leave=leave)
