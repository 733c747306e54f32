"""OpenAI's Responses API, by its own library: of agents, and of models in conversations known by their responses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from scripted.scripts import Call, Script, Step
from tests.edge.openai.talking import ANSWER, USER
from tests.serving import QUESTION, TEST_SCRIPTS, Gateway, Serve, refused

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}


SAYS_AND_ASKS = Script(
    "For tests.",
    (Step(turn=0, text="Let me look.", calls=(Call("c1", "weather", {"city": "Oslo"}),)), Step(text="Done.")),
)


@pytest.fixture(autouse=True)
def says_and_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TEST_SCRIPTS, "says_and_asks", SAYS_AND_ASKS)  # type: ignore[arg-type]


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def outputs(response: Any, *texts: str) -> list[Any]:
    calls = [item for item in response.output if item.type == "function_call"]
    pairs = zip(calls, texts, strict=True)
    return [{"type": "function_call_output", "call_id": call.call_id, "output": text} for call, text in pairs]


async def test_an_agent_answers_with_the_runs_usage(client: openai.AsyncOpenAI) -> None:
    got = await client.responses.create(model="files", input=QUESTION)

    assert (got.status, got.output_text) == ("completed", ANSWER)
    assert got.usage is not None
    assert (got.usage.input_tokens, got.usage.output_tokens) == (815, 70)
    assert got.model_extra is not None
    assert got.model_extra["gateway"]["turns"] == 3


async def test_a_stream_has_the_events_of_the_api_in_their_order(client: openai.AsyncOpenAI) -> None:
    events = [event async for event in await client.responses.create(model="files", input=QUESTION, stream=True)]

    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
    ]  # fmt: skip
    assert kinds[-4:] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == ANSWER
    assert events[0].response.id == events[-1].response.id  # type: ignore[union-attr]


async def test_calls_of_the_clients_go_out_and_their_outputs_come_back(serve: Serve) -> None:
    async with serve(agent={"model": "asks_client"}) as gateway:
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
            asks = await client.responses.create(model="files", input=QUESTION, tools=[WEATHER])
            done = await client.responses.create(
                model="files", previous_response_id=asks.id, input=outputs(asks, "sun", "rain"), tools=[WEATHER]
            )

        assert done.output_text == "Done."
        assert gateway.stored_runs() == 1


async def test_a_model_of_the_providers_keeps_its_conversation_by_its_responses(
    gateway: Gateway, client: openai.AsyncOpenAI
) -> None:
    asks = await client.responses.create(model="asks_client", input=QUESTION, tools=[WEATHER], instructions="Be brief.")
    done = await client.responses.create(
        model="asks_client", previous_response_id=asks.id, input=outputs(asks, "sun", "rain"), tools=[WEATHER]
    )
    more = await client.responses.create(model="talks", previous_response_id=done.id, input="And now?")

    assert done.output_text == "Done."
    assert more.output_text.startswith("errors.log mentions")
    assert gateway.stored_runs() == 1
    run = (await gateway.get("/v1/runs")).json["runs"][0]
    assert (run["agent"], run["turns"]) == ("conversation", 3)
    first = (await gateway.trace(run["id"]))[0]
    assert first["tools"][0]["strict"] is True
    stale = await gateway.post("/v1/responses", {"model": "talks", "input": "x", "previous_response_id": asks.id})
    refused(stale, 409, param="previous_response_id")


async def test_the_whole_input_leads_back_to_the_run_by_its_calls(gateway: Gateway, client: openai.AsyncOpenAI) -> None:
    asks = await client.responses.create(model="asks_client", input=QUESTION, tools=[WEATHER])
    items: Any = [{"role": "user", "content": QUESTION}, *[item.model_dump() for item in asks.output]]

    done = await client.responses.create(
        model="asks_client", input=[*items, *outputs(asks, "sun", "rain")], tools=[WEATHER]
    )

    assert done.output_text == "Done."
    assert gateway.stored_runs() == 1


def named(response: Any) -> list[Any]:
    """What a client sends that takes the items of a response for kept."""
    return [{"type": "item_reference", "id": item.id} for item in response.output]


@pytest.mark.parametrize("streamed", [False, True])
async def test_items_that_a_client_only_names_are_what_they_were(serve: Serve, streamed: bool) -> None:
    async with serve(agent={"model": "says_and_asks"}) as gateway:
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
            asks = await answered(client, streamed, input=[USER], tools=[WEATHER])
            assert [item.type for item in asks.output] == ["message", "function_call"]
            back = [USER, *named(asks), *outputs(asks, "sun")]
            done = await answered(client, streamed, input=back, tools=[WEATHER])
            next_question = {"role": "user", "content": "And now?"}
            items = [*back, *named(done), next_question]
            more = await answered(client, streamed, input=items, model="files", tools=[WEATHER])

        assert gateway.stored_runs() == 2
        assert done.output[0].id != asks.output[0].id
        messages = (await gateway.look(f"run_{more.id.split('_')[1]}"))["messages"]
        assert [message["content"] for message in messages[1:6]] == [
            QUESTION, "Let me look.", "sun", "Done.", "And now?",
        ]  # fmt: skip
        assert messages[2]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city":"Oslo"}'}


async def answered(client: openai.AsyncOpenAI, streamed: bool, model: str = "files", **fields: Any) -> Any:
    if not streamed:
        return await client.responses.create(model=model, **fields)
    events = [event async for event in await client.responses.create(model=model, stream=True, **fields)]
    return events[-1].response  # type: ignore[union-attr]


async def test_a_named_message_that_said_why_there_is_no_answer_still_says_so(serve: Serve) -> None:
    async with serve(agent={"model": "runaway"}) as gateway:
        capped = await gateway.post(
            "/v1/responses", {"model": "files", "input": [USER]}, headers={"X-Gateway-Max-Turns": "1"}
        )
        item = {"id": capped.json["output"][0]["id"]}  # without its type, as the API also takes it
        more = await gateway.post("/v1/responses", {"model": "talks", "input": [USER, item, USER]})

        messages = (await gateway.look(more.headers["X-Run-Id"]))["messages"]
        assert "It used 1 turn, and max_turns is 1." in messages[1]["content"]


@pytest.mark.parametrize(
    "name", ["msg_0123456789abcdef_0", "fc_run_0123456789abcdef.1.0", "fc_{run}.9.0", "fc_{run}.1.7", "rs_1", ""]
)
async def test_a_name_that_no_item_has_is_refused(gateway: Gateway, name: str) -> None:
    run_id = (await gateway.post("/v1/responses", {"model": "talks", "input": [USER]})).headers["X-Run-Id"]
    item = {"type": "item_reference", "id": name.format(run=run_id)}

    refused(await gateway.post("/v1/responses", {"model": "talks", "input": [USER, item]}), 404, "not_found")


async def test_streamed_calls_have_their_arguments(client: openai.AsyncOpenAI) -> None:
    stream = await client.responses.create(model="asks_client", input=QUESTION, tools=[WEATHER], stream=True)
    events = [event async for event in stream]

    done = [event.arguments for event in events if event.type == "response.function_call_arguments.done"]
    assert done == ['{"city":"Oslo"}', '{"city":"Bergen"}']
    assert events[-1].type == "response.completed"
    assert [item.type for item in events[-1].response.output] == ["function_call", "function_call"]


async def test_a_capped_run_is_incomplete_in_words(serve: Serve) -> None:
    async with serve(agent={"model": "runaway"}) as gateway:
        got = await gateway.post(
            "/v1/responses", {"model": "files", "input": QUESTION}, headers={"X-Gateway-Max-Turns": "1"}
        )

        assert (got.json["status"], got.json["gateway"]["reason"]) == ("incomplete", "max_turns")
        assert "It used 1 turn, and max_turns is 1." in got.json["output"][0]["content"][0]["text"]


@pytest.mark.parametrize("fault", ["401", "drop_middle", "truncate", "bad_json"])
async def test_a_stream_that_fails_never_says_completed(serve: Serve, fault: str) -> None:
    async with serve(agent={"model": f"plan@fault={fault},turn=2"}) as gateway:
        got = await gateway.post("/v1/responses", {"model": "files", "input": QUESTION, "stream": True})

        kinds = [event.event for event in got.sse]
        assert kinds[0] == "response.created"
        assert "response.completed" not in kinds
        assert kinds[-1] in ("response.failed", "response.incomplete", "error")


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, 422, "tools[0]"),
        ({"input": [{"type": "computer_call"}]}, 422, "input[0]"),
        ({"input": [{"type": "function_call"}]}, 400, "input[0]"),
        ({"previous_response_id": "resp_other"}, 404, "previous_response_id"),
        ({"input": []}, 400, "input"),
        ({"input": [{"role": "user", "content": [{"text": "no type"}]}]}, 400, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": 1}]}]}, 400, "input[0].content[0]"),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text"}, {}]}]},
            400,
            "input[0].output[1]",
        ),
    ],
)
async def test_what_no_run_can_do_is_refused_naming_the_field(
    gateway: Gateway, fields: dict[str, Any], status: int, param: str
) -> None:
    refused(await gateway.post("/v1/responses", {"model": "files", "input": QUESTION, **fields}), status, param=param)


async def test_parameters_say_the_same_to_a_chat_completion(gateway: Gateway) -> None:
    schema = {"type": "json_schema", "name": "answer", "schema": {"type": "object"}, "strict": True}
    got = await gateway.post(
        "/v1/responses",
        {
            "model": "talks",
            "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:x", "detail": "low"}]}],
            "temperature": 0.5,
            "max_output_tokens": 300,
            "reasoning": {"effort": "low"},
            "text": {"format": schema},
            "tool_choice": {"type": "function", "name": "weather"},
            "tools": [WEATHER],
        },
    )

    first = (await gateway.trace(got.headers["X-Run-Id"]))[0]
    assert first["params"]["max_completion_tokens"] == 300
    assert first["params"]["reasoning_effort"] == "low"
    assert first["params"]["response_format"]["json_schema"]["name"] == "answer"
    assert first["params"]["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert first["messages"][0]["content"] == [{"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}}]
