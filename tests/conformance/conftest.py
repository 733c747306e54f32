"""The clients' processes, and a provider with the scripts that they are tested with."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from scripted.app import create_app
from scripted.app import serving as serving_scripted
from scripted.loading import load_scripts
from scripted.scripts import SCRIPTS
from tests.conformance.abilities import HERE, Client
from tests.conformance.driving import Driver, Driving, installed


@pytest.fixture
async def provider() -> AsyncIterator[str]:
    scripts = {**SCRIPTS, **load_scripts(HERE / "scripts.toml")}
    async with serving_scripted(create_app(scripts=scripts)) as address:
        yield f"{address}/v1"


@pytest.fixture(scope="session")
def world() -> Iterator[tuple[str, list[bytes]]]:
    """A proxy that everything behind the loopback is sent to, and what was sent: a client that calls home is seen."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(200))

        threading.Thread(target=listen, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", heard
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="session")
def driving(tmp_path_factory: pytest.TempPathFactory, world: tuple[str, list[bytes]]) -> Iterator[Driving]:
    """A process for each client, from the first order to it until the end."""
    drivers: dict[str, Driver] = {}
    folder = tmp_path_factory.mktemp("clients")
    env = {"HTTPS_PROXY": world[0], "HTTP_PROXY": world[0], "NO_PROXY": "127.0.0.1", "NODE_USE_ENV_PROXY": "1"}

    def driving(client: Client) -> Driver:
        if not installed(client.driver):
            pytest.skip(f"{client.name} is not installed: `make clients` brings it")
        if client.driver not in drivers:
            drivers[client.driver] = Driver(client.driver, folder / f"{client.driver}.log", env)
        return drivers[client.driver]

    yield driving
    for driver in drivers.values():
        driver.close()
    assert world[1] == [], "a client spoke to somebody else than the gateway"
