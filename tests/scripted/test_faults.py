import pytest

from scripted.faults import NO_FAULT, BadBehaviour, Behaviour, Fault, Kind, attempt_of, parse, split_model

LIMITED = Fault(kind=Kind.RATE_LIMITED)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", Behaviour()),
        ("latency=250", Behaviour(250)),
        ("latency=2.5", Behaviour(2.5)),
        ("fault=429", Behaviour(None, LIMITED)),
        ("latency=50,fault=500:2", Behaviour(50, Fault(kind=Kind.SERVER_ERROR, attempts=2))),
        ("latency=50@fault=500@attempt=2", Behaviour(50, Fault(kind=Kind.SERVER_ERROR, attempts=2))),
        ("fault=429, retry_after=0.05", Behaviour(None, Fault(kind=Kind.RATE_LIMITED, retry_after_seconds=0.05))),
        ("fault=stall,stall_ms=20,turn=1", Behaviour(None, Fault(kind=Kind.STALL, turn=1, stall_ms=20))),
        ("fault=none", Behaviour(None, NO_FAULT)),
    ],
)
def test_a_text_means_a_behaviour(text: str, meaning: Behaviour) -> None:
    assert parse(text) == meaning


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("speed=3", "Unknown setting 'speed'. Known are: latency, fault, turn, attempt, retry_after, stall_ms."),
        ("fault=explode", "Unknown fault 'explode'. Known are: none, 400, 401, 403, 429, 500, 503, drop_before"),
        ("fault", "Unknown fault ''"),
        ("latency=soon", "latency"),
        ("latency=-1", ">= 0"),
        ("latency=nan", ">= 0"),
        ("latency=600001", "<= 600000"),
        ("fault=429:0", ">= 1"),
        ("fault=429:", "attempt"),
        ("fault=429:2,attempt=3", "attempt is given twice"),
        ("fault=429,fault=500", "fault is given twice"),
        ("turn=1", "turn says something about a fault, but no fault is named"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_what_can(text: str, words: str) -> None:
    with pytest.raises(BadBehaviour) as refused:
        parse(text)

    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("model", "script", "asked"),
    [
        ("plan", "plan", Behaviour()),
        ("plan@latency=5@fault=429", "plan", Behaviour(5, LIMITED)),
        ("plan@latency=5,fault=429", "plan", Behaviour(5, LIMITED)),
    ],
)
def test_a_model_name_is_a_script_and_what_is_asked_of_it(model: str, script: str, asked: Behaviour) -> None:
    assert split_model(model) == (script, asked)


def test_what_one_source_leaves_open_the_next_one_says() -> None:
    assert Behaviour(5).over(Behaviour(7, LIMITED)) == Behaviour(5, LIMITED)
    assert Behaviour(0, NO_FAULT).over(Behaviour(7, LIMITED)) == Behaviour(0, NO_FAULT)


def test_a_fault_replaces_another_one_with_all_its_settings() -> None:
    assert parse("fault=500").over(parse("fault=429,turn=1")) == parse("fault=500")


@pytest.mark.parametrize(
    ("text", "turn", "attempt", "kind"),
    [
        ("fault=500", 3, 9, Kind.SERVER_ERROR),
        ("fault=500:2", 0, 1, Kind.SERVER_ERROR),
        ("fault=500:2", 0, 2, Kind.NONE),
        ("fault=500,turn=1", 1, 0, Kind.SERVER_ERROR),
        ("fault=500,turn=1", 0, 0, Kind.NONE),
        ("fault=500:1,turn=1", 1, 1, Kind.NONE),
        ("", 0, 0, Kind.NONE),
    ],
)
def test_a_fault_applies_in_its_turn_and_its_attempts(text: str, turn: int, attempt: int, kind: Kind) -> None:
    assert parse(text).fault_now(turn, attempt).kind is kind


@pytest.mark.parametrize(
    ("headers", "attempt"),
    [({}, 0), ({"X-Attempt": "2"}, 2), ({"X-Stainless-Retry-Count": "1"}, 1)],
)
def test_the_client_says_which_attempt_it_is(headers: dict[str, str], attempt: int) -> None:
    assert attempt_of(headers) == attempt


@pytest.mark.parametrize("value", ["", "one", "-1", "1.5", "٣", "9" * 5000])
def test_an_attempt_that_is_not_a_number_is_refused(value: str) -> None:
    with pytest.raises(BadBehaviour, match="X-Attempt"):
        attempt_of({"X-Attempt": value})
