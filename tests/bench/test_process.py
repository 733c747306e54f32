"""Servers of our own: their configuration, how they say where they are, and how they are ended."""

from __future__ import annotations

import asyncio
import re
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from gateway.bench import process
from gateway.bench.process import DidNotStart, announced, stopped, write_config
from gateway.config import load

LINE = re.compile(rb"here: (\S+)")


def test_a_configuration_has_an_agent_a_name_and_the_provider_that_is_asked_for(tmp_path: Path) -> None:
    extra = {"temperature": 0, "max_tokens": 5}
    provider = {"base_url": "http://127.0.0.1:1/v1", "retries_max": 0, "extra_body": extra}

    written = write_config(tmp_path, {"one": "plan", "two": None}, provider=provider, price={"free": True}, turns_max=8)

    config = load(str(written), {})
    assert config.provider is not None
    assert (config.provider.base_url, config.provider.retries_max) == ("http://127.0.0.1:1/v1", 0)
    assert config.provider.extra_body == extra
    assert config.prices["*"].free
    assert [(name, agent.model, agent.limits.max_turns) for name, agent in config.agents.items()] == [
        ("one", "plan", 8),
        ("two", None, 8),
    ]
    assert {Path(agent.workspace or "") for agent in config.agents.values()} == {
        tmp_path / "workspaces" / "one",
        tmp_path / "workspaces" / "two",
    }


def test_without_a_provider_the_scripted_one_is_asked_at_the_published_price(tmp_path: Path) -> None:
    config = load(str(write_config(tmp_path, {"one": "plan"})), {})

    assert config.provider is None
    assert (config.prices["*"].input, config.prices["*"].output) == (Decimal(2), Decimal(12))


async def test_a_server_is_there_once_it_says_where_and_ended_behind_that(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import time; print('here: http://x', flush=True); time.sleep(60)")

    async with announced("It", command, LINE, tmp_path / "log") as server:
        assert server.url == "http://x"
        assert server.is_running

    assert not server.is_running


@pytest.mark.parametrize(
    ("program", "words"), [("import sys; sys.exit('no port')", "no port"), ("print('hm')", "it said nothing")]
)
async def test_one_that_says_something_else_did_not_start_and_its_last_words_are_told(
    tmp_path: Path, program: str, words: str
) -> None:
    with pytest.raises(DidNotStart, match=f"It did not start: {words}"):
        async with announced("It", (sys.executable, "-c", program), LINE, tmp_path / "log"):
            pytest.fail("it started")


async def test_one_that_does_not_end_when_asked_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STOP_SECONDS_MAX", 0.1)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", deaf, stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    await server.stdout.readline()

    await stopped(server)

    assert server.returncode == -9
