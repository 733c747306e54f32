"""Configuration: without a file, from files and the environment, and what is said of mistakes."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from gateway.config import Config, ConfigError, load

AGENT = '[agents.files]\nmodel = "m"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateway.toml"


def written(file: Path, text: str, env: dict[str, str] | None = None) -> Config:
    file.write_text(text)
    return load(str(file), env or {})


# --- what it is -----------------------------------------------------------------------------------------------------


def test_without_a_file_there_are_agents_over_the_sample_files_and_a_scripted_provider() -> None:
    config = load(None, {})

    assert config.provider is None
    assert list(config.agents) == ["files", "research", "lead"]
    assert config.agents["files"].model == "plan"
    assert config.agents["files"].workspace == ".gateway/workspace"
    assert config.store.path == ".gateway/runs.db"
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8787)
    assert config.prices["*"].input == Decimal(2)
    assert config.prices["*"].output == Decimal(12)


def test_the_file_can_be_named_in_the_environment(file: Path) -> None:
    file.write_text("[server]\nport = 9000\n")

    assert load(None, {"GATEWAY_CONFIG": str(file)}).server.port == 9000


def test_the_configuration_that_is_shipped_is_one() -> None:
    config = load(str(Path(__file__).parent.parent / "configs" / "gateway.toml"), {})

    assert config.agents["files"].tools == ("list_files", "read_file", "delete_file", "scan_archive")


def test_everything_can_be_said_in_a_file(file: Path) -> None:
    config = written(
        file,
        """
        model = "big"
        [server]
        runs_active_max = 4
        [[server.keys]]
        key = "k"
        role = "read"
        [store]
        durability = "machine"
        [provider]
        base_url = "https://api.example/v1"
        retries_max = 7
        [agents.one]
        system = "Be brief."
        [agents.one.limits]
        max_turns = 3
        max_budget_usd = 0.5
        [agents.one.policies]
        dedupe = "all"
        [prices.big]
        input = 1.25
        output = 10
        as_of = 2026-01-31
        """,
    )

    assert config.provider is not None
    assert config.provider.retries_max == 7
    assert config.server.keys[0].role == "read"
    assert config.agents["one"].limits.max_budget_usd == Decimal("0.5")
    assert config.agents["one"].policies.dedupe == "all"
    assert config.prices == {"big": config.prices["big"]}
    assert config.prices["big"].input == Decimal("1.25")


def test_paths_are_relative_to_the_file(file: Path) -> None:
    config = written(file, '[store]\npath = "data/runs.db"\n[agents.a]\nworkspace = "../files"\n')

    assert config.store.path == str(file.parent / "data/runs.db")
    assert config.agents["a"].workspace == str(file.parent / "../files")


def test_absolute_paths_stay_what_they_are(file: Path) -> None:
    assert written(file, '[store]\npath = "/var/lib/runs.db"\n').store.path == "/var/lib/runs.db"


# --- includes -------------------------------------------------------------------------------------------------------


def test_what_a_file_says_goes_before_what_it_includes(file: Path) -> None:
    (file.parent / "more").mkdir()
    (file.parent / "more" / "one.toml").write_text('[server]\nport = 1\nhost = "localhost"\n')
    (file.parent / "two.toml").write_text("[server]\nport = 2\nruns_active_max = 5\n")

    config = written(file, 'include = ["more/one.toml", "two.toml"]\n[server]\nrequest_bytes_max = 9\n')

    server = config.server
    assert (server.port, server.host, server.runs_active_max, server.request_bytes_max) == (2, "localhost", 5, 9)


def test_an_include_can_include_another(file: Path) -> None:
    (file.parent / "a.toml").write_text('include = ["b.toml"]\n')
    (file.parent / "b.toml").write_text("[server]\nport = 3\n")

    assert written(file, 'include = ["a.toml"]\n').server.port == 3


# --- the environment ------------------------------------------------------------------------------------------------


def test_one_line_moves_everything_to_another_provider() -> None:
    config = load(None, {"LLM_BASE_URL": "http://localhost:8789/v1", "LLM_API_KEY": "k", "LLM_MODEL": "qwen"})

    assert config.provider is not None
    assert (config.provider.base_url, config.provider.api_key) == ("http://localhost:8789/v1", "k")
    assert config.model == "qwen"
    assert config.agents["files"].model == "qwen"


def test_the_environment_goes_before_the_file(file: Path) -> None:
    text = '[provider]\nbase_url = "http://file/v1"\nname = "x"\n[agents.a]\nmodel = "file"\n[agents.b]\n'

    config = written(file, text, {"LLM_BASE_URL": "http://env/v1", "LLM_MODEL": "env"})

    assert config.provider is not None
    assert (config.provider.base_url, config.provider.name) == ("http://env/v1", "x")
    assert {agent.model for agent in config.agents.values()} == {"env"}


def test_a_model_alone_picks_a_script() -> None:
    config = load(None, {"LLM_MODEL": "runaway"})

    assert config.provider is None
    assert config.agents["files"].model == "runaway"
    assert config.prices["*"].output == Decimal(12)


def test_a_key_alone_changes_nothing() -> None:
    assert load(None, {"LLM_API_KEY": "k"}).provider is None


def test_empty_variables_say_nothing() -> None:
    config = load(None, {"LLM_BASE_URL": "", "LLM_MODEL": "", "LLM_API_KEY": "", "GATEWAY_CONFIG": ""})

    assert config == load(None, {})


def test_secrets_can_stand_in_the_environment(file: Path) -> None:
    text = '[[server.keys]]\nkey = "env:GATEWAY_KEY"\n[provider]\nbase_url = "http://x/v1"\napi_key = "env:KEY"\n'

    config = written(file, text, {"GATEWAY_KEY": "hush-1", "KEY": "hush-2"})

    assert config.provider is not None
    assert (config.server.keys[0].key, config.provider.api_key) == ("hush-1", "hush-2")


def test_secrets_are_not_shown(file: Path) -> None:
    text = """
    [[server.keys]]
    key = "hush-1"
    [provider]
    base_url = "http://x/v1"
    api_key = "hush-2"
    [provider.headers]
    X-Key = "hush-3"
    """

    config = written(file, text)

    assert "hush" not in repr(config)
    assert "hush" not in f"{config}"
    assert "http://x/v1" in repr(config)


# --- mistakes -------------------------------------------------------------------------------------------------------

MISTAKES: list[tuple[str, str]] = [
    ("[server]\nprot = 1\n", "unknown field `prot` - at `server`"),
    ("[servre]\n", "unknown field `servre`"),
    ('[server]\nport = "8787"\n', "`server.port`"),
    ("[server]\nport = 70000\n", "`server.port`"),
    ("[server]\nruns_active_max = 0\n", "`server.runs_active_max`"),
    ("[server]\nshutdown_grace_seconds = -1\n", "`server.shutdown_grace_seconds`"),
    ('[[server.keys]]\nkey = ""\n', "`server.keys[0].key`"),
    ('[[server.keys]]\nkey = "k"\nrole = "admin"\n', "`server.keys[0].role`"),
    ('[store]\ndurability = "some"\n', "`store.durability`"),
    ('[log]\nlevel = "loud"\n', "`log.level`"),
    ("[provider]\n", "`base_url` - at `provider`"),
    ('[provider]\nbase_url = "localhost:1"\n', "base_url must begin with http:// or https://"),
    ('[provider]\nbase_url = "http://x/v1"\nretries_max = -1\n', "`provider.retries_max`"),
    ('[provider]\nbase_url = "http://x/v1"\nconnect_timeout_seconds = 0\n', "`provider.connect_timeout_seconds`"),
    ('[provider]\nbase_url = "http://x/v1"\napi_key = "a\\nb"\n', "api_key has characters"),
    ("provider = 3\n", "provider must be a table"),
    ("prices = 3\n", "prices must be a table"),
    ("agents = 3\n", "agents must be a table"),
    ("[agents]\nfiles = 3\n", "agents.files must be a table"),
    ("[agents.a.limits]\nmax_turns = 0\n", "agents[...].limits.max_turns"),
    ("[agents.a.limits]\nmax_budget_usd = -1.0\n", "agents.a.limits: max_budget_usd is -1"),
    ("[agents.a.limits]\nmax_budget_usd = nan\n", "agents.a.limits: max_budget_usd is NaN"),
    ('[agents.a.policies]\ndedupe = "on"\n', "policies.dedupe"),
    ('[agents.a]\nsubagents = ["b"]\n', "agents.a.subagents: there is no agent b"),
    ("[prices.m]\ninput = -1.0\n", "prices.m.input is -1"),
    ("[prices.m]\noutput = nan\n", "prices.m.output is NaN"),
    ("[prices.m]\ninput = inf\n", "prices.m.input is Infinity"),
    ("[prices.m]\n", "prices.m costs nothing: say free = true"),
    ('[provider]\nbase_url = "http://x/v1"\napi_key = "env:NO_SUCH"\n', "provider.api_key is env:NO_SUCH, and NO_SUCH"),
    ('[[server.keys]]\nkey = "env:NO_SUCH"\n', "server.keys[0].key is env:NO_SUCH"),
    ("include = 3\n", "include must be a list of file names"),
    ('include = "more.toml"\n', "include must be a list of file names"),
    ("port = \n", "is not valid TOML"),
]


@pytest.mark.parametrize(("text", "words"), MISTAKES, ids=[words for _, words in MISTAKES])
def test_a_mistake_is_said_in_one_sentence_with_file_and_field(file: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as mistake:
        written(file, text, {"LLM_MODEL": "m"})

    said = str(mistake.value)
    assert said.startswith(str(file))
    assert words in said
    assert said.endswith(".")
    assert "\n" not in said


def test_a_file_that_is_not_there_is_named(file: Path) -> None:
    with pytest.raises(ConfigError) as mistake:
        load(str(file), {})

    assert str(mistake.value) == f"{file} cannot be read: No such file or directory."


def test_a_file_that_is_no_text_is_named(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")

    with pytest.raises(ConfigError, match="is not valid TOML"):
        load(str(file), {})


def test_an_included_file_that_is_not_there_is_named(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml cannot be read"):
        written(file, 'include = ["nowhere.toml"]\n')


def test_files_that_include_each_other_are_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="nested more than 5 deep"):
        written(file, 'include = ["gateway.toml"]\n')


def test_a_file_that_sets_a_budget_keeps_the_turn_cap(file: Path) -> None:
    config = written(file, "[agents.a.limits]\nmax_budget_usd = 0.1\n")

    assert config.agents["a"].limits.max_turns == 20


def test_a_model_on_this_machine_costs_nothing_unless_a_price_says_otherwise() -> None:
    here, elsewhere = ({"LLM_BASE_URL": f"http://{host}/v1"} for host in ("127.0.0.1:8789", "api.example.com"))

    assert load(None, here).prices["*"].free
    assert load(None, elsewhere).prices == {}


def test_a_cap_is_taken_away_with_none(file: Path) -> None:
    file.write_text('[agents.a.limits]\nmax_turns = "none"\nmax_budget_usd = 0.5\n')

    assert load(str(file), {}).agents["a"].limits.max_turns is None
