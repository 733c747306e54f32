"""The benchmark measures what it says: small runs of it, no timing compared."""

from __future__ import annotations

from pathlib import Path

from gateway.bench.load import Timing
from gateway.bench.overhead import measure, row_of
from gateway.bench.pictures import draw_overhead

PNG = b"\x89PNG"


async def test_the_benchmark_runs_both_kinds_and_draws_them(tmp_path: Path) -> None:
    report = await measure(runs=5)
    draw_overhead(report, tmp_path / "overhead.png")

    assert [row.concurrency for row in report.rows] == [1, 8, 32, 128]
    assert all(row.bare_ms > 0 and row.gateway_cpu_ms_a_run > 0 for row in report.rows)
    assert (tmp_path / "overhead.png").read_bytes().startswith(PNG)


async def test_what_a_turn_of_a_runaway_writes_does_not_grow_with_the_run() -> None:
    report = await measure(runs=5)

    first, last = report.growth[1], report.growth[-1]
    assert last.bytes_a_turn <= first.bytes_a_turn + 16


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    rounds = [(Timing([bare], 1.0), Timing([through], 1.0)) for bare, through in ((1.0, 2.0), (1.0, 3.0), (9.0, 9.0))]

    assert row_of(1, rounds, cpu=0.0, memory_bytes=0).latency_ratio == 2.0
