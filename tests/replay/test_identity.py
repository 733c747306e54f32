"""Export, then replay, is the identity on runs in which anything happened."""

import asyncio
import logging
from collections.abc import Iterator
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.codec import encode
from gateway.core.run import Limits, Policies
from gateway.replay.exporting import recording_of
from gateway.replay.playing import play
from gateway.replay.recording import decode_recording
from tests.core import chance
from tests.replay.originals import RUN_ID, Original

limits = st.builds(
    Limits,
    max_turns=st.none() | st.integers(2, 9),
    max_budget_usd=chance.budgets,
    budget_mode=st.sampled_from(["soft", "hard"]),
    deadline_seconds=st.sampled_from([None, None, None, 30.0, 0.002]),
).filter(lambda limits: limits.max_turns is not None or limits.max_budget_usd is not None)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A bug of a toolbox is logged, and here it is meant."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@given(st.integers(0, 2**32), limits, chance.policies)
def test_whatever_happened_in_a_run_happens_again(seed: int, limits: Limits, policies: Policies) -> None:
    asyncio.run(check(seed, limits, policies))


@example(16215, Limits(max_turns=None, max_budget_usd=Decimal("0.01"), budget_mode="hard"), Policies(dedupe="off"))
@given(st.integers(0, 2**32), limits, chance.policies)
def test_whatever_a_client_said_in_a_conversation_is_said_again(seed: int, limits: Limits, policies: Policies) -> None:
    asyncio.run(check(seed, limits, policies, conversation=True))


async def check(seed: int, limits: Limits, policies: Policies, *, conversation: bool = False) -> None:
    async with asyncio.timeout(30):
        events = await Original(seed, limits, policies, conversation=conversation).events()
        recording = decode_recording(encode(recording_of(RUN_ID, events)), "the document")
        played = await play(recording, stall_seconds=3)

    assert played.difference is None, (str(played.difference), recording.actions, recording.asks)
    assert played.events == len(events)
