"""The published figures, measured through a gateway of their own; and that a wrong one does not go unseen."""

import asyncio
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from gateway.adapters.tools.sample import FILES
from gateway.bench import figures as command
from gateway.bench.expected import Figures, decode_figures, differences, load_expected
from gateway.bench.figures import all_differences, json_of, measured_in_a_folder
from gateway.bench.measuring import Results
from gateway.bench.process import DidNotStart, serving
from gateway.bench.tables import print_tables

REPOSITORY = Path(__file__).parents[2]


def published() -> dict[str, Any]:
    return json.loads((REPOSITORY / "tests" / "figures.json").read_text())


class Both(Struct, frozen=True):
    """What the command said, and what was measured in this process meanwhile."""

    code: int
    out: str
    err: str
    results: Results


@pytest.fixture(scope="module")
def both() -> Both:
    command = [sys.executable, "-m", "gateway", "figures", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        results = asyncio.run(measured_in_a_folder())
        out, err = process.communicate(timeout=100)
    return Both(process.returncode, out, err, results)


@pytest.fixture
def results(both: Both) -> Results:
    return both.results


def tampered(name: str, **fields: Any) -> dict[str, Figures]:
    expected = load_expected()
    return {**expected, name: replace(expected[name], **fields)}


def test_the_command_measures_every_published_figure_to_the_token(both: Both) -> None:
    figures = json.loads(both.out)

    assert {name: row for name, row in figures.items() if not name.startswith("_")} == published()
    assert (both.code, figures["_differences"], both.err) == (0, [], "")


def test_the_figures_that_ship_are_the_published_ones() -> None:
    assert json.loads((REPOSITORY / "gateway" / "bench" / "figures.json").read_text()) == published()


def test_the_files_of_the_scenarios_are_those_in_configs() -> None:
    folder = REPOSITORY / "configs" / "workspace"

    assert {path.name: path.read_text() for path in folder.iterdir()} == FILES


def test_the_tables_say_what_was_published_and_what_is_derived(
    results: Results, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    print_tables(results, load_expected(), [])

    shown = capsys.readouterr().out
    assert "  published   (20)   (19)   (16,259)    (460)    0.038038  (max_turns_exceeded)\n" in shown
    assert "  published      3      2        815       70    0.002470  completed\n" in shown
    assert "The stopped run is interrupted, and its reason: user pressed Stop" in shown
    assert "✗" not in shown
    assert "✓ All 23 rows are equal" in shown


def test_timings_are_shown_beside_the_figures(results: Results) -> None:
    shown = json.loads(json_of(results, load_expected(), []))["_timings"]

    assert list(shown["plan_ms_by_latency"]) == ["0", "250", "1000"]
    assert 1200 <= shown["stop"]["stopped_ms"] < 1500
    assert 3000 <= shown["without_stop"]["stopped_ms"] < 4000
    assert shown["stop"]["progress_ms"] == pytest.approx([500, 1000], abs=150)


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("plan", {"prompt_tokens": 816}, "plan: prompt_tokens is 815 here and 816 in the figures."),
        ("plan", {"per_turn_prompt_tokens": [204, 269, 343]}, "[204, 269, 342] here"),
        ("once", {"cost_usd": Decimal("0.001397")}, "once: cost_usd is 0.001396 here"),
        ("recover_fatal", {"output": "fine"}, "recover_fatal: output is"),
        ("kill_after_turn_2", {"messages": 5}, "kill_after_turn_2: messages is 6 here"),
    ],
)
def test_a_wrong_figure_is_named(results: Results, name: str, fields: dict[str, Any], words: str) -> None:
    found = all_differences(results, tampered(name, **fields))

    assert len(found) == 1
    assert words in found[0]


def test_any_difference_is_exit_code_1(
    results: Results, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measured() -> Results:
        return results

    monkeypatch.setattr(command, "measured_in_a_folder", measured)
    monkeypatch.setattr(command, "load_expected", lambda: tampered("plan", turns=4))

    assert command.figures(as_json=False) == 1
    assert "✗ plan: turns is 3 here and 4 in the figures." in capsys.readouterr().out


def test_null_and_missing_fields_are_not_compared() -> None:
    row = (
        b'{"row": {"turns": 1, "tool_runs": 0, "cost_usd": 0.1, "status": "completed", "per_turn_prompt_tokens": null}}'
    )
    here = replace(decode_figures(row)["row"], per_turn_prompt_tokens=[7], output="x", cost_usd=Decimal("0.1000001"))

    assert differences({"row": here}, decode_figures(row)) == []


def test_a_row_that_was_not_measured_is_a_difference() -> None:
    assert differences({}, {"plan": load_expected()["plan"]}) == ["plan: not measured."]


async def test_a_gateway_that_does_not_start_says_why(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text("[server]\nporr = 1\n")

    with pytest.raises(DidNotStart, match="porr"):
        async with serving(config):
            pass
