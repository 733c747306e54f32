"""`make observe` as it is run, with a real Prometheus: it scrapes, it evaluates the rules, and every query of every
dashboard returns data."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec import Struct

from gateway.bench import prometheus
from gateway.metrics import STOPS
from tests.ops.programs import CONFIGS, program

DASHBOARDS = sorted((CONFIGS / "dashboards").glob("*.json"))
ROOT = CONFIGS.parent
LOAD_SECONDS_MAX = 60
SCRAPES = 10
NEEDED = {(status.value, reason) for status, reason in STOPS}


class Observed(Struct, frozen=True):
    """Addresses, as they were printed."""

    gateway: str
    prometheus: str

    def query(self, expression: str) -> list[Any]:
        return ask(self.prometheus, "query", query=expression)["result"]


def ask(url: str, path: str, **params: str) -> Any:
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(params)}") as response:
        return json.load(response)["data"]


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    """Once runs have ended in every way, and Prometheus has looked a few times since."""
    program("prometheus")
    ports = ("--gateway-port", "0", "--provider-port", "0", "--prometheus-port", "0")
    command = [sys.executable, "-m", "gateway.bench.observe", "--scrape-interval", "500ms", "--per-second", "4", *ports]
    log = tmp_path_factory.mktemp("observe") / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        printed = [process.stdout.readline() for _ in range(6)]
        addresses = re.findall(r"^(gateway|Prometheus) +(http://\S+) ", "".join(printed), re.MULTILINE)
        try:
            assert len(addresses) == 2, log.read_text()
            found = Observed(*(url for _, url in addresses))
            wait_for_every_way_out(found.gateway)
            wait_for_scrapes(found)
            yield found
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)
    assert process.returncode == 0, log.read_text()


def wait_for_every_way_out(gateway: str) -> None:
    until = time.monotonic() + LOAD_SECONDS_MAX
    missing = NEEDED
    while missing and time.monotonic() < until:
        time.sleep(0.3)
        with urllib.request.urlopen(f"{gateway}/metrics") as response:
            page = response.read().decode()
        stops = re.findall(r'gateway_run_stops_total\{agent="\w+",reason="(\w+)",status="(\w+)"\} ([\d.]+)', page)
        missing = NEEDED - {(status, reason) for reason, status, value in stops if float(value)}
    assert not missing


def wait_for_scrapes(observed: Observed) -> None:
    """Prometheus takes some seconds before it looks for the first time."""
    until = time.monotonic() + LOAD_SECONDS_MAX
    while not observed.query(f'count_over_time(up{{job="gateway"}}[1m]) >= {SCRAPES}'):
        assert time.monotonic() < until
        time.sleep(0.3)


@pytest.mark.parametrize("name", ["gateway", "provider", "prometheus"])
def test_a_port_that_is_taken_is_said_in_one_sentence(name: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = dict.fromkeys(("gateway", "provider", "prometheus"), "0") | {name: str(port)}
        options = [word for each, number in ports.items() for word in (f"--{each}-port", number)]
        command = [sys.executable, "-m", "gateway.bench.observe", *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)

    assert done.returncode == 1
    words = f"the address is in use; choose another with --{name}-port "
    assert done.stderr.startswith(f"cannot listen on 127.0.0.1:{port}: {words}")


def test_prometheus_scrapes_the_gateway(observed: Observed) -> None:
    (up,) = observed.query('up{job="gateway"}')

    assert up["value"][1] == "1"
    assert up["metric"]["instance"] == observed.gateway.removeprefix("http://")


def test_every_rule_is_evaluated_without_an_error(observed: Observed) -> None:
    rules = [rule for group in ask(observed.prometheus, "rules")["groups"] for rule in group["rules"]]

    assert len(rules) > 15
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    assert all("next" in rule["annotations"] for rule in rules if rule["type"] == "alerting")


def test_what_waits_for_a_settlement_is_seen_to(observed: Observed) -> None:
    pending = {alert["labels"]["alertname"] for alert in ask(observed.prometheus, "alerts")["alerts"]}

    assert "GatewayInDoubt" in pending
    assert "GatewayDown" not in pending


# --- dashboards -------------------------------------------------------------------------------------------------------


def queries(dashboard: Path) -> list[Any]:
    panels = json.loads(dashboard.read_text())["panels"]
    return [
        pytest.param(target["expr"], id=f"{panel['title']}: {target['refId']}")
        for panel in panels
        for target in panel["targets"]
    ]


def as_grafana_asks(expression: str) -> str:
    return expression.replace("$__rate_interval", "8s").replace("$agent", ".*")


@pytest.mark.parametrize("expression", queries(CONFIGS / "dashboards" / "gateway.json"))
def test_every_query_about_the_gateway_returns_data(observed: Observed, expression: str) -> None:
    found = observed.query(as_grafana_asks(expression))

    assert found
    assert any(series["value"][1] != "NaN" for series in found), found


def test_the_variable_of_the_dashboard_finds_the_agents(observed: Observed) -> None:
    found = {series["metric"]["agent"] for series in observed.query("gateway_runs_started_total")}

    assert found == {"files", "research", "lead", "conversation"}


EXPOSITION = (Path(__file__).parent / "model_server_metrics.txt").read_text()


async def test_every_query_about_the_model_server_returns_data(tmp_path: Path) -> None:
    """Against a page of its metrics, whose counters grow with each scrape: weights are not needed for that."""
    program("prometheus")
    scrapes = 0

    async def page(request: web.Request) -> web.Response:
        nonlocal scrapes
        scrapes += 1
        return web.Response(text=grown(EXPOSITION, scrapes))

    app = web.Application()
    app.router.add_get("/metrics", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    targets = {"model_server": f"127.0.0.1:{runner.addresses[0][1]}"}
    config = prometheus.configured(CONFIGS, targets, {"scrape_interval": "200ms"}, tmp_path)
    async with prometheus.serving(config) as server:
        while scrapes < 6:  # noqa: ASYNC110  the handler counts them
            await asyncio.sleep(0.1)
        empty = [
            param.values[0]
            for param in queries(CONFIGS / "dashboards" / "model_server.json")
            if all(each["value"][1] == "NaN" for each in await server.query(as_grafana_asks(str(param.values[0]))))
        ]
    await runner.cleanup()

    assert empty == []


def grown(page: str, times: int) -> str:
    """Counters and histograms so many times as high; gauges as they are."""

    def grow(line: re.Match[str]) -> str:
        return f"{line[1]} {float(line[3]) * times}"

    return re.sub(r"^(\w+(_total|_bucket|_sum|_count)(?:\{.*\})?) (\S+)$", grow, page, flags=re.MULTILINE)


def test_the_page_of_the_model_server_has_the_names_that_it_has() -> None:
    metrics = pytest.importorskip("model_server.metrics", reason="the model server is not part of this tree")

    there_are = {family.name for family in metrics.Metrics(1, 1).registry.collect()}
    assert set(re.findall(r"^# TYPE (\w+?)(?:_total)? ", EXPOSITION, re.MULTILINE)) == there_are


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda file: file.name)
def test_a_dashboard_is_whole(dashboard: Path) -> None:
    made = json.loads(dashboard.read_text())

    ids = [panel["id"] for panel in made["panels"]]
    assert len(ids) == len(set(ids))
    assert all(panel["title"] and panel["targets"] for panel in made["panels"])
    assert {panel["datasource"]["uid"] for panel in made["panels"]} == {"${datasource}"}
    corners = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in made["panels"]}
    assert len(corners) == len(ids)
