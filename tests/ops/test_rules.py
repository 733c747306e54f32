"""The rules of Prometheus: valid, tested by its own tool, and each alert says what happened and what to do next."""

from __future__ import annotations

import re

import pytest
import typer

from gateway import cli
from tests.ops.programs import CONFIGS, run

RULES = sorted((CONFIGS / "rules").glob("*.yml"))
RULE_TESTS = sorted((CONFIGS / "rules" / "tests").glob("*.yml"))
ALERTS = (CONFIGS / "rules" / "alerts.yml").read_text()
NAMES = re.findall(r"- alert: (\w+)", ALERTS)
RECORDED = re.findall(r"- record: (\S+)", (CONFIGS / "rules" / "recording.yml").read_text())
BY_ALERT = dict(zip(NAMES, re.split(r"- alert: \w+", ALERTS)[1:], strict=True))


def test_prometheus_takes_the_configuration_and_its_rules() -> None:
    done = run("promtool", "check", "config", CONFIGS / "prometheus.yml")

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(NAMES)} rules found" in done.stdout


def test_the_rules_pass_their_tests() -> None:
    done = run("promtool", "test", "rules", *RULE_TESTS)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", NAMES)
def test_every_alert_is_shown_to_fire(alert: str) -> None:
    tested = "".join(file.read_text() for file in RULE_TESTS)

    assert f"alertname: {alert}\n" in tested or f'alertname="{alert}"' in tested


@pytest.mark.parametrize("recorded", RECORDED)
def test_what_is_recorded_is_used_or_tested(recorded: str) -> None:
    assert recorded in ALERTS + "".join(file.read_text() for file in RULE_TESTS)


@pytest.mark.parametrize("alert", NAMES)
def test_every_alert_says_what_happened_and_what_to_do_next(alert: str) -> None:
    said = BY_ALERT[alert]

    assert re.search(r"labels: \{ severity: (warning|critical) \}", said)
    assert re.search(r'summary: "[A-Z{].+\."', said)
    following = re.search(r'next: "(.+\.)"', said)
    assert following
    assert "`" in following[1], "no command to run"


COMMANDS = sorted(set(re.findall(r"`(gateway [^`]+)`", ALERTS)))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_an_alert_is_one_that_there_is(command: str) -> None:
    _, name, *words = re.sub(r"\{\{.*?\}\}", "NAME", command).split()
    made = typer.Typer(add_completion=False)
    made.command()(getattr(cli, name))
    params = typer.main.get_command(made).params
    options = {option: param for param in params for option in param.opts if option.startswith("--")}

    given = [word for word in words if word.startswith("--")]
    assert set(given) <= options.keys()
    positions = len(words) - sum(2 - getattr(options[option], "is_flag", False) for option in given)
    assert positions == sum(param.param_type_name == "argument" for param in params)


# --- the operator's page ----------------------------------------------------------------------------------------------

PAGE = (CONFIGS / "OPERATING.md").read_text()


@pytest.mark.parametrize("alert", NAMES)
def test_the_operators_page_has_every_alert(alert: str) -> None:
    assert f"`{alert}`" in PAGE


def test_the_operators_page_has_no_alert_that_there_is_not() -> None:
    assert set(re.findall(r"`((?:Gateway|ModelServer)[A-Z]\w+)`", PAGE)) == set(NAMES)
