"""litellm. It fetches its table of prices from the network unless it is told to use its own: see conftest.py."""

from __future__ import annotations

import json
from typing import Any

import litellm
from lines import NEXT_QUESTION, Weather, answer, serve

# What it does not know a model for it does not stream through this API: it asks for the whole and cuts that up.
STREAMS = {"litellm_provider": "openai", "mode": "responses", "supports_native_streaming": True}
litellm.register_model({"openai/files": STREAMS})

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ABOUT = {"name": "weather", "description": "The weather of a city.", "parameters": PARAMETERS}


def common(order: Any) -> dict[str, Any]:
    return {
        "model": f"openai/{order.model}",
        "api_base": order.base_url,
        "api_key": "none",
        "extra_headers": order.headers,
    }


def said(order: Any) -> list[Any]:
    return [{"role": "user", "content": order.question}]


def of_chat(reply: Any, **more: Any) -> dict[str, Any]:
    choice, usage = reply.choices[0], reply.usage
    tokens = (usage.prompt_tokens, usage.completion_tokens)
    return answer(choice.message.content, choice.finish_reason, tokens, run_id=reply.id, **more)


def of_response(reply: Any, **more: Any) -> dict[str, Any]:
    text = "".join(part.text for item in reply.output if item.type == "message" for part in item.content)
    return answer(text, reply.status, (reply.usage.input_tokens, reply.usage.output_tokens), **more)


async def completed(order: Any, messages: Any, **fields: Any) -> Any:
    if not order.stream:
        return await litellm.acompletion(messages=messages, **common(order), **fields)
    options = {"include_usage": True}
    chunks: Any = await litellm.acompletion(
        messages=messages, stream=True, stream_options=options, **common(order), **fields
    )
    return litellm.stream_chunk_builder([chunk async for chunk in chunks], messages=messages)


async def responded(order: Any, items: Any, **fields: Any) -> Any:
    if not order.stream:
        return await litellm.aresponses(input=items, **common(order), **fields)
    events: Any = await litellm.aresponses(input=items, stream=True, **common(order), **fields)
    return [event async for event in events][-1].response


async def ask(order: Any) -> dict[str, Any]:
    if order.api == "chat":
        return of_chat(await completed(order, said(order)))
    return of_response(await responded(order, said(order)))


async def again(order: Any) -> dict[str, Any]:
    next_question = {"role": "user", "content": NEXT_QUESTION}
    if order.api == "chat":
        first = await completed(order, said(order))
        return of_chat(await completed(order, [*said(order), first.choices[0].message, next_question]))
    first = await responded(order, said(order))
    items = [item.model_dump() for item in first.output]
    return of_response(await responded(order, [*said(order), *items, next_question]))


async def stream(order: Any) -> dict[str, Any]:
    if order.api == "chat":
        options = {"include_usage": True}
        reply: Any = await litellm.acompletion(
            messages=said(order), stream=True, stream_options=options, **common(order)
        )
        chunks = [chunk async for chunk in reply]
        deltas = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
        whole = litellm.stream_chunk_builder(chunks, messages=said(order))
        return of_chat(whole, deltas=[delta for delta in deltas if delta])
    events: Any = await litellm.aresponses(input=said(order), stream=True, **common(order))
    deltas, last = [], None
    async for event in events:
        if event.type == "response.output_text.delta":
            deltas.append(event.delta)
        last = event
    return of_response(last.response, deltas=deltas)


async def tool(order: Any) -> dict[str, Any]:
    weather = Weather()
    return await (chat_loop if order.api == "chat" else responses_loop)(order, weather)


async def chat_loop(order: Any, weather: Weather) -> dict[str, Any]:
    messages, tools = said(order), [{"type": "function", "function": ABOUT}]
    while True:
        reply = await completed(order, messages, tools=tools)
        message = reply.choices[0].message
        if not message.tool_calls:
            return of_chat(reply, executed=weather.asked)
        messages.append(message)
        for call in message.tool_calls:
            output = weather.of(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": output})


async def responses_loop(order: Any, weather: Weather) -> dict[str, Any]:
    items, tools = said(order), [{"type": "function", **ABOUT}]
    while True:
        reply = await responded(order, items, tools=tools)
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            return of_response(reply, executed=weather.asked)
        items += [item.model_dump() for item in reply.output]
        for call in calls:
            output = weather.of(**json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})


async def leave(order: Any) -> dict[str, Any]:
    if order.api == "chat":
        reply: Any = await litellm.acompletion(messages=said(order), stream=True, **common(order))
        async for chunk in reply:
            if text := chunk.choices[0].delta.content:
                await reply.aclose()
                return answer(text, None, None)
    events: Any = await litellm.aresponses(input=said(order), stream=True, **common(order))
    async for event in events:
        if event.type == "response.output_text.delta":
            await events.aclose()
            return answer(event.delta, None, None)
    raise AssertionError("no text came")


if __name__ == "__main__":
    serve(ask=ask, again=again, stream=stream, tool=tool, leave=leave)
