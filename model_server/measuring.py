"""`model-server bench`: a model loaded to be measured, with a bar while it loads, and the table."""

import asyncio
from functools import partial

from msgspec import Struct
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from model_server import loading
from model_server.bench import Speed, measure
from model_server.loading import Settings
from model_server.models import Chosen
from model_server.service import Service


class Measured(Struct, frozen=True):
    """`bench --json`."""

    model: str
    quantisation: str
    settings: Settings
    speeds: tuple[Speed, ...]


async def measured(
    chosen: Chosen, settings: Settings, depths: list[int], prompt: int, reply: int, repeat: int
) -> Measured:
    """Raises ModelServerError where the model cannot be loaded, or not compute."""
    service = Service(partial(loading.load, chosen, settings), settings.limits)
    service.start()
    await _loaded(service)
    try:
        if service.failure:
            raise service.failure
        speeds = await measure(service, depths, prompt, reply, repeat)
    finally:
        await service.close()
    return Measured(chosen.name, chosen.header.quantisation, settings, tuple(speeds))


async def _loaded(service: Service) -> None:
    with Progress(transient=True, console=Console(stderr=True)) as bar:
        task = bar.add_task("loading", total=1.0)
        while not service.settled.is_set():
            bar.update(task, completed=service.progress)
            await asyncio.sleep(0.05)


def speed_table(measured: Measured) -> Table:
    attention = "on" if measured.settings.flash_attention else "off"
    title = (
        f"{measured.model}, {measured.quantisation}, {measured.settings.threads} threads, flash attention {attention}"
    )
    table = Table("depth", "prefill tok/s", "decode tok/s", title=title)
    for speed in measured.speeds:
        rates = (speed.prefill_tokens_per_second, speed.decode_tokens_per_second)
        table.add_row(str(speed.depth), *(f"{rate:.1f}" for rate in rates))
    return table
