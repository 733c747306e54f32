"""Shutting down, starting again, a store that fails, and two gateways on one store."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import aiohttp
import pytest

from gateway.adapters.store.sqlite import SqliteStore
from gateway.adapters.tools.tool import Tool
from gateway.core.errors import Unavailable
from gateway.core.run import ToolSpec
from gateway.core.stopping import RECOVERIES_MAX
from gateway.service import feed
from gateway.service import runs as runs_service
from tests.serving import Gateway, Serve, eventually, refused

SSE = {"Accept": "text/event-stream"}


def require_published(run: dict[str, Any]) -> None:
    assert (run["status"], run["turns"], run["tool_runs"]) == ("completed", 3, 2)
    assert (run["cost_usd"], run["unconfirmed_cost_usd"]) == (Decimal("0.00247"), 0)


async def test_a_reply_in_flight_is_drained_and_the_next_start_goes_on(serve: Serve) -> None:
    async with serve() as gateway:
        run = await gateway.run("plan@latency=200", wait=0)
        await gateway.until(run["id"], "turn_start")

    store = await SqliteStore.open(gateway.config.store.path)
    async with store:
        assert await store.running() == [run["id"]]
        kinds = [record.body.split(b'"')[3].decode() for record in await store.read(run["id"])]
    assert kinds == ["run_started", "turn_start", "turn"]  # the reply that was paid for is recorded

    async with serve() as gateway:
        require_published(await finished(gateway, run["id"]))
        resumed = [event for event in await gateway.trace(run["id"]) if event["type"] == "run_resumed"]
        assert [event["cause"] for event in resumed] == ["handover"]


async def finished(gateway: Gateway, run_id: str) -> dict[str, Any]:
    """The run when it has stopped; one that is still to be taken up is watched."""
    await gateway.trace(run_id)
    return await gateway.look(run_id)


async def test_a_reply_that_takes_longer_than_the_grace_is_left_as_unconfirmed(serve: Serve) -> None:
    async with serve(server={"shutdown_grace_seconds": 0.05}) as gateway:
        run = await gateway.run("plan@latency=600", wait=0)
        estimate = (await gateway.until(run["id"], "turn_start"))["estimateUsd"]

    async with serve() as gateway:
        again = await finished(gateway, run["id"])

    assert again["status"] == "completed"
    assert again["cost_usd"] == Decimal("0.00247")
    assert float(again["unconfirmed_cost_usd"]) == estimate


async def test_a_step_that_outlasts_many_restarts_is_not_taken_for_poison(serve: Serve) -> None:
    async with serve(server={"shutdown_grace_seconds": 0.05}) as gateway:
        run = await gateway.run("once@latency=1000", wait=0)
        await gateway.until(run["id"], "turn_start")
    for restart in range(1, RECOVERIES_MAX + 2):
        async with serve(server={"shutdown_grace_seconds": 0.05}) as gateway:
            await gateway.until(run["id"], "turn_start", times=restart + 1)

    async with serve() as gateway:
        again = await finished(gateway, run["id"])

    assert again["status"] == "completed"


async def test_a_tool_under_way_is_drained_too(serve: Serve) -> None:
    executions: list[str] = []

    async def writes(args: dict[str, Any], ctx: Any) -> str:
        await asyncio.sleep(0.2)
        executions.append(ctx.idempotency_key)
        return "written"

    act = Tool(ToolSpec(name="act", description="Acts.", parameters={"type": "object"}), writes)
    async with serve(tools={"act": act}) as gateway:
        run = await gateway.run("acts", wait=0)
        await gateway.until(run["id"], "tool_start")
    async with serve(tools={"act": act}) as gateway:
        again = await finished(gateway, run["id"])

    assert again["status"] == "completed"
    assert executions == [f"{run['id']}:1:0"]


async def test_clients_that_wait_or_watch_do_not_hold_up_a_shutdown(serve: Serve) -> None:
    async with aiohttp.ClientSession() as session:
        async with serve() as gateway:
            client = Gateway(gateway.url, session, gateway.config)
            waiting = asyncio.create_task(client.start("plan@latency=200"))
            watching = asyncio.create_task(client.start("plan@latency=200", wait=0, headers=SSE))
            await eventually(lambda: under_way(client, 2), "both run")
            began = asyncio.get_running_loop().time()

        assert asyncio.get_running_loop().time() - began < 5
        answer = await waiting
        assert (answer.status, answer.json["status"], answer.json["turns"]) == (202, "running", 1)
        with pytest.raises(aiohttp.ClientPayloadError):  # it ends in the middle, so that the client comes back
            await watching


async def under_way(gateway: Gateway, count: int) -> bool:
    return len((await gateway.get("/v1/runs", status="running")).json["runs"]) == count


async def test_a_client_that_goes_with_the_process_cancels_nothing(serve: Serve) -> None:
    async with aiohttp.ClientSession() as session:
        async with serve() as gateway:
            client = Gateway(gateway.url, session, gateway.config)
            watching = asyncio.create_task(
                client.start("plan@latency=200", wait=0, headers=SSE, cancel_on_disconnect=True)
            )
            await eventually(lambda: under_way(client, 1), "it runs")
        with pytest.raises(aiohttp.ClientPayloadError):
            await watching
    async with serve() as gateway:
        [entry] = (await gateway.get("/v1/runs")).json["runs"]
        assert (await finished(gateway, entry["id"]))["status"] == "completed"


async def test_a_run_that_waits_for_a_person_waits_through_a_restart(serve: Serve) -> None:
    async with serve() as gateway:
        run = await gateway.run("destructive")
    async with serve() as gateway:
        assert await gateway.look(run["id"]) == run
        got = await gateway.command(run["id"], "approve", {"call_id": "c2"})

    assert got.json["output"] == "Deleted access.log to free space."


async def test_all_runs_that_ran_are_taken_up_however_few_are_driven_at_once(serve: Serve) -> None:
    async with serve() as gateway:
        runs = [await gateway.run("plan@latency=100", wait=0) for _ in range(6)]
    async with serve(server={"runs_active_max": 2}) as gateway:
        for run in runs:
            require_published(await finished(gateway, run["id"]))


async def test_a_run_that_is_still_to_be_taken_up_can_be_cancelled(serve: Serve) -> None:
    async with serve() as gateway:
        first = await gateway.run("plan@latency=400", wait=0)
        second = await gateway.run("plan@latency=400", wait=0)
    async with serve(server={"runs_active_max": 1}) as gateway:
        await gateway.until(first["id"], "run_resumed")

        got = await gateway.command(second["id"], "cancel", {"reason": "never mind"})

        assert got.status == 200
        assert got.json["interruption"] == {"type": "cancelled", "reason": "never mind"}
        resumed = await gateway.get(f"/v1/runs/{second['id']}/events")
        assert [event["type"] for event in resumed.lines][-2:] == ["run_resumed", "run_stopped"]


async def test_while_shutting_down_nothing_new_is_begun(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[runs_service.Runs] = []
    original = runs_service.Runs.__init__

    def remember(self: runs_service.Runs, *args: Any, **options: Any) -> None:
        made.append(self)
        original(self, *args, **options)

    monkeypatch.setattr(runs_service.Runs, "__init__", remember)
    async with serve() as gateway:
        capped = await gateway.run("runaway", limits={"max_turns": 1})
        await made[0].close(1)

        refused(await gateway.start("plan", wait=0), 503, "unavailable", words="shutting down")
        refused(await gateway.command(capped["id"], "resume", {"limits": {"max_turns": 2}}), 503, "unavailable")
        assert (await gateway.look(capped["id"]))["status"] == "max_turns_exceeded"
        assert gateway.stored_runs() == 1


async def test_two_gateways_cannot_share_a_store(serve: Serve) -> None:
    async with serve() as gateway:
        with pytest.raises(Unavailable) as refusal:
            async with serve():
                pass

        assert str(refusal.value).startswith(f"The store {gateway.config.store.path} is in use: another gateway")
        assert str(refusal.value).count(".") == str(gateway.config.store.path).count(".") + 1
        assert (await gateway.run("once"))["status"] == "completed"
    async with serve() as gateway:
        assert (await gateway.run("once"))["status"] == "completed"


# --- a store that fails ---------------------------------------------------------------------------------------------


class Outage:
    """Makes the store refuse to write, or to read, as long as it lasts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failing: set[str] = set()
        for name in ("append", "read", "page", "keep", "claimed"):
            monkeypatch.setattr(SqliteStore, name, self._or_fail(name, getattr(SqliteStore, name)))

    def _or_fail(self, name: str, method: Any) -> Any:
        async def called(*args: Any, **options: Any) -> Any:
            if name in self.failing:
                raise Unavailable("the store cannot be used.")
            return await method(*args, **options)

        return called


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    return Outage(monkeypatch)


async def test_without_its_store_the_gateway_starts_nothing_and_says_so(gateway: Gateway, outage: Outage) -> None:
    outage.failing = {"append"}

    refused(await gateway.start("plan", wait=0), 503, "unavailable", words="the store cannot be used.")
    assert gateway.stored_runs() == 0
    outage.failing = set()
    assert (await gateway.run("plan"))["status"] == "completed"


@pytest.mark.parametrize(("failing", "path"), [("read", "/v1/runs/run_0"), ("page", "/v1/runs")])
async def test_without_its_store_the_gateway_shows_nothing_and_says_so(
    gateway: Gateway, outage: Outage, failing: str, path: str
) -> None:
    outage.failing = {failing}

    refused(await gateway.get(path), 503, "unavailable")


async def test_a_run_under_way_waits_for_the_store_to_come_back(gateway: Gateway, outage: Outage) -> None:
    run = await gateway.run("plan@latency=50", wait=0)
    outage.failing = {"append"}
    await asyncio.sleep(0.2)
    assert (await gateway.look(run["id"]))["status"] == "running"

    outage.failing = set()

    require_published(await gateway.look(run["id"], wait=20))


async def test_stop_during_an_outage_is_carried_out_when_the_store_is_back(
    gateway: Gateway, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_service, "CANCEL_SECONDS_MAX", 0.1)
    run = await gateway.run("plan@latency=5000", wait=0)
    await gateway.until(run["id"], "turn_start")
    outage.failing = {"append"}

    got = await gateway.command(run["id"], "cancel", {"reason": "stop"})

    refused(got, 503, "unavailable", words="as soon as the store")
    outage.failing = set()
    assert (await gateway.look(run["id"], wait=20))["interruption"] == {"type": "cancelled", "reason": "stop"}


async def test_a_command_that_cannot_be_recorded_changes_nothing(gateway: Gateway, outage: Outage) -> None:
    run = await gateway.run("destructive")
    outage.failing = {"append"}

    refused(await gateway.command(run["id"], "approve", {"call_id": "c2"}), 503)
    outage.failing = set()

    assert await gateway.look(run["id"]) == run
    assert (await gateway.command(run["id"], "approve", {"call_id": "c2"})).json["status"] == "completed"


@pytest.mark.parametrize("headers", [SSE, {}], ids=["events", "lines"])
async def test_a_stream_that_cannot_be_read_on_ends_in_the_middle(
    gateway: Gateway, outage: Outage, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    monkeypatch.setattr(feed, "PAGE_EVENTS", 2)
    run = await gateway.run("plan")
    path = f"{gateway.url}/v1/runs/{run['id']}/events"
    reads = 0
    method = SqliteStore.read

    async def fails_at_the_third(self: SqliteStore, *args: Any) -> Any:
        nonlocal reads
        reads += 1
        if reads == 3:
            raise Unavailable("the store cannot be used.")
        return await method(self, *args)

    monkeypatch.setattr(SqliteStore, "read", fails_at_the_third)
    async with gateway.session.get(path, headers=headers) as response:
        assert response.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_an_answer_that_could_not_be_kept_is_made_up_for_by_joining_the_run(
    gateway: Gateway, outage: Outage
) -> None:
    key = {"Idempotency-Key": "order-1"}
    outage.failing = {"keep"}
    refused(await gateway.start("plan", headers=key), 503)
    outage.failing = set()

    again = await gateway.start("plan", headers=key)

    assert (again.status, again.json["status"]) == (201, "completed")
    assert gateway.stored_runs() == 1
