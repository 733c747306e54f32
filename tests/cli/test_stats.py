"""`gateway stats`."""

import json
import re

from tests.cli.conftest import INPUT, Run, fetched


def test_stats_show_cost_turns_and_ways_out(cli: Run) -> None:
    cli("run", INPUT, "--agent", "plan")

    shown = cli("stats", "--days", "1").out

    assert re.match(r"\d+ runs? since \d{4}-\d\d-\d\d \(UTC\) for \$\d", shown)
    assert re.search(r"^completed +\d+$", shown, re.MULTILINE)
    assert re.search(r"^plan +\d+ +\d+ +\$0\.\d{6}$", shown, re.MULTILINE)
    assert "most expensive" in shown


def test_stats_as_json_are_the_answer_of_the_api(cli: Run, url: str) -> None:
    shown = cli("stats", "--days", "2", "--json").out

    assert shown.encode() == fetched(f"{url}/v1/stats?days=2") + b"\n"
    assert len(json.loads(shown)["by_day"]) == 2


def test_a_number_of_days_that_cannot_be_is_refused(cli: Run) -> None:
    assert cli("stats", "--days", "0").code == 2
