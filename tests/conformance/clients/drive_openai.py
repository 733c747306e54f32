"""openai for Python. It has no loop for tools: whoever uses it writes one, as its documentation does. Streams are read
by chunks, and in that loop by its helper, which puts them together again."""

from __future__ import annotations

import json
from typing import Any

from lines import NEXT_QUESTION, Weather, answer, serve
from openai import AsyncOpenAI

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
ABOUT = {"name": "weather", "description": "The weather of a city.", "parameters": PARAMETERS, "strict": True}
CHAT_TOOL: Any = {"type": "function", "function": ABOUT}
RESPONSES_TOOL: Any = {"type": "function", **ABOUT}


def client_of(order: Any) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=order.base_url, api_key="none", default_headers=order.headers)


def said(order: Any) -> Any:
    return [{"role": "user", "content": order.question}]


def of_chat(completion: Any, **more: Any) -> dict[str, Any]:
    choice, usage = completion.choices[0], completion.usage
    extension = completion.model_extra.get("gateway") or {}  # its helper for streams does not keep it
    tokens = (usage.prompt_tokens, usage.completion_tokens)
    return answer(choice.message.content, choice.finish_reason, tokens, run_id=extension.get("run_id"), **more)


def of_response(response: Any, **more: Any) -> dict[str, Any]:
    usage, run_id = response.usage, response.model_extra["gateway"]["run_id"]
    tokens = (usage.input_tokens, usage.output_tokens)
    words = response.error.message if response.error else ""
    return answer(response.output_text, response.status, tokens, run_id=run_id, words=words, **more)


async def completed(client: AsyncOpenAI, order: Any, messages: Any, **fields: Any) -> Any:
    """A completion, also where it comes in pieces: by the helper that puts them together again."""
    if not order.stream:
        return await client.chat.completions.create(model=order.model, messages=messages, **fields)
    options: Any = {"include_usage": True}
    streaming = client.chat.completions.stream(model=order.model, messages=messages, stream_options=options, **fields)
    async with streaming as events:
        return await events.get_final_completion()


async def responded(client: AsyncOpenAI, order: Any, items: Any, **fields: Any) -> Any:
    if not order.stream:
        return await client.responses.create(model=order.model, input=items, **fields)
    async with client.responses.stream(model=order.model, input=items, **fields) as events:
        return [event async for event in events][-1].response


async def ask(order: Any) -> dict[str, Any]:
    async with client_of(order) as client:
        if order.api == "chat":
            return of_chat(await completed(client, order, said(order)))
        return of_response(await responded(client, order, said(order)))


async def again(order: Any) -> dict[str, Any]:
    next_question = {"role": "user", "content": NEXT_QUESTION}
    async with client_of(order) as client:
        if order.api == "chat":
            first = await completed(client, order, said(order))
            return of_chat(await completed(client, order, [*said(order), first.choices[0].message, next_question]))
        first = await responded(client, order, said(order))
        return of_response(await responded(client, order, [*said(order), *first.output, next_question]))


async def stream(order: Any) -> dict[str, Any]:
    async with client_of(order) as client:
        return await (chat_stream if order.api == "chat" else responses_stream)(client, order)


async def chat_stream(client: AsyncOpenAI, order: Any) -> dict[str, Any]:
    options: Any = {"include_usage": True}
    made: Any = await client.chat.completions.create(
        model=order.model, messages=said(order), stream=True, stream_options=options
    )
    chunks = [chunk async for chunk in made]
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    deltas = [choice.delta.content for choice in choices if choice.delta.content]
    usage, ending = chunks[-1].usage, next(chunk for chunk in chunks if (chunk.model_extra or {}).get("gateway"))
    return answer(
        "".join(deltas),
        choices[-1].finish_reason,
        (usage.prompt_tokens, usage.completion_tokens),
        run_id=ending.model_extra["gateway"]["run_id"],
        deltas=deltas,
    )


async def responses_stream(client: AsyncOpenAI, order: Any) -> dict[str, Any]:
    async with client.responses.stream(model=order.model, input=said(order)) as made:
        events: Any = [event async for event in made]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    return of_response(events[-1].response, deltas=deltas)


async def tool(order: Any) -> dict[str, Any]:
    weather = Weather()
    async with client_of(order) as client:
        loop = chat_loop if order.api == "chat" else responses_loop
        return await loop(client, order, weather)


async def chat_loop(client: AsyncOpenAI, order: Any, weather: Weather) -> dict[str, Any]:
    messages = said(order)
    while True:
        completion = await completed(client, order, messages, tools=[CHAT_TOOL])
        message = completion.choices[0].message
        if not message.tool_calls:
            return of_chat(completion, executed=weather.asked)
        messages.append(message)
        for call in message.tool_calls:
            output = weather.of(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": output})


async def responses_loop(client: AsyncOpenAI, order: Any, weather: Weather) -> dict[str, Any]:
    items = said(order)
    while True:
        response = await responded(client, order, items, tools=[RESPONSES_TOOL])
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return of_response(response, executed=weather.asked)
        items += response.output
        for call in calls:
            output = weather.of(**json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})


async def leave(order: Any) -> dict[str, Any]:
    async with client_of(order) as client:
        if order.api == "chat":
            chunks: Any = await client.chat.completions.create(model=order.model, messages=said(order), stream=True)
            async for chunk in chunks:
                if text := chunk.choices[0].delta.content:
                    await chunks.close()
                    return answer(text, None, None)
        events: Any = await client.responses.create(model=order.model, input=said(order), stream=True)
        async for event in events:
            if event.type == "response.output_text.delta":
                await events.close()
                return answer(event.delta, None, None)
    raise AssertionError("no text came")


if __name__ == "__main__":
    serve(ask=ask, again=again, stream=stream, tool=tool, leave=leave)
