"""How fast the model computes, measured through the server's own loop: scheduler, sampling and all, without HTTP.

At each depth the context already holds that many tokens: a prompt of `prompt_tokens` is computed after them, and then a
reply of `reply_tokens`. The tokens are arbitrary, as llama-bench's are; what they mean does not change the speed.
"""

import asyncio
import random
from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from model_server.jobs import Ended, Job
from model_server.service import Service, whole

_TOKENS = range(1000, 40_000)  # ordinary tokens in both vocabularies


class Speed(Struct, frozen=True, kw_only=True):
    """The medians of all runs at one depth."""

    depth: int
    prompt_tokens: int
    reply_tokens: int
    prefill_tokens_per_second: float
    decode_tokens_per_second: float


async def measure(
    service: Service, depths: Sequence[int], prompt_tokens: int, reply_tokens: int, repeat: int
) -> list[Speed]:
    return [await _at_depth(service, depth, prompt_tokens, reply_tokens, repeat) for depth in depths]


async def _at_depth(service: Service, depth: int, prompt_tokens: int, reply_tokens: int, repeat: int) -> Speed:
    runs: list[tuple[float, float]] = []
    for number in range(repeat):
        generator = random.Random(f"{depth}:{number}")
        held = generator.choices(_TOKENS, k=depth)
        if held:
            await whole(service, _job(service, held, 1))
        ended = await _run(service, held + generator.choices(_TOKENS, k=prompt_tokens), reply_tokens)
        runs.append(_rates(ended, depth + prompt_tokens))
    return Speed(
        depth=depth,
        prompt_tokens=prompt_tokens,
        reply_tokens=reply_tokens,
        prefill_tokens_per_second=round(median(prefill for prefill, _ in runs), 2),
        decode_tokens_per_second=round(median(decode for _, decode in runs), 2),
    )


async def _run(service: Service, prompt: list[int], reply_tokens: int) -> Ended:
    _, ended = await whole(service, _job(service, prompt, reply_tokens))
    await asyncio.sleep(0)
    return ended


def _job(service: Service, prompt: list[int], reply_tokens: int) -> Job:
    return Job(id=service.next_id(), prompt=tuple(prompt), tokens_max=reply_tokens, past_the_end=True)


def _rates(ended: Ended, prompt_tokens: int) -> tuple[float, float]:
    spent = ended.spent
    prefill = (prompt_tokens - ended.cached) / (spent.first_at - spent.begun_at)
    return prefill, (len(ended.tokens) - 1) / (spent.ended_at - spent.first_at)
