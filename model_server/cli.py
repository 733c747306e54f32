"""`model-server`: lists and fetches weights, serves them, and measures their speed.

What computes needs the extra `local`, and is imported only once it is known to be there.
"""

import asyncio
import logging
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from msgspec import Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from model_server import fetch as fetching
from model_server import loading, machine, models, replaying
from model_server.errors import LoadFailed, ModelServerError
from model_server.loading import Settings
from model_server.models import Chosen
from model_server.registry import REGISTRY, STAND_IN, Weights
from model_server.scheduler import Limits

cli = typer.Typer(no_args_is_help=True, add_completion=False, help="A model on this machine's CPU, made for agents.")

T = TypeVar("T")

DEPTH_MAX = 30_000

Model = Annotated[str | None, typer.Option(help="A name of the registry, or a GGUF file. Default: the best one here.")]
Context = Annotated[int, typer.Option(min=256, help="Tokens in all sequences together.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Default: the physical cores.")]
FlashAttention = Annotated[bool, typer.Option(help="Faster with long contexts, slower with several replies at once.")]
MatrixUnit = Annotated[bool, typer.Option(help="Repacks weights for the processor where that works.")]
AsJson = Annotated[bool, typer.Option("--json", help="As data.")]


def main() -> None:
    cli()


@contextmanager
def _in_one_sentence() -> Iterator[None]:
    """What is known to go wrong is said in a sentence, without a traceback."""
    try:
        yield
    except ModelServerError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


# ── weights ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Listed(Struct, frozen=True):
    """One entry of `models --json`."""

    weights: Weights
    cached: str | None
    is_default: bool


@cli.command("models")
def models_(as_json: AsJson = False) -> None:
    """List the weights that this server knows."""
    folder = models.cache_folder()
    default = models.default(folder)
    listed = [
        Listed(weights, _text(models.cached_path(weights, folder)), is_default=weights.name == default)
        for weights in REGISTRY.values()
    ]
    if as_json:
        typer.echo(msgspec.json.encode(listed))
    else:
        Console().print(_models_table(listed))
        typer.echo(f"\nCached in {folder}. {REGISTRY[STAND_IN].name}: {REGISTRY[STAND_IN].about}")


@cli.command()
def fetch(
    name: Annotated[str, typer.Argument(help="A name of the registry.")],
    progress: Annotated[bool | None, typer.Option(help="Bars. Default: on a terminal.")] = None,
) -> None:
    """Download weights, check them, and keep them in the cache."""
    with _in_one_sentence():
        if name not in REGISTRY:
            raise LoadFailed(f"{name} is not in the registry: {', '.join(REGISTRY)}.")
        bars = sys.stderr.isatty() if progress is None else progress
        say = partial(typer.echo, err=True)
        path = fetching.fetch(
            REGISTRY[name], models.cache_folder(), say=lambda words: say(f"{name}: {words}"), bars=bars
        )
        typer.echo(path)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _yes_or_no(answer: object) -> Text:
    return Text("yes", "green") if answer else Text("no", "dim")


def _models_table(listed: list[Listed]) -> Table:
    """Names are never cut, since one has to type them. The file of a name is the name with `.gguf`."""
    table = Table(box=None, pad_edge=False)
    for title in ("name", "MB", "licence", "sha256", "cached", "served"):
        table.add_column(title, no_wrap=title == "name", overflow="fold")
    for entry in listed:
        weights = entry.weights
        row = (weights.name, f"{weights.size_bytes / 1e6:,.0f}", weights.licence, weights.sha256[:8])
        table.add_row(*map(Text, row), _yes_or_no(entry.cached), "by default" if entry.is_default else "")
    return table


# ── serving ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@cli.command()
def serve(
    model: Model = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free port.")] = 8789,
    context: Context = 16_384,
    sequences: Annotated[int, typer.Option(min=1, max=64, help="Replies written at the same time.")] = 8,
    kept: Annotated[int, typer.Option(min=0, max=128, help="Idle sequences that are remembered besides.")] = 24,
    queue: Annotated[int, typer.Option(min=0, help="Requests that may wait.")] = 64,
    batch: Annotated[
        int, typer.Option(min=32, max=2048, help="Tokens computed at once, which is how long a cancel waits.")
    ] = 256,
    threads: Threads = None,
    flash_attention: FlashAttention = False,
    matrix_unit: MatrixUnit = True,
) -> None:
    """Serve a model over HTTP until SIGTERM or Ctrl-C."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    if not _is_loopback(host):
        typer.echo(f"The model server has no keys: whoever reaches {host} may use it.", err=True)
    limits = Limits(cells=context, sequences=sequences, kept=kept, queue=queue, batch_tokens=batch)
    settings = _settings(limits, threads, flash_attention, matrix_unit)
    with _in_one_sentence():
        chosen = _chosen(model)
        from model_server.hosting import serve_until_stopped

        _run(serve_until_stopped(chosen, settings, host, port))


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _settings(limits: Limits, threads: int | None, flash_attention: bool, matrix_unit: bool) -> Settings:
    return Settings(
        limits=limits,
        threads=threads or machine.physical_cores(),
        flash_attention=flash_attention,
        matrix_unit=matrix_unit,
    )


def _chosen(model: str | None) -> Chosen:
    loading.require_llama()
    chosen = models.choose(model, models.cache_folder())
    if chosen.note:
        typer.echo(chosen.note, err=True)
    return chosen


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@cli.command()
def bench(
    model: Model = None,
    depths: Annotated[str, typer.Option(help="Tokens that are there already, with commas between.")] = "0,512,2048",
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of the prompt.")] = 330,
    reply: Annotated[int, typer.Option(min=2, help="Tokens of the reply.")] = 64,
    repeat: Annotated[int, typer.Option(min=1)] = 3,
    batch: Annotated[int, typer.Option(min=32, max=2048)] = 256,
    threads: Threads = None,
    flash_attention: FlashAttention = False,
    matrix_unit: MatrixUnit = True,
    as_json: AsJson = False,
    recorded: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Replay these requests against --base-url instead.")
    ] = None,
    base_url: Annotated[str, typer.Option(help="A server that runs, with its /v1.")] = "http://127.0.0.1:8789/v1",
    at_once: Annotated[int, typer.Option(min=1, help="Conversations at a time.")] = 4,
    copies: Annotated[int, typer.Option(min=1, help="How often each conversation is replayed.")] = 1,
) -> None:
    """Measure prefill and decode in tokens per second, one request at a time, or how long a server takes for recorded
    requests."""
    if recorded is not None:
        replaying.run(recorded, base_url, at_once, copies, as_json=as_json)
        return
    wanted = _depths(depths)
    cells = max(batch, max(wanted) + prompt + reply)
    limits = Limits(cells=cells, sequences=1, kept=1, queue=1, batch_tokens=batch)
    settings = _settings(limits, threads, flash_attention, matrix_unit)
    with _in_one_sentence():
        chosen = _chosen(model)
        from model_server.measuring import measured, speed_table

        found = _run(measured(chosen, settings, wanted, prompt, reply, repeat))
    if as_json:
        typer.echo(msgspec.json.encode(found))
    else:
        Console().print(speed_table(found))


def _depths(text: str) -> list[int]:
    try:
        depths = [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter("whole numbers with commas between", param_hint="--depths") from None
    if any(not 0 <= depth <= DEPTH_MAX for depth in depths):
        raise typer.BadParameter(f"from 0 to {DEPTH_MAX}", param_hint="--depths")
    return depths


def _run(serving_: Coroutine[Any, Any, T]) -> T:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(serving_)
    return uvloop.run(serving_)
