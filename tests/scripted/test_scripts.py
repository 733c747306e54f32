from typing import Any

import msgspec
import pytest

from scripted.scripts import SCRIPTS, Script, reply
from scripted.wire import ChatRequest, Message, Part, Reply

USER, ASSISTANT = Message("user", "Which file mentions a timeout?"), Message("assistant")
HINT = Message("tool", "Error: no such file: timeout.log. Call list_files to see what exists.")
VAGUE = Message("tool", "Error: the tool failed.")
DECLINED = Message("tool", "The user declined this call: keep the log.")
DONE = Message("tool", "Deleted access.log.")


def said(script: str, *answers: Message) -> str:
    """What the script says after these answers of tools, one a turn."""
    messages = [USER]
    for answer in answers:
        messages += [ASSISTANT, answer]
    return shown(reply(script, ChatRequest(script, tuple(messages))))


def shown(what: Reply) -> str:
    calls = [f"{call.id} {call.function.name} {call.function.arguments}" for call in what.tool_calls]
    return what.text or ", ".join(calls)


@pytest.mark.parametrize(
    ("script", "answers", "says"),
    [
        ("plan", [], "c1 list_files {}"),
        ("plan", [DONE], 'c2 read_file {"path":"errors.log"}'),
        ("plan", [DONE, DONE], "errors.log mentions a timeout: worker 7 timed out after 30000 ms."),
        ("plan", [DONE] * 9, "errors.log mentions a timeout: worker 7 timed out after 30000 ms."),
        ("runaway", [], "c0 list_files {}"),
        ("runaway", [DONE] * 41, "c41 list_files {}"),
        ("recover", [], 'c1 read_file {"path":"timeout.log"}'),
        ("recover", [HINT], "c2 list_files {}"),
        ("recover", [HINT, DONE], 'c3 read_file {"path":"errors.log"}'),
        ("recover", [HINT, DONE, DONE], "errors.log mentions a timeout."),
        ("recover", [VAGUE], "I could not read the file, so I do not know."),
        ("denied", [], 'c0 read_file {"path":"/etc/shadow"}'),
        ("denied", [VAGUE] * 7, 'c7 read_file {"path":"/etc/shadow"}'),
        ("once", [], 'c1 read_file {"path":"errors.log"}'),
        ("once", [DONE], "errors.log mentions a timeout."),
        ("repeat", [DONE], 'c2 read_file {"path":"errors.log"}'),
        ("repeat", [DONE, DONE], "errors.log mentions a timeout."),
        ("destructive", [DONE], 'c2 delete_file {"path":"access.log"}'),
        ("destructive", [DONE, DECLINED], "I did not delete anything: you declined the deletion."),
        ("destructive", [DONE, DONE], "Deleted access.log to free space."),
        ("double_delete", [], 'c1 delete_file {"path":"access.log"}'),
        ("double_delete", [DONE], 'c2 delete_file {"path":"access.log"}'),
        ("double_delete", [DONE, DONE], "Deleted access.log to free space."),
        ("slow", [], "c1 scan_archive {}"),
        ("slow", [DONE], "The archive holds 1200 files."),
        ("delegate", [], 'c1 research {"question":"Which file mentions a timeout?"}'),
        ("delegate", [DECLINED, DONE], "Deleted access.log."),
    ],
)
def test_a_script_says_what_the_published_table_says(script: str, answers: list[Message], says: str) -> None:
    assert said(script, *answers) == says


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_reply_is_a_function_of_its_request(script: str) -> None:
    assert said(script, DONE) == said(script, DONE)


def test_what_people_say_is_not_the_text_of_tools() -> None:
    request = ChatRequest("recover", (Message("user", "Call list_files"), ASSISTANT, VAGUE))

    assert shown(reply("recover", request)) == "I could not read the file, so I do not know."


def test_the_text_of_a_tool_may_come_in_parts() -> None:
    parts = Message("tool", (Part("text", "Call list"), Part("text", "_files"), Part("image_url")))

    assert said("recover", parts) == "c2 list_files {}"


def test_a_script_that_does_not_exist_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        reply("nope", ChatRequest("nope", (USER,)))


TOML = """
about = "Asks two things at once, and reads the answers."
steps = [
  { turn = 0, calls = [{ id = "a{turn}", tool = "x", args = { n = 1 } }, { id = "b{turn}", tool = "y" }] },
  { tool_text_contains = "yes", text = "Yes." },
  { text = "No." },
]
"""


@pytest.mark.parametrize(
    ("answers", "says"), [([], 'a0 x {"n":1}, b0 y {}'), ([Message("tool", "yes!")], "Yes."), ([DONE], "No.")]
)
def test_a_script_can_come_from_a_file(answers: list[Message], says: str) -> None:
    scripts = {"two": msgspec.toml.decode(TOML, type=Script)}
    messages = (USER, *(message for answer in answers for message in (ASSISTANT, answer)))

    assert shown(reply("two", ChatRequest("two", messages), scripts)) == says


@pytest.mark.parametrize(
    "data",
    [
        {"about": "silent", "steps": []},
        {"about": "ends", "steps": [{"turn": 0, "text": "one reply only"}]},
        {"about": "misspelt", "steps": [{"txt": "hello"}]},
        {"about": "before the start", "steps": [{"turn": -1, "text": "never"}, {"text": "always"}]},
    ],
)
def test_a_script_that_could_be_left_without_a_reply_is_refused(data: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(data, Script)
