"""`gateway run` and what goes on with a run afterwards: every way out has its words and its exit code."""

import json
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.cli.conftest import COMMAND, INPUT, Run, Terminal, environment, fetched, posted

PLAN_ANSWER = "errors.log mentions a timeout: worker 7 timed out after 30000 ms.\n"
WAITING = ("run", INPUT, "--agent")


def started(cli: Run, *options: str) -> str:
    """The id of a run that is left to the gateway."""
    return cli("run", INPUT, "--detach", *options).out.strip()


def body(text: str) -> dict[str, object]:
    return json.loads(text)


# --- the ways out ---------------------------------------------------------------------------------------------------


def test_a_completed_run_prints_its_answer_alone_to_stdout_and_its_progress_to_stderr(cli: Run) -> None:
    done = cli("run", INPUT, "--agent", "plan")

    assert (done.code, done.out) == (0, PLAN_ANSWER)
    assert 'turn 2: read_file {"path":"errors.log"} ($0.001570)' in done.err
    assert "completed · 3 turns · 2 tool runs · $0.002470 · run_" in done.err


@pytest.mark.parametrize(
    ("options", "code", "headline"),
    [
        (("--agent", "refused"), 1, "failed · "),
        (("--agent", "runaway", "--max-turns", "2"), 3, "max_turns_exceeded · 2 turns"),
        (("--agent", "runaway", "--max-turns", "none", "--max-budget-usd", "0.001"), 4, "budget_exceeded · 2 turns"),
        (("--agent", "destructive"), 5, "interrupted / approval · 2 turns"),
        (("--agent", "slow", "--deadline-seconds", "0.3"), 6, "interrupted / deadline · 1 turn"),
    ],
)
def test_each_way_out_has_an_exit_code_of_its_own(cli: Run, options: tuple[str, ...], code: int, headline: str) -> None:
    done = cli("run", INPUT, *options)

    assert (done.code, done.out) == (code, "")
    assert headline in done.err
    run = body(cli("show", done.err.split(" · ")[-1].split()[0], "--json").out)
    assert f"{run['why']}\n" in done.err
    assert run["next"] is None or f"{run['next']}\n" in done.err


def test_ctrl_c_cancels_the_run_and_says_how_to_go_on(url: str) -> None:
    with subprocess.Popen(
        [*COMMAND, "run", INPUT, "--agent", "slow"], stderr=subprocess.PIPE, text=True, env=environment(url)
    ) as process:
        assert process.stderr is not None
        while "scanned 200" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()

    assert process.returncode == 130
    assert "interrupted / cancelled · 1 turn" in said
    assert "It was cancelled: user pressed Ctrl-C\nGo on: gateway resume run_" in said


def test_without_a_gateway_one_sentence_says_so(cli: Run) -> None:
    done = cli("run", INPUT, url="http://127.0.0.1:9")

    assert (done.code, done.out) == (7, "")
    assert done.err == "No gateway answers at http://127.0.0.1:9: start one with `gateway serve`.\n"


def test_a_refusal_names_the_field(cli: Run) -> None:
    done = cli("run", INPUT, "--agent", "nobody")

    assert (done.code, done.out) == (8, "")
    assert "nobody" in done.err
    assert "Field: agent\n" in done.err


def test_a_refusal_as_json_is_the_problem_of_the_api(cli: Run) -> None:
    done = cli("run", INPUT, "--agent", "nobody", "--json")

    problem = body(done.out)
    assert (done.code, problem["status"], problem["title"]) == (8, 422, "Unprocessable Entity")
    assert problem["error"]["param"] == "agent"  # type: ignore[index]


@pytest.mark.parametrize(
    "options",
    [
        ("--max-turns", "many"),
        ("--max-budget-usd", "nan"),
        ("--dedupe", "some"),
        ("--budget-mode", "firm"),
        ("--repeated-calls", "1"),
        ("--no-such-option",),
    ],
)
def test_a_wrong_option_is_exit_code_2_before_anything_starts(cli: Run, options: tuple[str, ...]) -> None:
    assert cli("run", INPUT, *options).code == 2


def test_a_task_can_come_from_stdin(cli: Run, url: str) -> None:
    run_id = cli("run", "-", "--agent", "plan", "--detach", stdin="Which one?").out.strip()

    assert body(cli("show", run_id, "--json").out)["messages"][1]["content"] == "Which one?"  # type: ignore[index]


def test_json_is_the_body_of_the_api_and_nothing_else(cli: Run, url: str) -> None:
    done = cli("run", INPUT, "--agent", "destructive_0", "--json")

    run = body(done.out)
    assert (done.code, done.err, run["status"], run["reason"]) == (5, "", "interrupted", "approval")
    assert done.out.encode() == fetched(f"{url}/v1/runs/{run['id']}") + b"\n"


def test_the_options_of_a_run_reach_it(cli: Run) -> None:
    policies = ("--dedupe", "all", "--tool-errors", "vague", "--on-permanent-error", "stop", "--approval", "deny")
    limits = ("--max-turns", "9", "--max-budget-usd", "0.5", "--budget-mode", "hard", "--deadline-seconds", "30")
    rules = ("--repeated-calls", "3", "--repeated-failures", "2", "--after-tool", "delete_file")
    done = cli("run", INPUT, "--model", "once", "--system", "Be brief.", *limits, *policies, *rules, "--json")

    run = body(done.out)
    assert run["model"] == "once"
    assert run["messages"][0] == {"role": "system", "content": "Be brief."}  # type: ignore[index]
    assert run["limits"] == {
        "max_turns": 9,
        "max_budget_usd": 0.5,
        "budget_mode": "hard",
        "deadline_seconds": 30.0,
    }
    assert run["stop_rules"] == {
        "repeated_calls": 3,
        "repeated_failures": 2,
        "after_tools": ["delete_file"],
    }
    assert list(run["policies"].values())[:4] == ["all", "vague", "stop", "deny"]  # type: ignore[attr-defined]


def test_a_stop_rule_of_the_command_line_stops_the_run(cli: Run) -> None:
    done = cli("run", INPUT, "--agent", "runaway", "--repeated-calls", "3")

    assert done.code == 6
    assert "list_files {} was asked for 3 times." in done.out + done.err


def test_a_stop_rule_that_the_gateway_does_not_have_is_refused_in_words(cli: Run) -> None:
    done = cli("run", INPUT, "--stop-rule", "no_such_rule")

    assert done.code == 8
    assert "there is no stop rule no_such_rule" in done.err


# --- going on -------------------------------------------------------------------------------------------------------


def test_a_run_approved_from_the_command_line_is_watched_to_its_end(cli: Run) -> None:
    run = body(cli("run", INPUT, "--agent", "destructive_1", "--json").out)
    call = run["pending_approvals"][0]  # type: ignore[index]

    done = cli("approve", str(run["id"]), call["call_id"], "--args-hash", call["args_hash"])

    assert (done.code, done.out) == (0, "Deleted access.log to free space.\n")


def test_a_verdict_on_other_arguments_is_refused(cli: Run) -> None:
    run = body(cli("run", INPUT, "--agent", "destructive_2", "--json").out)
    call = run["pending_approvals"][0]  # type: ignore[index]

    done = cli("approve", str(run["id"]), call["call_id"], "--args-hash", "0123456789abcdef")

    assert done.code == 8
    assert "Field: args_hash" in done.err


def test_a_rejected_call_is_told_to_the_model_in_the_words_given(cli: Run) -> None:
    run = body(cli("run", INPUT, "--agent", "destructive_3", "--json").out)
    call = run["pending_approvals"][0]  # type: ignore[index]

    done = cli("reject", str(run["id"]), call["call_id"], "--reason", "keep the log.", "--json")

    assert body(done.out)["output"] == "I did not delete anything: you declined the deletion."
    assert "The user declined this call: keep the log." in done.out


def test_a_capped_run_goes_on_under_a_higher_cap_only(cli: Run) -> None:
    run_id = str(body(cli("run", INPUT, "--agent", "runaway", "--max-turns", "2", "--json").out)["id"])

    refused, resumed = cli("resume", run_id), cli("resume", run_id, "--max-turns", "3", "--json")

    assert (refused.code, "Field: limits.max_turns" in refused.err) == (8, True)
    assert (resumed.code, body(resumed.out)["turns"]) == (3, 3)


def test_what_a_client_ran_is_settled_with_its_output(cli: Run, url: str) -> None:
    run_id, call_id = with_a_tool_of_the_client(url)

    done = cli("settle", run_id, call_id, "ERROR timeout")

    assert (done.code, done.out) == (0, "errors.log mentions a timeout.\n")
    assert "← read_file\nERROR timeout\n" in cli("show", run_id).out


def with_a_tool_of_the_client(url: str) -> tuple[str, str]:
    """A run that waits for the output of a call, and the call's id."""
    tool = {"type": "function", "function": {"name": "read_file"}}
    run = posted(f"{url}/v1/runs?wait=10", {"input": INPUT, "model": "once", "tools": [tool]})
    return run["id"], run["interruption"]["call_ids"][0]


def test_a_detached_run_is_cancelled_in_words_that_stay(cli: Run) -> None:
    run_id = started(cli, "--agent", "sleepy")

    cancelled, again = cli("cancel", run_id, "--reason", "not needed"), cli("cancel", run_id, "--json")

    assert (cancelled.code, again.code) == (0, 0)
    assert "It was cancelled: not needed\nGo on: gateway resume" in cancelled.err
    assert body(again.out)["interruption"] == {"type": "cancelled", "reason": "not needed"}


# --- on a terminal --------------------------------------------------------------------------------------------------


def test_a_terminal_shows_a_line_a_turn_a_live_one_below_and_then_the_answer(
    terminal: Callable[..., Terminal],
) -> None:
    shell = terminal("run", INPUT, "--agent", "slow")

    shell.expect("turn 1: scan_archive {} ($0.000684)\r\n")
    shell.expect("turn 1 · scan_archive · scanned 400 of 1200 files · $0.000684 · ")
    assert shell.end() == 0
    assert "scan_archive: done in " in shell.shown
    assert "The archive holds 1200 files." in shell.shown


def test_a_person_is_asked_with_the_whole_arguments_and_approves(terminal: Callable[..., Terminal]) -> None:
    shell = terminal(*WAITING, "destructive_4")

    shell.expect("delete_file waits for your approval. Its arguments:")
    shell.expect('"path": "access.log"')
    shell.expect("Approve or reject? [a/r] ")
    shell.type("perhaps\n")
    shell.expect("Say a to approve or r to reject.")
    shell.type("a\n")
    assert shell.end() == 0
    assert "Deleted access.log to free space." in shell.shown


def test_a_person_rejects_with_a_reason(terminal: Callable[..., Terminal]) -> None:
    shell = terminal(*WAITING, "destructive_5")

    shell.expect("[a/r] ")
    shell.type("r\n")
    shell.expect("Why?")
    shell.type("keep the log.\n")
    assert shell.end() == 0
    assert "I did not delete anything: you declined the deletion." in shell.shown


def test_ctrl_c_at_the_question_cancels_the_run(terminal: Callable[..., Terminal]) -> None:
    shell = terminal(*WAITING, "destructive_6")

    shell.expect("[a/r] ")
    shell.process.send_signal(signal.SIGINT)
    assert shell.end() == 130
    assert "It was cancelled: user pressed Ctrl-C" in shell.shown
    assert "gateway resume run_" in shell.shown


def test_ctrl_d_at_the_question_leaves_the_call_waiting(terminal: Callable[..., Terminal]) -> None:
    shell = terminal(*WAITING, "destructive_7")

    shell.expect("[a/r] ")
    shell.type("\x04")
    assert shell.end() == 5
    assert "Decide: gateway approve run_" in shell.shown


def test_ctrl_c_while_the_model_thinks_cancels_at_once(terminal: Callable[..., Terminal]) -> None:
    shell = terminal("run", INPUT, "--agent", "sleepy")

    shell.expect("the model thinks")
    shell.process.send_signal(signal.SIGINT)
    assert shell.end() == 130
    assert "Go on: gateway resume run_" in shell.shown
