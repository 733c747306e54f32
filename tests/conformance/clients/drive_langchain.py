"""langchain-openai: a chat model with tools bound to it. The loop around that is written by whoever uses it."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from lines import NEXT_QUESTION, Weather, answer, serve


def model_of(order: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=order.model,
        base_url=order.base_url,
        api_key="none",  # type: ignore[arg-type]
        default_headers=order.headers,
        stream_usage=True,
        include_response_headers=True,
        use_responses_api=order.api == "responses",
    )


def told(message: Any, **more: Any) -> dict[str, Any]:
    about, usage = message.response_metadata, message.usage_metadata
    tokens = (usage["input_tokens"], usage["output_tokens"])
    finish = about.get("finish_reason") or about.get("status")
    return answer(message.text, finish, tokens, run_id=about["headers"].get("x-run-id"), **more)


async def ask(order: Any) -> dict[str, Any]:
    return told(await model_of(order).ainvoke(order.question))


async def again(order: Any) -> dict[str, Any]:
    model, question = model_of(order), HumanMessage(order.question)
    first = await model.ainvoke([question])
    return told(await model.ainvoke([question, first, HumanMessage(NEXT_QUESTION)]))


async def stream(order: Any) -> dict[str, Any]:
    chunks = [chunk async for chunk in model_of(order).astream(order.question)]
    return told(reduce(add, chunks), deltas=[chunk.text for chunk in chunks if chunk.text])


async def tool(order: Any) -> dict[str, Any]:
    seen = Weather()

    @langchain_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return seen.of(city)

    model, messages = model_of(order).bind_tools([weather]), [HumanMessage(order.question)]
    while True:
        reply: Any = await (in_pieces(model, messages) if order.stream else model.ainvoke(messages))
        if not reply.tool_calls:
            return told(reply, executed=seen.asked)
        messages += [reply, *[await weather.ainvoke(call) for call in reply.tool_calls]]


async def in_pieces(model: Any, messages: Any) -> Any:
    return reduce(add, [chunk async for chunk in model.astream(messages)])


async def leave(order: Any) -> dict[str, Any]:
    chunks: Any = model_of(order).astream(order.question)
    async for chunk in chunks:
        if chunk.text:
            await chunks.aclose()
            return answer(chunk.text, None, None)
    raise AssertionError("no text came")


if __name__ == "__main__":
    serve(ask=ask, again=again, stream=stream, tool=tool, leave=leave)
