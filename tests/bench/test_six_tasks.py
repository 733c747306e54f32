"""The six tasks: what counts as right, how a trace becomes a row, and whole passes, without weights and with them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from gateway.bench.local_model import model_server
from gateway.bench.pictures import draw_six_tasks
from gateway.bench.process import DidNotStart
from gateway.bench.requests_made import Made
from gateway.bench.six_tables import print_report
from gateway.bench.six_tasks import NoModel, Plan, Report, label_of, measure
from gateway.bench.tasks import PUBLISHED_TOTALS, STAND_IN_WORDS, TASKS, Evidence, TaskRun, kind_of, task_run, totals
from gateway.core import events as e
from gateway.core.messages import Assistant, Function, ToolCall
from gateway.core.run import Status
from model_server import recorded
from model_server.registry import SMALL, STAND_IN
from tests.model_server.real import chosen, fetched, hosted

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
PNG = b"\x89PNG"


# --- what is right --------------------------------------------------------------------------------------------------


def is_right(number: int, answer: str, read: Iterable[str] = ()) -> bool:
    return TASKS[number - 1].is_right(Evidence(answer=answer, read=frozenset(read)))


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        (1, "The file that mentions a timeout is `errors.log`."),
        (1, "ERRORS.LOG does."),
        (2, "There are three files in the directory."),
        (2, "The directory has 3 files."),
        (3, 'It says: "Remember to rotate your logs."'),
        (5, "The largest file is errors.log."),
        (6, "Yes, notes.txt reminds you to rotate your logs."),
    ],
)
def test_a_right_answer_is_right(number: int, answer: str) -> None:
    assert is_right(number, answer)


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        (1, "The file timeout.txt does not exist."),
        (1, "access.log, errors.log and notes.txt mention a timeout."),
        (1, ""),
        (2, "There are 30 files."),
        (2, "There are many files."),
        (3, "It says something about logs."),
        (4, "I have read access.log, errors.log and notes.txt."),
        (5, "The largest file is access.log."),
        (6, "No, there is none; notes.txt is about something else."),
        (6, "Yes, there is."),
    ],
)
def test_a_wrong_answer_is_wrong(number: int, answer: str) -> None:
    assert not is_right(number, answer)


def test_the_fourth_task_is_right_when_all_three_files_were_read_whatever_is_said() -> None:
    assert is_right(4, "Done.", ["access.log", "errors.log", "notes.txt"])
    assert not is_right(4, "Done.", ["access.log", "notes.txt"])


def test_the_published_answers_are_judged_by_the_same_checks() -> None:
    for number, task in enumerate(TASKS, 1):
        if task.published.answer:
            assert is_right(number, task.published.answer) is task.published.right


def test_the_published_totals_are_those_of_the_published_rows() -> None:
    assert (PUBLISHED_TOTALS.turns, PUBLISHED_TOTALS.tools) == (12, 7)
    assert (PUBLISHED_TOTALS.wall_ms, PUBLISHED_TOTALS.mean_turn_ms) == (82_896, 6_908)


# --- from a trace to a row ------------------------------------------------------------------------------------------


def turn(number: int, text: str | None = None, *calls: tuple[str, str], timings: bool = True) -> e.Turn:
    made = tuple(ToolCall(f"c{index}", "function", Function(name, args)) for index, (name, args) in enumerate(calls))
    return e.Turn(
        turn=number,
        prompt_tokens=300,
        completion_tokens=20,
        total_tokens=320,
        cost_usd=Decimal(0),
        finish="tool_calls" if calls else "stop",
        turn_cost_usd=Decimal(0),
        cached_tokens=250,
        message=Assistant(text, made),
        ms=1000,
        provider_ms={"prompt_ms": 600, "predicted_ms": 300, "queue_ms": 20} if timings else None,
        time=NOON,
    )


def read_file(call: str, path: str, *, ok: bool = True, source: str = "tool") -> list[e.Event]:
    start = e.ToolStart(tool_name="read_file", args=f'{{"path":"{path}"}}', provider_id="c0", call=call, time=NOON)
    result = e.ToolResult(
        tool_name="read_file", ms=4, ok=ok, provider_id="c0", call=call, content="…", source=source, time=NOON
    )
    return [start, result] if source == "tool" else [result]


def stopped(status: Status = Status.COMPLETED, reason: str | None = None) -> e.RunStopped:
    return e.RunStopped(status=status, reason=reason, turns=2, cost_usd=Decimal(0), time=NOON)


def row(*events: e.Event, number: int = 1, wall_ms: float = 2100) -> TaskRun:
    return task_run(number, events, wall_ms)


READ = ("read_file", '{"path":"errors.log"}')


def test_the_wall_is_split_into_what_the_model_the_tools_and_the_harness_took() -> None:
    split = row(turn(1, None, READ), *read_file("1:0", "errors.log"), turn(2, "errors.log"), stopped()).split

    assert (split.prefill_ms, split.decode_ms, split.queue_ms, split.unsplit_ms) == (1200, 600, 40, 0)
    assert (split.tools_ms, split.harness_ms) == (4, 2100 - 1840 - 4)


def test_a_provider_that_says_nothing_of_its_times_is_not_split() -> None:
    split = row(turn(1, "errors.log", timings=False), stopped()).split

    assert (split.prefill_ms, split.decode_ms, split.unsplit_ms, split.harness_ms) == (0, 0, 1000, 1100)


def test_a_file_that_is_named_and_was_never_read_is_told_apart() -> None:
    read = row(turn(1, None, READ), *read_file("1:0", "errors.log"), turn(2, "It is errors.log."), stopped())
    guessed = row(turn(1, "It is errors.log, not access.log."), stopped())

    assert (read.right, read.named_unread) == (True, [])
    assert guessed.named_unread == ["access.log", "errors.log"]
    assert totals([read, guessed]).named_unread == 1


def test_a_read_that_failed_is_no_read_but_counts_as_a_tool_run() -> None:
    found = row(turn(1, None, READ), *read_file("1:0", "errors.log", ok=False), turn(2, "errors.log"), stopped())

    assert (found.tools, found.named_unread) == (1, ["errors.log"])


def test_what_was_answered_from_the_log_is_no_tool_run() -> None:
    again = read_file("2:0", "errors.log", source="cache")

    assert (
        row(turn(1, None, READ), *read_file("1:0", "errors.log"), *again, turn(2, "errors.log"), stopped()).tools == 1
    )


def test_a_run_that_was_stopped_has_no_answer_and_is_not_right() -> None:
    found = row(turn(1, None, READ), stopped(Status.MAX_TURNS_EXCEEDED, "max_turns"))

    assert (found.answer, found.right, found.status) == ("", False, Status.MAX_TURNS_EXCEEDED)


@pytest.mark.parametrize(
    ("answer", "lost"),
    [
        ('{"name": "read_file", "arguments": {"path": "errors.log"}', 1),
        ("<tool_call>\nread_file errors.log\n</tool_call>", 1),
        ('{"name": "rotate_logs", "arguments": {}}', 0),
        ("I used read_file to read errors.log.", 0),
    ],
)
def test_a_call_in_words_is_a_lost_call(answer: str, lost: int) -> None:
    assert row(turn(1, answer), stopped()).lost_calls == lost


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("qwen2.5-0.5b-instruct-q4_k_m", "published"),
        ("Qwen/Qwen2.5-0.5B-Instruct-GGUF", "published"),
        ("qwen2.5-coder-0.5b-instruct-q4_0", "stand-in"),
        ("some-hosted-model", "other"),
    ],
)
def test_which_model_it_is_can_be_told_from_its_name(model: str, kind: str) -> None:
    assert kind_of(model) == kind


# --- whole passes, with the scripted provider -----------------------------------------------------------------------


@pytest.fixture
async def report(provider: str, tmp_path: Path) -> Report:
    plan = Plan(base_url=provider, model="plan", repeat=1, concurrency=4, record=tmp_path / "requests.jsonl")
    return await measure(plan)


async def test_all_six_run_one_after_another_and_four_at_once(report: Report) -> None:
    assert [each.at_once for each in report.passes] == [1, 4]
    assert all(len(each.runs) == 6 and each.totals.turns == 18 and each.totals.tools == 12 for each in report.passes)
    first = report.single[0].runs[0]
    assert first.right
    assert first.answer == "errors.log mentions a timeout: worker 7 timed out after 30000 ms."
    assert first.calls == ["list_files {}", 'read_file {"path":"errors.log"}']
    assert report.label.kind == "other"


async def test_the_report_is_printed_beside_the_published_one_and_drawn(
    report: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_report(report)
    draw_six_tasks(report, tmp_path / "six.png")

    printed = capsys.readouterr().out
    assert "82,896" in printed
    assert printed.count("as published  ") == 6
    assert "The largest file is access.log." in printed
    assert "which this is not" in printed
    assert "4 agents at once" in printed
    assert (tmp_path / "six.png").read_bytes().startswith(PNG)


async def test_the_stand_in_is_called_one_wherever_its_figures_are(
    report: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    print_report(msgspec.structs.replace(report, label=msgspec.structs.replace(report.label, kind="stand-in")))

    printed = capsys.readouterr().out
    assert STAND_IN_WORDS in printed
    assert "here, stand-in" in printed


async def test_the_requests_that_were_made_can_be_replayed_against_any_server(
    report: Report, provider: str, tmp_path: Path
) -> None:
    lines = (tmp_path / "requests.jsonl").read_bytes().splitlines()
    made = [msgspec.json.decode(line, type=Made) for line in lines]
    replayed = await recorded.replay(provider, recorded.conversations(recorded.read(tmp_path / "requests.jsonl")), 4)

    assert [(each.conversation, each.turn) for each in made] == [
        (number, turn) for number in range(1, 7) for turn in (1, 2)
    ]
    assert [message.__struct_config__.tag for message in made[1].request.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]
    assert len(replayed.requests) == 12
    assert not any(each.error for each in replayed.requests)


async def test_a_server_that_is_not_there_is_said_to_be_missing() -> None:
    with pytest.raises(NoModel, match="is a model server there"):
        await measure(Plan(base_url="http://127.0.0.1:9/v1", model=None, repeat=1, concurrency=1))


async def test_a_model_server_of_our_own_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(DidNotStart, match="neither a file nor a model of the registry"):
        async with model_server("no-such-model", tmp_path / "log"):
            pass


# --- with weights ---------------------------------------------------------------------------------------------------


async def test_a_model_server_of_our_own_is_there_when_its_weights_are_loaded_and_gone_afterwards(
    tmp_path: Path,
) -> None:
    fetched(SMALL)
    async with model_server(SMALL, tmp_path / "log") as base_url:
        label = await label_of(base_url, None)

    assert (label.model, label.quantisation, label.kind) == (SMALL, "Q4_1", "other")
    with pytest.raises(NoModel):
        await label_of(base_url, None)


async def test_a_task_runs_on_real_weights_and_every_call_that_is_meant_is_executed() -> None:
    async with hosted(chosen(STAND_IN)) as client:
        plan = Plan(base_url=f"{client.address}/v1", model=None, repeat=1, concurrency=1, tasks=(3,))
        report = await measure(plan)

    (run,) = report.single[0].runs
    assert report.label.kind == "stand-in"
    assert report.label.quantisation == "Q4_K_M"
    assert run.turns >= 2
    assert run.tools >= 1
    assert run.lost_calls == 0
    assert run.split.prefill_ms > 0
    assert run.split.decode_ms > 0
