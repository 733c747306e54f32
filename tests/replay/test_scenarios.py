"""Export, then replay, is the identity on every scenario of the published figures, recorded through real gateways."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from gateway.adapters.store.sqlite import SqliteStore
from gateway.bench.expected import load_expected
from gateway.bench.measuring import STOP_AT_SECONDS, STOP_REASON, after_second_tool, judged, tool_begins, trace
from gateway.bench.process import serving, write_config
from gateway.bench.scenarios import KILLED, QUESTION, SCENARIOS, SLOW_REPLY_MS, Scenario
from gateway.cli.recorded import fetched
from gateway.client import Gateway
from gateway.core.codec import decode_event, encode
from gateway.core.run import Cancelled
from gateway.edge.wire import StartRun
from gateway.replay.comparing import Difference
from gateway.replay.exporting import recording_of
from gateway.replay.playing import Played, play
from gateway.replay.recording import Halt, Recording, Verdict, decode_recording

SECONDS_MAX = 60
Recordings = dict[str, Recording]


async def recorded_scenarios(folder: Path) -> Recordings:
    config = write_config(folder, {**{scenario.name: scenario.script for scenario in SCENARIOS}, "stopped": "slow"})
    async with serving(config) as process, Gateway(process.url) as gateway:
        rows = await asyncio.gather(stopped(gateway), *(recorded(gateway, scenario) for scenario in SCENARIOS))
    return dict(zip(["stopped", *(scenario.name for scenario in SCENARIOS)], rows, strict=True))


async def recorded(gateway: Gateway, scenario: Scenario) -> Recording:
    order = StartRun(input=QUESTION, agent=scenario.name, limits=scenario.limits, policies=scenario.policies)
    run = await judged(gateway, scenario, await gateway.start(order, wait_seconds=SECONDS_MAX))
    return await fetched(gateway, run.id)


async def stopped(gateway: Gateway) -> Recording:
    run = await gateway.start(StartRun(input=QUESTION, agent="stopped"))
    await tool_begins(gateway, run.id)
    await asyncio.sleep(STOP_AT_SECONDS)
    await gateway.cancel(run.id, STOP_REASON)
    return await fetched(gateway, run.id)


async def killed(folder: Path) -> Recordings:
    config = write_config(folder, {KILLED: f"plan@latency={SLOW_REPLY_MS}"})
    async with serving(config) as first, Gateway(first.url, reconnect_seconds=0) as gateway:
        run_id = await after_second_tool(gateway)
        await first.kill()
    async with await SqliteStore.open(folder / "runs.db") as store:
        left = recording_of(run_id, [decode_event(record.body) for record in await store.read(run_id)])
    async with serving(config) as second, Gateway(second.url) as gateway:
        await trace(gateway, run_id)
        return {"kill_after_turn_2": left, "kill_and_resume": await fetched(gateway, run_id)}


async def all_recorded(folder: Path) -> Recordings:
    rows, kills = await asyncio.gather(recorded_scenarios(folder / "all"), killed(folder / KILLED))
    return {**rows, **kills}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    return asyncio.run(all_recorded(tmp_path_factory.mktemp("replay")))


def reread(recording: Recording) -> Recording:
    """As it comes out of a file."""
    return decode_recording(encode(recording), "the document")


NAMES = (*(scenario.name for scenario in SCENARIOS), "stopped", "kill_after_turn_2", "kill_and_resume")


@pytest.mark.parametrize("name", NAMES)
async def test_a_scenario_played_again_is_the_same_run(recordings: Recordings, name: str) -> None:
    recording = recordings[name]

    played = await play(reread(recording))

    assert played.difference is None
    assert played.replayed == recording.expected.figures
    assert played.events == len(recording.expected.events)


@pytest.mark.parametrize("name", load_expected())
async def test_what_is_recorded_is_what_was_published(recordings: Recordings, name: str) -> None:
    figures, published = recordings[name].expected.figures, load_expected()[name]

    assert (figures.turns, figures.tool_runs, figures.status) == (
        published.turns,
        published.tool_runs,
        published.status,
    )
    assert published.prompt_tokens in (UNSET, figures.usage.prompt_tokens)


def test_two_runs_of_the_same_scenario_are_the_same_document_behind_its_start(recordings: Recordings) -> None:
    one, other = recordings["destructive_stop"], recordings["destructive_approved"]

    assert one.run_id != other.run_id
    assert other.expected.events[1 : len(one.expected.events)] == one.expected.events[1:]


def test_stop_in_the_middle_of_a_tool_comes_where_the_record_shows_it(recordings: Recordings) -> None:
    recording = recordings["stopped"]
    stop = recording.actions[-1]

    assert isinstance(stop, Halt)
    assert (stop.during, stop.interruption) == ("wait", Cancelled(STOP_REASON))
    assert [event["type"] for event in recording.expected.events[-3:]] == [
        "tool_progress",
        "tool_progress",
        "run_stopped",
    ]


# --- what differs, is shown -----------------------------------------------------------------------------------------


def answering(recording: Recording, text: str) -> Recording:
    """The first tool says something else."""
    first, *others = recording.tools
    return replace(recording, tools=(replace(first, text=text), *others))


def expecting(recording: Recording, number: int, **fields: Any) -> Recording:
    events = list(recording.expected.events)
    events[number] = {**events[number], **fields}
    return replace(recording, expected=replace(recording.expected, events=events))


def saying(recording: Recording, step: int, **fields: Any) -> Recording:
    steps = list(recording.script.steps)
    steps[step] = replace(steps[step], **fields)
    return replace(recording, script=replace(recording.script, steps=tuple(steps)))


def judging(recording: Recording, *actions: Any) -> Recording:
    return replace(recording, actions=actions)


def place(recording: Recording, kind: str) -> int:
    return next(number for number, event in enumerate(recording.expected.events) if event["type"] == kind)


Change = Callable[[Recording], Recording]
CHANGES: dict[str, tuple[Change, str, str, Any, Any]] = {
    "a tool's answer": (
        lambda doc: answering(doc, "[]"),
        "tool_result",
        "content",
        '["access.log","errors.log","notes.txt"]',
        "[]",
    ),
    "the tokens of a turn": (
        lambda doc: expecting(doc, place(doc, "turn"), completion_tokens=99),
        "turn",
        "completion_tokens",
        99,
        23,
    ),
    "what the model asked for": (
        lambda doc: saying(doc, 0, calls=(replace(doc.script.steps[0].calls[0], arguments='{"a": 1}'),)),
        "turn",
        "message.tool_calls[0].function.arguments",
        "{}",
        '{"a": 1}',
    ),
    "the verdict": (
        lambda doc: judging(doc, replace(doc.actions[0], approved=False)),
        "verdict",
        "approved",
        True,
        False,
    ),
    "nobody who judges": (judging, "verdict", "type", "verdict", None),
    "a verdict on another call": (
        lambda doc: judging(doc, replace(doc.actions[0], call="recorded:9:9")),
        "verdict",
        "type",
        "verdict",
        "run recorded has no call recorded:9:9 in its last turn.",
    ),
    "a record that ends sooner": (
        lambda doc: replace(doc, expected=replace(doc.expected, events=doc.expected.events[:-1])),
        "run_stopped",
        "type",
        None,
        "run_stopped",
    ),
    "the figures": (
        lambda doc: replace(
            doc, expected=replace(doc.expected, figures=replace(doc.expected.figures, output="Something else."))
        ),
        "figures",
        "output",
        "Something else.",
        "Deleted access.log to free space.",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_changed_document_shows_the_first_difference(recordings: Recordings, name: str) -> None:
    change, kind, field, old, new = CHANGES[name]

    played = await play(reread(change(recordings["destructive_approved"])), stall_seconds=1)

    assert differs(played) == (kind, field, old, new)


def differs(played: Played) -> tuple[str, str, Any, Any] | None:
    match played.difference:
        case Difference(type=kind, field=field, recorded=old, replayed=new):
            return kind, field, old, new
        case None:
            return None


def test_a_verdict_is_an_input_at_the_place_where_it_came(recordings: Recordings) -> None:
    recording = recordings["destructive_rejected"]

    assert recording.actions == (
        Verdict(at=place(recording, "verdict"), call="recorded:2:0", approved=False, reason="keep the log."),
    )
