"""openai-agents: its runner has the loop. Tracing goes to a vendor's address, and is switched off by its setting."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from lines import NEXT_QUESTION, Weather, answer, serve
from openai import AsyncOpenAI

set_tracing_disabled(True)
MODELS: Any = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


def agent_of(order: Any, tools: Any = ()) -> Agent:
    client = AsyncOpenAI(base_url=order.base_url, api_key="none")
    return Agent(
        name="Asks",
        model=MODELS[order.api](order.model, client),
        model_settings=ModelSettings(extra_headers=order.headers, include_usage=True),
        tools=list(tools),
    )


def told(result: Any, **more: Any) -> dict[str, Any]:
    """The text is all that it tells of an ending, and a response's id."""
    last = result.raw_responses[-1]
    tokens = (last.usage.input_tokens, last.usage.output_tokens)
    return answer(result.final_output, None, tokens, run_id=last.response_id, **more)


async def ask(order: Any) -> dict[str, Any]:
    return told(await Runner.run(agent_of(order), order.question))


async def again(order: Any) -> dict[str, Any]:
    first = await Runner.run(agent_of(order), order.question)
    items = [*first.to_input_list(), {"role": "user", "content": NEXT_QUESTION}]
    return told(await Runner.run(agent_of(order), items))


async def stream(order: Any) -> dict[str, Any]:
    result = Runner.run_streamed(agent_of(order), order.question)
    deltas = [text async for event in result.stream_events() if (text := delta_of(event))]
    return told(result, deltas=deltas)


def delta_of(event: Any) -> str | None:
    if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
        return event.data.delta
    return None


async def tool(order: Any) -> dict[str, Any]:
    seen = Weather()

    @function_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return seen.of(city)

    if not order.stream:
        return told(await Runner.run(agent_of(order, [weather]), order.question), executed=seen.asked)
    result = Runner.run_streamed(agent_of(order, [weather]), order.question)
    async for _ in result.stream_events():
        pass
    return told(result, executed=seen.asked)


async def leave(order: Any) -> dict[str, Any]:
    result = Runner.run_streamed(agent_of(order), order.question)
    first = None
    async for event in result.stream_events():
        if first is None and (first := delta_of(event)):
            result.cancel()
    return answer(first, None, None)


if __name__ == "__main__":
    serve(ask=ask, again=again, stream=stream, tool=tool, leave=leave)
