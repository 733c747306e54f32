"""`make observe`: a gateway, a provider, a load and Prometheus, all of our own, until Ctrl-C."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import typer
from msgspec import Struct

from gateway.adapters.tools.sample import write_workspace
from gateway.bench import prometheus
from gateway.bench.mixed import LOAD_SCRIPTS, each_once, mixed
from gateway.bench.process import header, quoted
from gateway.bench.process import serving as serving_gateway
from gateway.bench.scenarios import SYSTEM
from gateway.client import Gateway
from gateway.core.errors import GatewayError
from scripted.app import create_app as create_scripted
from scripted.app import serving as serving_scripted

CONFIGS = Path("configs")


class Ports(Struct, frozen=True):
    gateway: int
    provider: int
    prometheus: int


class Addresses(Struct, frozen=True):
    gateway: str
    provider: str
    prometheus: str


def gateway_config(folder: Path, provider: str, port: int) -> Path:
    """The agents that the load asks for: one over files that can also publish, one that asks another."""
    write_workspace(folder / "workspace")
    agent = f"system = {quoted(SYSTEM)}\nworkspace = {quoted(str(folder / 'workspace'))}\n"
    scripted = {
        "name": "scripted",
        "base_url": f"{provider}/v1",
        "retries_max": 2,
        "backoff_seconds": 0.05,
        "retry_after_max_seconds": 2,
    }
    file = folder / "gateway.toml"
    file.write_text(f"""\
{header(folder, port=port, provider=scripted)}
[tools.publish]
function = "gateway.bench.mixed:publish"

[agents.files]
{agent}tools = ["list_files", "read_file", "delete_file", "scan_archive", "publish"]

[agents.research]
about = "Investigate one question and return a short summary."
model = "plan"
{agent}tools = ["list_files", "read_file"]

[agents.lead]
model = "delegate"
subagents = ["research"]

[log]
level = "warning"
""")
    return file


class PortTaken(GatewayError):
    """An address that somebody listens on, and the option that names another."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(
            f"cannot listen on 127.0.0.1:{port}: the address is in use; choose another with --{name}-port "
            f'(make observe OPTIONS="--{name}-port 0" takes a free one).'
        )


def require_free(ports: Ports) -> None:
    """Before anything is started, so that it is said once and of each alike. Raises PortTaken."""
    for name in Ports.__struct_fields__:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", getattr(ports, name)))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise PortTaken(getattr(ports, name), name) from None
                raise


async def start(stack: AsyncExitStack, folder: Path, ports: Ports, scrape_interval: str) -> Addresses:
    """Everything but the load. Raises GatewayError, or OSError for a port that is taken."""
    provider = await stack.enter_async_context(
        serving_scripted(create_scripted(scripts=LOAD_SCRIPTS), port=ports.provider)
    )
    gateway = await stack.enter_async_context(serving_gateway(gateway_config(folder, provider, ports.gateway)))
    targets = {"gateway": gateway.url.removeprefix("http://")}
    intervals = {"scrape_interval": scrape_interval, "evaluation_interval": scrape_interval}
    config = prometheus.configured(CONFIGS, targets, intervals, folder)
    server = await stack.enter_async_context(prometheus.serving(config, ports.prometheus))
    return Addresses(gateway.url, provider, server.url)


def tell(addresses: Addresses) -> None:
    sys.stdout.write(f"""\
gateway     {addresses.gateway}      its metrics: {addresses.gateway}/metrics
provider    {addresses.provider}/v1
Prometheus  {addresses.prometheus}      alerts: {addresses.prometheus}/alerts
dashboards  configs/dashboards, for a Grafana of yours
figures     gateway stats --url {addresses.gateway} --days 1
Ctrl-C ends all of them.
""")
    sys.stdout.flush()


async def observe(ports: Ports, per_second: float, seconds: float | None, scrape_interval: str) -> None:
    stopping = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stopping.set)
    require_free(ports)
    with tempfile.TemporaryDirectory(prefix="gateway-observe-") as folder:
        async with AsyncExitStack() as stack:
            addresses = await start(stack, Path(folder), ports, scrape_interval)
            tell(addresses)
            gateway = await stack.enter_async_context(Gateway(addresses.gateway))
            load = asyncio.create_task(under_load(gateway, per_second))
            stack.push_async_callback(ended, load)
            stop = asyncio.create_task(stopping.wait())
            await asyncio.wait({load, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if load.done():
                await load


async def under_load(gateway: Gateway, per_second: float) -> None:
    await each_once(gateway)
    await mixed(gateway, per_second)


async def ended(load: asyncio.Task[None]) -> None:
    load.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await load


def main(
    seconds: float = typer.Option(None, "--for", help="End by itself after so many seconds."),
    per_second: float = typer.Option(2.0, help="Runs a second."),
    scrape_interval: str = typer.Option("2s", help="How often Prometheus looks."),
    gateway_port: int = typer.Option(8787, help="0 is any free one."),
    provider_port: int = typer.Option(8788, help="0 is any free one."),
    prometheus_port: int = typer.Option(9090, help="0 is any free one."),
) -> None:
    """Serve a gateway under a load of mixed scripts, with Prometheus beside it. From the root of the repository."""
    try:
        asyncio.run(observe(Ports(gateway_port, provider_port, prometheus_port), per_second, seconds, scrape_interval))
    except GatewayError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"A file is not where it should be, or a port cannot be had: {error}.")


if __name__ == "__main__":
    typer.run(main)
