"""How fast the model computes, measured through the server's own loop: scheduler, sampling and all, without HTTP.

As llama-bench counts: at each depth the context already holds that many tokens, and after them either a prompt of
`prompt_tokens` is computed or a reply of `reply_tokens`. The tokens are arbitrary; what they mean does not change the
speed.
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
    prefills: list[float] = []
    decodes: list[float] = []
    for number in range(repeat):
        generator = random.Random(f"{depth}:{number}")
        held = await _hold(service, generator.choices(_TOKENS, k=depth))
        decodes.append(_decode_rate(await _run(service, held + generator.choices(_TOKENS, k=1), reply_tokens)))
        held = await _hold(service, generator.choices(_TOKENS, k=depth))
        prefills.append(_prefill_rate(await _run(service, held + generator.choices(_TOKENS, k=prompt_tokens), 1)))
    return Speed(
        depth=depth,
        prompt_tokens=prompt_tokens,
        reply_tokens=reply_tokens,
        prefill_tokens_per_second=round(median(prefills), 2),
        decode_tokens_per_second=round(median(decodes), 2),
    )


async def _hold(service: Service, tokens: list[int]) -> list[int]:
    """These, and nothing of what was there before."""
    service.forget()
    if tokens:
        await _run(service, tokens, 1)
    return tokens


async def _run(service: Service, prompt: list[int], reply_tokens: int) -> tuple[Job, Ended]:
    job = Job(id=service.next_id(), prompt=tuple(prompt), tokens_max=reply_tokens, past_the_end=True)
    _, ended = await whole(service, job)
    await asyncio.sleep(0)
    return job, ended


def _prefill_rate(ran: tuple[Job, Ended]) -> float:
    job, ended = ran
    return (len(job.prompt) - ended.cached) / (ended.spent.first_at - ended.spent.begun_at)


def _decode_rate(ran: tuple[Job, Ended]) -> float:
    _, ended = ran
    return (len(ended.tokens) - 1) / (ended.spent.ended_at - ended.spent.first_at)
