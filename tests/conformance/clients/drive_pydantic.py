"""pydantic-ai: its agent has the loop."""

from __future__ import annotations

from typing import Any

from lines import NEXT_QUESTION, Weather, answer, serve
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

MODELS: Any = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}


def agent_of(order: Any, tools: Any = ()) -> Agent:
    provider = OpenAIProvider(base_url=order.base_url, api_key="none")
    model = MODELS[order.api](order.model, provider=provider)
    return Agent(model, tools=list(tools), model_settings={"extra_headers": order.headers})


def told(result: Any, text: str, **more: Any) -> dict[str, Any]:
    last = result.all_messages()[-1]
    tokens = (last.usage.input_tokens, last.usage.output_tokens)
    return answer(text, last.finish_reason, tokens, run_id=last.provider_response_id, **more)


async def ask(order: Any) -> dict[str, Any]:
    result = await agent_of(order).run(order.question)
    return told(result, result.output)


async def again(order: Any) -> dict[str, Any]:
    first = await agent_of(order).run(order.question)
    second = await agent_of(order).run(NEXT_QUESTION, message_history=first.all_messages())
    return told(second, second.output)


async def stream(order: Any) -> dict[str, Any]:
    async with agent_of(order).run_stream(order.question) as result:
        deltas = [text async for text in result.stream_text(delta=True, debounce_by=None)]
        return told(result, "".join(deltas), deltas=deltas)


async def tool(order: Any) -> dict[str, Any]:
    seen = Weather()

    def weather(city: str) -> str:
        """The weather of a city."""
        return seen.of(city)

    agent = agent_of(order, [weather])
    result = await (through_events(agent, order) if order.stream else agent.run(order.question))
    return told(result, result.output, executed=seen.asked)


async def through_events(agent: Agent, order: Any) -> Any:
    """`run_stream` would take the first text for the answer, also where calls come behind it."""
    async with agent.run_stream_events(order.question) as events:
        return [event async for event in events][-1].result


async def leave(order: Any) -> dict[str, Any]:
    async with agent_of(order).run_stream(order.question) as result:
        async for text in result.stream_text(delta=True, debounce_by=None):
            await result.cancel()
            return answer(text, None, None)
    raise AssertionError("no text came")


if __name__ == "__main__":
    serve(ask=ask, again=again, stream=stream, tool=tool, leave=leave)
