"""What `gateway bench proxy` makes of its timings, and what it sends and reads."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from gateway.bench import peers
from gateway.bench.load import Timing, WrongAnswer, merged
from gateway.bench.machine import this_machine
from gateway.bench.peers import Peer, Target
from gateway.bench.process import DidNotStart
from gateway.bench.proxy import (
    CONCURRENCY,
    ROUNDS,
    Report,
    body_of,
    measured,
    print_report,
    request_of,
    row_of,
    timed,
)

HERE = os.getpid()


def test_rounds_are_one_timing_with_the_time_of_all() -> None:
    whole = merged([Timing([0.001, 0.003], 0.5), Timing([0.002], 0.25)])

    assert (sorted(whole.each), whole.seconds) == ([0.001, 0.002, 0.003], 0.75)


def test_a_row_has_what_is_added_to_the_bare_provider_and_the_time_of_the_processor_a_call() -> None:
    bare, through = Timing([0.001] * 4, 0.004), Timing([0.003] * 4, 0.016)

    row = row_of("gateway", 16, through, bare, cpu_seconds=0.008)

    assert (row.server, row.concurrency, row.calls) == ("gateway", 16, 4)
    assert (row.median_ms, row.added_median_ms) == pytest.approx((3, 2))
    assert (row.p99_ms, row.added_p99_ms) == pytest.approx((3, 2))
    assert (row.calls_per_second, row.cpu_ms_a_call) == pytest.approx((250, 2))


def test_a_request_goes_to_the_targets_path_with_its_headers_and_a_length() -> None:
    request = request_of(Target("peer", "http://127.0.0.1:4000/v1", HERE, {"Authorization": "Bearer none"}))

    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/chat/completions HTTP/1.1"
    assert {"Host: 127.0.0.1:4000", "Authorization: Bearer none", f"Content-Length: {len(body)}"} <= set(lines)
    assert json.loads(body)["model"] == "plan"


@pytest.mark.parametrize(
    ("head", "sent"),
    [
        (b"http/1.1 200 ok\r\ncontent-length: 5\r\nserver: x\r\n\r\n", b"helloand what follows"),
        (b"http/1.1 200 ok\r\ntransfer-encoding: chunked\r\n\r\n", b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\nand what follows"),
    ],
)
async def test_a_body_is_read_by_its_length_or_in_chunks_and_no_further(head: bytes, sent: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(sent)
    reader.feed_eof()

    assert await body_of(head, reader) == b"hello"
    assert await reader.read() == b"and what follows"


async def test_every_call_is_counted_and_the_first_of_a_connection_is_not(provider: str) -> None:
    timing = await timed(Target("bare", provider, HERE), 7, 2)

    assert len(timing.each) == 7
    assert all(0 < seconds <= timing.seconds for seconds in timing.each)


async def test_targets_are_measured_beside_the_first(provider: str) -> None:
    bare, other = await measured([Target("bare", provider, HERE), Target("same", provider, HERE)], 2, 3 * ROUNDS)

    assert (bare.server, bare.calls, bare.added_median_ms) == ("bare", 3 * ROUNDS, 0)
    assert (other.server, other.added_median_ms) == ("same", other.median_ms - bare.median_ms)


async def test_an_answer_that_is_none_is_told_with_its_words(provider: str) -> None:
    with pytest.raises(WrongAnswer, match=r"(?s)elsewhere answered http/1\.1 404"):
        await timed(Target("elsewhere", provider.removesuffix("/v1"), HERE), 1, 1)


def test_the_table_has_a_line_for_each_server_and_concurrency(capsys: pytest.CaptureFixture[str]) -> None:
    timing = Timing([0.001], 0.001)
    rows = [row_of("bare", concurrency, timing, timing, 0.0) for concurrency in CONCURRENCY]

    print_report(Report(machine=this_machine(), rows=rows))

    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line.split()[:2] for line in lines if line.startswith("bare")] == [
        ["bare", str(concurrency)] for concurrency in CONCURRENCY
    ]


# --- other proxies --------------------------------------------------------------------------------------------------


def test_litellm_is_told_where_the_provider_is_in_a_file(tmp_path: Path) -> None:
    command = peers.litellm_command(4000, "http://127.0.0.1:1/v1", "plan", tmp_path)

    (model,) = json.loads((tmp_path / "litellm.yaml").read_text())["model_list"]
    assert model["litellm_params"] == {"model": "openai/plan", "api_base": "http://127.0.0.1:1/v1", "api_key": "none"}
    assert command[command.index("--config") + 1] == str(tmp_path / "litellm.yaml")


def test_portkey_is_told_where_the_provider_is_in_each_request() -> None:
    assert peers.portkey_headers("http://127.0.0.1:1/v1")["x-portkey-custom-host"] == "http://127.0.0.1:1/v1"


async def test_a_peer_that_ends_at_once_did_not_start(tmp_path: Path) -> None:
    broken = Peer("broken", tmp_path / "none", lambda *_: ["false"], lambda _: {})

    assert not broken.installed()
    with pytest.raises(DidNotStart, match="with 1"):
        async with peers.started(broken, "http://127.0.0.1:1/v1", "plan", tmp_path):
            pytest.fail("it started")
