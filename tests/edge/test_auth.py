"""Who may do what: keys, pages of other sites, names that were made to point here."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from gateway.edge.auth import ApiKey, is_loopback
from tests.serving import QUESTION, Gateway, Serve, refused

KEYS = {"keys": (ApiKey(key="full-key"), ApiKey(key="read-key", role="read"))}
CALLS = [
    ("GET", "/v1/runs"),
    ("GET", "/v1/runs/run_0"),
    ("GET", "/v1/runs/run_0/events"),
    ("POST", "/v1/runs"),
    ("POST", "/v1/runs/run_0/cancel"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/no/such/path"),
]


@pytest.mark.parametrize(("method", "path"), CALLS)
async def test_without_a_key_nothing_is_shown_and_nothing_done(serve: Serve, method: str, path: str) -> None:
    async with serve(server=KEYS) as gateway:
        got = await gateway.request(method, path, data=b"{}" if method == "POST" else None)

        refused(got, 401, "unauthorized", words="Authorization: Bearer")
        assert got.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "header", ["Bearer wrong", "Bearer full-ke", "Bearer full-keyy", "Bearer FULL-KEY", "Bearer f\xfcll"]
)
async def test_a_wrong_key_is_refused(serve: Serve, header: str) -> None:
    async with serve(server=KEYS) as gateway:
        refused(await gateway.get("/v1/runs", headers={"Authorization": header}), 401, "invalid_api_key")


@pytest.mark.parametrize("header", ["Bearer", "Bearer ", "Basic full-key", "full-key"])
async def test_a_header_that_is_no_key_is_refused(serve: Serve, header: str) -> None:
    async with serve(server=KEYS) as gateway:
        refused(await gateway.get("/v1/runs", headers={"Authorization": header}), 401, "unauthorized")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_a_full_key_may_do_everything(serve: Serve, scheme: str) -> None:
    async with serve(server=KEYS, headers={"Authorization": f"{scheme} full-key"}) as gateway:
        run = await gateway.run("once")

        assert (await gateway.look(run["id"]))["status"] == "completed"


async def test_a_read_key_may_look_and_not_touch(serve: Serve) -> None:
    async with serve(server=KEYS, headers={"Authorization": "Bearer read-key"}) as gateway:
        assert (await gateway.get("/v1/runs")).status == 200
        assert (await gateway.get("/metrics")).status == 200
        refused(await gateway.post("/v1/runs", {"input": QUESTION}), 403, "forbidden")
        refused(await gateway.post("/v1/runs/run_0/cancel"), 403, "forbidden")
        assert gateway.stored_runs() == 0


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_need_no_key(serve: Serve, path: str) -> None:
    async with serve(server=KEYS) as gateway:
        assert (await gateway.get(path, headers={"Host": "10.0.0.7"})).status == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "http://[bad", "http://f\xfc.example", ""]
)
async def test_pages_of_other_sites_are_refused(gateway: Gateway, origin: str) -> None:
    got = await gateway.post("/v1/runs", {"input": QUESTION}, headers={"Origin": origin})

    refused(got, 403, "cross_origin")
    assert gateway.stored_runs() == 0


async def test_its_own_pages_are_served(gateway: Gateway) -> None:
    assert (await gateway.get("/v1/runs", headers={"Origin": gateway.url})).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8787", "127.0.0.1.evil.example", "[bad", "10.0.0.7"])
async def test_names_that_were_made_to_point_here_are_refused(gateway: Gateway, host: str) -> None:
    refused(await gateway.get("/v1/runs", headers={"Host": host}), 403, "unknown_host")


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]"])
async def test_names_of_this_machine_are_served(gateway: Gateway, name: str) -> None:
    port = urlsplit(gateway.url).port

    assert (await gateway.get("/v1/runs", headers={"Host": f"{name}:{port}"})).status == 200


async def test_with_keys_any_name_is_served(serve: Serve) -> None:
    async with serve(server=KEYS, headers={"Authorization": "Bearer full-key"}) as gateway:
        assert (await gateway.get("/v1/runs", headers={"Host": "agents.example"})).status == 200


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("localhost", True), ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("0.0.0.0", False),
        ("127.evil.example", False), ("", False), ("192.168.0.1", False), ("::", False),
    ],
)  # fmt: skip
def test_only_this_machine_is_loopback(name: str, expected: bool) -> None:
    assert is_loopback(name) is expected
