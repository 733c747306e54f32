"""The adapter against the scripted provider and each of its faults, on a real connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.core.errors import ProviderRefused, ProviderUnavailable
from gateway.core.ports import Sending
from scripted.app import create_app, serving

PLAIN_AND_STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])


@pytest.fixture
async def scripted(open_model: Any) -> Any:
    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[Any]:
        async with serving(create_app()) as url, open_model(f"{url}/v1", **settings) as model:
            yield model

    return opened


@pytest.fixture
async def ask_scripted(scripted: Any, ask_model: Any, make_run: Any) -> Any:
    async def ask(name: str, *, stream: bool, **settings: Any) -> Any:
        async with scripted(**settings) as model:
            return await ask_model(model, make_run(model=name), stream=stream)

    return ask


async def test_a_reply_is_the_same_plain_and_streamed(ask_scripted: Any) -> None:
    plain, streamed = [await ask_scripted("plan", stream=stream) for stream in (False, True)]

    assert plain.reply.message == streamed.reply.message
    assert plain.reply.usage == streamed.reply.usage
    assert plain.reply.finish == streamed.reply.finish == "tool_calls"
    assert not plain.reply.estimated


@PLAIN_AND_STREAMED
@pytest.mark.parametrize(
    ("fault", "lost"),
    [
        ("429@retry_after=0.01", False),
        ("500", False),
        ("503", False),
        ("drop_before", True),
        ("drop_middle", True),
        ("truncate", True),
        ("bad_json", True),
    ],
)
async def test_a_fault_that_passes_is_tried_again(ask_scripted: Any, fault: str, lost: bool, stream: bool) -> None:
    whole = await ask_scripted("plan", stream=stream)

    got = await ask_scripted(f"plan@fault={fault}@attempt=1", stream=stream)

    assert got.reply.message == whole.reply.message
    assert [(sending.attempt, sending.lost) for sending in got.sendings] == [(1, False), (2, lost)]


@PLAIN_AND_STREAMED
@pytest.mark.parametrize("fault", ["429@retry_after=0", "503", "drop_before", "drop_middle", "truncate", "bad_json"])
async def test_a_fault_that_stays_uses_the_retries_up(ask_scripted: Any, fault: str, stream: bool) -> None:
    got = await ask_scripted(f"plan@fault={fault}", stream=stream, retries_max=2)

    assert isinstance(got.error, ProviderUnavailable)
    assert got.error.attempts == 3
    assert " to 3 attempts" in str(got.error)


@PLAIN_AND_STREAMED
@pytest.mark.parametrize("status", [400, 401, 403])
async def test_a_refusal_is_not_tried_again(ask_scripted: Any, status: int, stream: bool) -> None:
    got = await ask_scripted(f"plan@fault={status}", stream=stream)

    assert isinstance(got.error, ProviderRefused)
    assert got.error.status == status
    assert str(got.error).startswith(f"the provider answered {status}: Scripted fault")


@PLAIN_AND_STREAMED
@pytest.mark.parametrize("fault", ["no_usage", "no_finish", "finish_stop", "no_index"])
async def test_a_fault_that_can_be_mended_changes_nothing(ask_scripted: Any, fault: str, stream: bool) -> None:
    whole = await ask_scripted("plan", stream=stream)

    got = await ask_scripted(f"plan@fault={fault}", stream=stream)

    assert got.sendings == [Sending(1)]
    assert got.reply.message == whole.reply.message
    assert got.reply.finish == "tool_calls"
    assert got.reply.usage == whole.reply.usage, "our own count is that of the provider"
    assert got.reply.estimated == (fault == "no_usage")


@PLAIN_AND_STREAMED
async def test_an_id_that_is_issued_again_in_another_turn_is_kept(ask_scripted: Any, stream: bool) -> None:
    got = await ask_scripted("plan@fault=reissue_id", stream=stream)

    assert [call.id for call in got.reply.message.tool_calls] == ["c1"]


@PLAIN_AND_STREAMED
async def test_a_stall_is_given_up_and_tried_again(ask_scripted: Any, stream: bool) -> None:
    got = await ask_scripted("plan@fault=stall@attempt=1", stream=stream, read_timeout_seconds=0.1)

    assert got.reply is not None
    assert [sending.lost for sending in got.sendings] == [False, True]


async def test_the_models_of_the_provider_are_its_scripts(scripted: Any) -> None:
    async with scripted() as model:
        assert "plan" in await model.models()
