"""The six tasks: what is asked, what was published of it, and what counts as a right answer. Pure.

A check reads the answer and, where reading is what was asked for, the trace. It is strict: an answer that names the
right file among others is not right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Literal

import msgspec
from msgspec import Struct

from gateway.adapters.tools.sample import FILES
from gateway.core import events as e
from gateway.core.messages import Function, text_of
from gateway.core.run import Status

ANSWERED_BY_TOOL = ("tool", "settled")
CALL_LIKE = re.compile(r"<tool_call>|[\"']name[\"']\s*:\s*[\"'](?:list_files|read_file|delete_file|scan_archive)\b")
NOTE = "remember to rotate your logs"


class Evidence(Struct, frozen=True, kw_only=True):
    """What a check may look at: the answer, and the files whose text the model was given."""

    answer: str
    read: frozenset[str]

    @property
    def named(self) -> frozenset[str]:
        """The files of the workspace that the answer names."""
        return frozenset(name for name in FILES if name in self.answer.lower())

    @property
    def unread(self) -> frozenset[str]:
        """Named, and never read."""
        return self.named - self.read

    def says(self, pattern: str) -> bool:
        return re.search(pattern, self.answer, re.IGNORECASE) is not None


class Published(Struct, frozen=True, kw_only=True):
    """One row of the published table. `answer` is as much of it as was printed; `right` is what our check says."""

    ms: int
    answer: str | None
    turns: int = 2
    tools: int = 1
    right: bool | None


class Task(Struct, frozen=True, kw_only=True):
    question: str
    wanted: str
    is_right: Callable[[Evidence], bool]
    published: Published


def only_errors_log(found: Evidence) -> bool:
    return found.named == {"errors.log"}


TASKS: tuple[Task, ...] = (
    Task(
        question="Which file mentions a timeout?",
        wanted="errors.log, and no other file",
        is_right=only_errors_log,
        published=Published(ms=15_260, answer="The file timeout.txt does not exist...", right=False),
    ),
    Task(
        question="How many files are in the directory?",
        wanted="three",
        is_right=lambda found: found.says(r"\bthree\b|\b3\b"),
        published=Published(ms=13_037, answer="There are three files...", right=True),
    ),
    Task(
        question="Read notes.txt and tell me what it says.",
        wanted="the text of the note",
        is_right=lambda found: found.says(NOTE),
        published=Published(ms=10_121, answer="Remember to rotate your logs.", right=True),
    ),
    Task(
        question="List the files and then read each one.",
        wanted="three files read",
        is_right=lambda found: found.read == FILES.keys(),
        published=Published(ms=21_290, answer=None, tools=2, right=False),
    ),
    Task(
        question="Which file is the largest?",
        wanted="errors.log, and no other file",
        is_right=only_errors_log,
        published=Published(ms=10_698, answer="The largest file is access.log.", right=False),
    ),
    Task(
        question="Is there a file about rotating logs?",
        wanted="yes, and notes.txt",
        is_right=lambda found: found.says(r"\byes\b") and "notes.txt" in found.named,
        published=Published(ms=12_490, answer=None, right=None),
    ),
)


# --- from a trace to a row ------------------------------------------------------------------------------------------


class Split(Struct, frozen=True, kw_only=True):
    """Where the wall time went. `unsplit` is the wait for a provider that says nothing of its own times; what the model
    server does besides computing, and HTTP, count as the harness's."""

    prefill_ms: float
    decode_ms: float
    queue_ms: float
    unsplit_ms: float
    tools_ms: float
    harness_ms: float


class TaskRun(Struct, frozen=True, kw_only=True):
    """A row of the table. `lost_calls` counts replies that mean a call and were not read as one."""

    number: int
    question: str
    status: Status
    reason: str | None
    turns: int
    tools: int
    wall_ms: float
    answer: str
    right: bool
    named_unread: list[str]
    lost_calls: int
    calls: list[str]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    split: Split


def task_run(number: int, events: Sequence[e.Event], wall_ms: float) -> TaskRun:
    task = TASKS[number - 1]
    turns = [event for event in events if isinstance(event, e.Turn)]
    end = next(event for event in reversed(events) if isinstance(event, e.RunStopped))
    found = Evidence(answer=answer_of(turns), read=files_read(events))
    return TaskRun(
        number=number,
        question=task.question,
        status=end.status,
        reason=end.reason,
        turns=len(turns),
        tools=len(executions(events)),
        wall_ms=round(wall_ms, 1),
        answer=found.answer,
        right=end.status is Status.COMPLETED and task.is_right(found),
        named_unread=sorted(found.unread),
        lost_calls=sum(is_lost_call(turn) for turn in turns),
        calls=[f"{call.name} {call.arguments}" for turn in turns for call in calls_of(turn)],
        prompt_tokens=sum(turn.prompt_tokens for turn in turns),
        cached_tokens=sum(turn.cached_tokens for turn in turns),
        completion_tokens=sum(turn.completion_tokens for turn in turns),
        split=split_of(turns, executions(events), wall_ms),
    )


def executions(events: Sequence[e.Event]) -> list[e.ToolResult]:
    return [event for event in events if isinstance(event, e.ToolResult) and event.source in ANSWERED_BY_TOOL]


def files_read(events: Sequence[e.Event]) -> frozenset[str]:
    """A repeated read may be answered from the log: the first one, which was run, counts."""
    succeeded = {each.call for each in executions(events) if each.ok}
    starts = [event for event in events if isinstance(event, e.ToolStart) and event.tool_name == "read_file"]
    return frozenset(PurePosixPath(path_in(start.args)).name for start in starts if start.call in succeeded)


def path_in(args: str) -> str:
    return msgspec.json.decode(args)["path"]


def answer_of(turns: Sequence[e.Turn]) -> str:
    """The last reply, if it is one in words."""
    return "" if not turns or calls_of(turns[-1]) else words_of(turns[-1])


def split_of(turns: Sequence[e.Turn], tools: Sequence[e.ToolResult], wall_ms: float) -> Split:
    told = [turn.provider_ms or {} for turn in turns]
    parts = {name: sum(each.get(name, 0.0) for each in told) for name in ("prompt_ms", "predicted_ms", "queue_ms")}
    unsplit = sum(turn.ms for turn, each in zip(turns, told, strict=True) if "prompt_ms" not in each)
    tools_ms = float(sum(each.ms for each in tools))
    rest = wall_ms - sum(parts.values()) - unsplit - tools_ms
    return Split(
        prefill_ms=round(parts["prompt_ms"], 1),
        decode_ms=round(parts["predicted_ms"], 1),
        queue_ms=round(parts["queue_ms"], 1),
        unsplit_ms=round(unsplit, 1),
        tools_ms=tools_ms,
        harness_ms=round(max(0.0, rest), 1),
    )


# --- totals ---------------------------------------------------------------------------------------------------------


class Totals(Struct, frozen=True, kw_only=True):
    turns: int
    tools: int
    wall_ms: float
    mean_turn_ms: float
    right: int | None = None
    named_unread: int | None = None
    lost_calls: int | None = None


PUBLISHED_TOTALS = Totals(
    turns=sum(task.published.turns for task in TASKS),
    tools=sum(task.published.tools for task in TASKS),
    wall_ms=sum(task.published.ms for task in TASKS),
    mean_turn_ms=round(sum(task.published.ms for task in TASKS) / sum(task.published.turns for task in TASKS)),
)


def totals(runs: Sequence[TaskRun]) -> Totals:
    wall_ms, turns = sum(run.wall_ms for run in runs), sum(run.turns for run in runs)
    return Totals(
        turns=turns,
        tools=sum(run.tools for run in runs),
        wall_ms=round(wall_ms, 1),
        mean_turn_ms=round(wall_ms / turns, 1) if turns else 0.0,
        right=sum(run.right for run in runs),
        named_unread=sum(bool(run.named_unread) for run in runs),
        lost_calls=sum(run.lost_calls for run in runs),
    )


# --- the model's label ----------------------------------------------------------------------------------------------

Kind = Literal["published", "stand-in", "other"]
STAND_IN_WORDS = (
    "Qwen2.5-Coder-0.5B-Instruct stands in for Qwen2.5-0.5B-Instruct: its speed carries over, its answers do not"
)


def kind_of(model: str) -> Kind:
    """By name, since that is all that every server tells."""
    name = model.lower()
    if "qwen2.5-coder-0.5b-instruct" in name:
        return "stand-in"
    return "published" if "qwen2.5-0.5b-instruct" in name else "other"


# --- replies --------------------------------------------------------------------------------------------------------


def calls_of(turn: e.Turn) -> tuple[Function, ...]:
    return tuple(call.function for call in turn.message.tool_calls)


def words_of(turn: e.Turn) -> str:
    return text_of(turn.message.content).strip()


def is_lost_call(turn: e.Turn) -> bool:
    """A reply in words that is meant as a call: no person writes the JSON of one."""
    return CALL_LIKE.search(words_of(turn)) is not None
