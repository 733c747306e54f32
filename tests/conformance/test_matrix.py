"""Every client does what its API can express, unpatched and at a released version: see abilities.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gateway.core.messages import text_of
from tests.conformance.abilities import API, CLIENTS, Client, Way
from tests.conformance.driving import Answer, Driving
from tests.edge.openai.talking import ANSWER
from tests.serving import QUESTION, Gateway, Serve, eventually

USED = (815, 70)
"""Of the whole run: the published figures."""

Row = tuple[Client, API]


def can(ability: str) -> Callable[..., Any]:
    """The test is run with every client and API that has this ability."""
    rows = [(client, api) for client in CLIENTS for api, way in client.ways.items() if ability not in way.cannot]
    return pytest.mark.parametrize("row", rows, ids=[f"{client.name}-{api}" for client, api in rows])


class Asks:
    """One client, against one gateway."""

    def __init__(self, driving: Driving, row: Row, gateway: Gateway) -> None:
        client, self.api = row
        self.way = client.ways[self.api]
        self._driver = driving(client)
        self._gateway = gateway

    async def __call__(
        self, verb: str, model: str = "files", headers: Mapping[str, str] | None = None, *, stream: bool = False
    ) -> Answer:
        return await self._driver.order(
            verb,
            base_url=f"{self._gateway.url}/v1",
            api=self.api,
            model=model,
            headers=headers or {},
            question=QUESTION,
            stream=stream,
        )


async def only_run(gateway: Gateway) -> dict[str, Any]:
    """The run that the client started: it started one, and did not ask again."""
    assert gateway.stored_runs() == 1
    newest = (await gateway.get("/v1/runs")).json["runs"][0]
    return await gateway.look(newest["id"])


async def tools_run_here(gateway: Gateway, run_id: str) -> list[str]:
    return [event["toolName"] for event in await gateway.trace(run_id) if event["type"] == "tool_start"]


def told(answer: Answer, way: Way, run_id: str, words: str, *, stream: bool = False) -> None:
    """A stop is something that the client can tell from an answer, and it says which run it was, where it can."""
    stop = (way.streamed if stream else None) or way.stop
    assert stop is not None
    if stop.raised:
        assert answer.raised == stop.word, answer
        return
    assert (answer.raised, answer.finish) == (None, stop.word), answer
    assert run_id in (answer.text or "")
    assert words in (answer.text or "")
    assert stop.word is None or names_the_run(answer, way, run_id)


def names_the_run(answer: Answer, way: Way, run_id: str) -> bool:
    """By its id, or by one that is made of it."""
    return way.run_id is None or run_id.removeprefix("run_") in (answer.run_id or "")


@can("answer")
async def test_a_plain_answer_has_the_text_and_the_usage_of_the_whole_run(
    driving: Driving, gateway: Gateway, row: Row
) -> None:
    asks = Asks(driving, row, gateway)
    answer = await asks("ask")

    assert (answer.text, answer.usage) == (ANSWER, USED), answer
    run = await only_run(gateway)
    assert run["status"] == "completed"
    assert names_the_run(answer, asks.way, run["id"])


@can("stream")
async def test_a_stream_comes_in_pieces_and_ends_with_the_usage(driving: Driving, gateway: Gateway, row: Row) -> None:
    answer = await Asks(driving, row, gateway)("stream")

    assert len(answer.deltas) > 2, answer
    assert ("".join(answer.deltas), answer.text, answer.usage) == (ANSWER, ANSWER, USED)
    await only_run(gateway)


@can("server_tool")
async def test_tools_of_the_agent_are_run_by_the_gateway(driving: Driving, gateway: Gateway, row: Row) -> None:
    await Asks(driving, row, gateway)("ask")

    run = await only_run(gateway)
    assert (run["tool_runs"], await tools_run_here(gateway, run["id"])) == (2, ["list_files", "read_file"])


@can("client_tool")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_tool_of_the_client_is_run_by_its_own_loop_and_all_of_it_is_one_run(
    driving: Driving, serve: Serve, row: Row, stream: bool
) -> None:
    client, _ = row
    async with serve(agent={"model": "travels"}) as gateway:
        asks = Asks(driving, row, gateway)
        if client.name == "smolagents":  # its agents write code, and send no outputs by which a run could be known
            answer = await asks("tool", "codes", {"X-Gateway-Conversation": "weather"}, stream=stream)
        else:
            answer = await asks("tool", stream=stream)

        assert answer.text == "Sun in Oslo, rain in Bergen, wind in Rome.", answer
        assert (set(answer.executed[:2]), answer.executed[2:]) == ({"Oslo", "Bergen"}, ["Rome"])
        run = await only_run(gateway)
        assert (run["status"], run["turns"]) == ("completed", 3)
        assert (await gateway.trace(run["id"]))[0].get("stream", False) == stream
        assert await tools_run_here(gateway, run["id"]) == ([] if client.name == "smolagents" else ["list_files"])


@can("again")
async def test_a_second_question_comes_with_the_first_and_its_answer(driving: Driving, serve: Serve, row: Row) -> None:
    async with serve(agent={"model": "talks"}) as gateway:
        answer = await Asks(driving, row, gateway)("again")

        assert answer.text == "I have nothing to add.", answer
        assert gateway.stored_runs() == 2
        newest = (await gateway.get("/v1/runs")).json["runs"][0]["id"]
        messages = (await gateway.look(newest))["messages"]
        assert [(each["role"], text_of(each["content"])) for each in messages[-4:]] == [
            ("user", QUESTION),
            ("assistant", "I have nothing to add."),
            ("user", "And now?"),
            ("assistant", "I have nothing to add."),
        ]


@can("approval")
async def test_a_run_that_waits_for_an_approval_says_so_and_answers_whoever_asks_again_after_it(
    driving: Driving, serve: Serve, row: Row
) -> None:
    async with serve(agent={"model": "destructive"}) as gateway:
        asks = Asks(driving, row, gateway)
        waits = await asks("ask")
        run = await only_run(gateway)
        told(waits, asks.way, run["id"], "waits for an approval")

        await gateway.command(run["id"], "approve", {"call_id": run["pending_approvals"][0]["call_id"]})
        done = await asks("ask", headers={"X-Run-Id": run["id"]})

        assert done.text == "Deleted access.log to free space.", done
        assert (await only_run(gateway))["tool_runs"] == 2


@can("budget")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_budget_that_is_used_up_is_an_answer_and_nobody_asks_again(
    driving: Driving, gateway: Gateway, row: Row, stream: bool
) -> None:
    asks = Asks(driving, row, gateway)
    answer = await asks("stream" if stream else "ask", headers={"X-Gateway-Max-Budget-Usd": "0.0001"})

    run = await only_run(gateway)
    told(answer, asks.way, run["id"], "max_budget_usd is 0.0001", stream=stream)
    assert (run["status"], run["turns"]) == ("budget_exceeded", 1)


async def test_agents_that_take_the_words_of_a_stop_for_code_ask_again_in_vain(
    driving: Driving, gateway: Gateway
) -> None:
    smolagents = next(client for client in CLIENTS if client.name == "smolagents")
    headers = {"X-Gateway-Conversation": "weather", "X-Gateway-Max-Budget-Usd": "0.0001"}

    answer = await Asks(driving, (smolagents, "chat"), gateway)("tool", "codes", headers)

    run = await only_run(gateway)
    assert (run["status"], run["turns"]) == ("budget_exceeded", 1)
    assert "max_budget_usd is 0.0001" in (answer.text or "")


@can("failure")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_run_that_failed_is_an_error_in_words_and_not_begun_again(
    driving: Driving, serve: Serve, row: Row, stream: bool
) -> None:
    async with serve(agent={"model": "plan@fault=401,turn=1"}) as gateway:
        answer = await Asks(driving, row, gateway)("stream" if stream else "ask")

        assert answer.raised or answer.finish == "failed", answer
        assert "the provider answered 401" in answer.words
        assert (await only_run(gateway))["status"] == "failed"


@can("cancel")
async def test_a_client_that_goes_away_in_a_stream_cancels_its_run(driving: Driving, serve: Serve, row: Row) -> None:
    async with serve(agent={"model": "searches"}) as gateway:
        left = await Asks(driving, row, gateway)("leave", headers={"X-Gateway-Cancel-On-Disconnect": "true"})

        assert left.text, left
        await eventually(lambda: has_stopped(gateway), "the run is cancelled")
        run = await only_run(gateway)
        assert (run["status"], run["reason"], run["tool_runs"]) == ("interrupted", "cancelled", 0)


async def has_stopped(gateway: Gateway) -> bool:
    return (await gateway.get("/v1/runs")).json["runs"][0]["status"] != "running"
