"""Each fault of a provider through OpenAI's surface: to an agent, to a conversation and passed through, plain and
streamed. Never an answer that looks whole and is not, never an orphan call, never [DONE] after a failure."""

from __future__ import annotations

from typing import Any

import pytest

from scripted.faults import Kind
from tests.edge.openai.talking import ANSWER, USER, WEATHER, Streamed, chat, stream
from tests.service.test_provider_faults import require_intact
from tests.serving import Gateway, Serve

TEXT = "errors.log mentions a timeout, and nothing else does."
PASSING = ["429", "500", "503"]
LOSING = ["drop_before", "drop_middle", "truncate", "bad_json"]
REFUSING = ["400", "401", "403"]
HARMLESS = ["none", "no_usage", "no_finish", "finish_stop", "no_index", "reissue_id", "stall"]
DETAILS = {"429": ",retry_after=0", "stall": ",stall_ms=20"}


def test_the_list_is_the_whole_list() -> None:
    assert {*PASSING, *LOSING, *REFUSING, *HARMLESS} == set(Kind)


def fault(kind: str, more: str = "") -> str:
    return f"@fault={kind}{DETAILS.get(kind, '')}{more}"


async def intact(gateway: Gateway, run_id: str) -> dict[str, Any]:
    run = await gateway.look(run_id)
    require_intact(run)
    return run


# --- an agent -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*PASSING, *LOSING, *REFUSING])
@pytest.mark.parametrize("turn", [0, 2])
async def test_an_agent_whose_provider_stays_faulty_never_answers_as_if_it_had(
    serve: Serve, kind: str, turn: int
) -> None:
    async with serve(agent={"model": f"plan{fault(kind, f',turn={turn}')}"}) as gateway:
        plain, streamed = await chat(gateway), await stream(gateway)

        failed = kind in REFUSING
        run = await intact(gateway, plain.headers["X-Run-Id"])
        assert run["status"] == ("failed" if failed else "interrupted")
        if failed:
            assert plain.status == 502
            assert streamed.error is not None or streamed.status == 502
            assert not streamed.done
        else:
            assert plain.json["choices"][0]["finish_reason"] == "length"
            require_no_answer(streamed)


def require_no_answer(got: Streamed) -> None:
    assert got.finish in ("length", None)
    if got.done:
        assert "The model cannot be reached" in got.text
    else:
        assert got.error is not None or got.broken


@pytest.mark.parametrize("kind", [*PASSING, *LOSING, *HARMLESS])
async def test_an_agent_whose_provider_recovers_answers_whole_and_once(serve: Serve, kind: str) -> None:
    async with serve(agent={"model": f"plan{fault(kind, ',attempt=1')}"}) as gateway:
        plain, streamed = await chat(gateway), await stream(gateway)

        assert plain.json["choices"][0]["message"]["content"] == ANSWER
        assert (streamed.text, streamed.finish, streamed.done) == (ANSWER, "stop", True)
        await intact(gateway, plain.headers["X-Run-Id"])
        await intact(gateway, streamed.headers["X-Run-Id"])


async def test_a_reply_that_comes_otherwise_the_second_time_ends_the_stream_in_an_error(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scripted import replies

    told = replies.capped
    again: list[int] = []

    def other(said: Any, cap: Any) -> Any:
        again.append(1)
        return told(said, cap) if len(again) == 1 else told(type(said)(content="Something else entirely."), cap)

    monkeypatch.setattr(replies, "capped", other)
    async with serve(agent={"model": "talks@fault=drop_middle,attempt=1"}) as gateway:
        got = await stream(gateway)

        assert got.error is not None
        assert got.error["code"] == "reply_differs"
        assert not got.done
        assert (await gateway.look(got.headers["X-Run-Id"]))["output"] == "Something else entirely."


# --- a conversation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*PASSING, *LOSING, *REFUSING, *HARMLESS])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_conversation_has_a_whole_reply_or_says_that_it_has_none(
    gateway: Gateway, kind: str, streamed: bool
) -> None:
    headers = {"X-Gateway-Conversation": f"{kind} {streamed}"}
    model = f"asks_client{fault(kind)}"
    if streamed:
        got = await stream(gateway, model, headers=headers, tools=[WEATHER])
        calls, finish = got.calls, got.finish
    else:
        plain = await chat(gateway, model, headers=headers, tools=[WEATHER])
        choice = plain.json["choices"][0] if plain.status == 200 else {"message": {}, "finish_reason": None}
        calls, finish = choice["message"].get("tool_calls", []), choice["finish_reason"]

    assert finish == ("tool_calls" if kind in HARMLESS else None if kind in REFUSING else "length")
    assert [call["function"]["arguments"] for call in calls] == (
        ['{"city":"Oslo"}', '{"city":"Bergen"}'] if kind in HARMLESS else []
    )
    if calls:
        answers = [{"role": "tool", "tool_call_id": call["id"], "content": "sun"} for call in calls]
        reply = {"role": "assistant", "content": None, "tool_calls": calls}
        done = await chat(gateway, "asks_client", [USER, reply, *answers], headers=headers, tools=[WEATHER])
        assert done.json["choices"][0]["message"]["content"] == "Done."
        await intact(gateway, done.headers["X-Run-Id"])


# --- passed through -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*PASSING, *REFUSING])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_status_of_the_providers_is_passed_on(gateway: Gateway, kind: str, streamed: bool) -> None:
    got = await chat(gateway, f"talks{fault(kind)}", stream=streamed)

    assert got.status == int(kind)
    assert got.json["error"]["message"].startswith("Scripted fault")


@pytest.mark.parametrize("kind", LOSING)
async def test_a_plain_reply_that_is_not_whole_is_an_error(gateway: Gateway, kind: str) -> None:
    got = await chat(gateway, f"talks{fault(kind)}")

    assert got.status == 502
    assert got.json["error"]["code"] == "provider_unavailable"
    assert b"choices" not in got.body


@pytest.mark.parametrize("kind", LOSING)
async def test_a_stream_that_is_not_whole_never_ends_as_if_it_were(gateway: Gateway, kind: str) -> None:
    got = await stream(gateway, f"talks{fault(kind)}")

    assert got.status == 502 or (got.broken and got.error is not None)
    assert not got.done
    assert got.finish is None


@pytest.mark.parametrize("kind", HARMLESS)
async def test_what_is_only_odd_is_passed_on(gateway: Gateway, kind: str) -> None:
    plain, streamed = await chat(gateway, f"talks{fault(kind)}"), await stream(gateway, f"talks{fault(kind)}")

    assert plain.json["choices"][0]["message"]["content"] == TEXT
    assert streamed.text == TEXT
    assert streamed.done
    assert not streamed.broken
