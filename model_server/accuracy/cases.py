"""The prompts, and the calls that are right. Pure data.

Each is one turn. Arguments are compared as data, text without regard to case and to a full stop at its end; where more
than one value is right, all of them are listed. All prompts share one list of tools, as the turns of an agent do.
"""

from typing import Any, Literal

from msgspec import Struct

Kind = Literal["one call", "several calls", "no call", "forced"]


class AnyOf(Struct, frozen=True):
    """Values of which each is right."""

    values: tuple[Any, ...]


class Wanted(Struct, frozen=True):
    """A call that is right. `args` None stands for any that the schema allows; `free` arguments may be given or not."""

    name: str
    args: dict[str, Any] | None
    free: frozenset[str] = frozenset()


class Case(Struct, frozen=True):
    kind: Kind
    prompt: str
    calls: tuple[Wanted, ...] = ()
    choice: str = "auto"  # auto, required, or the name of a tool


def call(name: str, /, **args: Any) -> Wanted:
    return Wanted(name, args)


def weather(city: str) -> Wanted:
    """Nobody said in which unit."""
    return Wanted("get_weather", {"city": city}, frozenset({"unit"}))


def any_of(*values: Any) -> AnyOf:
    return AnyOf(values)


def _function(name: str, description: str, properties: dict[str, Any], *required: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = list(required)
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


SYSTEM = "You are an assistant with tools. Use a tool when it helps, and answer in words when none does."

TOOLS = [
    _function("list_files", "List the files in the directory.", {}),
    _function("read_file", "Read one file and return its text.", {"path": _text("File name.")}, "path"),
    _function("delete_file", "Delete one file.", {"path": _text("File name.")}, "path"),
    _function(
        "get_weather",
        "Get the weather in a city.",
        {"city": _text("City name."), "unit": _text("Unit.", enum=["celsius", "fahrenheit"])},
        "city",
    ),
    _function(
        "send_message",
        "Send a message to a person.",
        {"to": _text("Name of the person."), "text": _text("The message.")},
        "to",
        "text",
    ),
    _function(
        "set_timer", "Set a timer.", {"minutes": {"type": "integer", "description": "Minutes to wait."}}, "minutes"
    ),
    _function("multiply", "Multiply two numbers.", {"a": {"type": "number"}, "b": {"type": "number"}}, "a", "b"),
]

ONE = (
    ("List the files.", call("list_files")),
    ("What files are in this directory?", call("list_files")),
    ("Show me all files here.", call("list_files")),
    ("Read errors.log.", call("read_file", path="errors.log")),
    ("What does notes.txt say?", call("read_file", path="notes.txt")),
    ("Open the file access.log and show me its text.", call("read_file", path="access.log")),
    ("I need the contents of config.yaml.", call("read_file", path="config.yaml")),
    ("Delete old.log.", call("delete_file", path="old.log")),
    ("Please remove the file draft.txt.", call("delete_file", path="draft.txt")),
    ("Get rid of backup.zip.", call("delete_file", path="backup.zip")),
    ("What is the weather in Paris?", weather("Paris")),
    ("How is the weather in Tokyo today?", weather("Tokyo")),
    ("What is the weather in Oslo in celsius?", call("get_weather", city="Oslo", unit="celsius")),
    ("Tell me the weather in Boston in fahrenheit.", call("get_weather", city="Boston", unit="fahrenheit")),
    ("Send Anna the message: I am late.", call("send_message", to="Anna", text="I am late")),
    ("Tell Bob: dinner is ready.", call("send_message", to="Bob", text="dinner is ready")),
    ('Send a message to Carol that says "call me".', call("send_message", to="Carol", text="call me")),
    ("Set a timer for 10 minutes.", call("set_timer", minutes=10)),
    ("Wake me in 25 minutes with a timer.", call("set_timer", minutes=25)),
    ("Set a timer for one hour.", call("set_timer", minutes=60)),
    ("Multiply 12 and 34.", call("multiply", a=12, b=34)),
    ("What is 7 times 8? Use the tool.", call("multiply", a=7, b=8)),
    ("Compute 2.5 times 4 with the tool.", call("multiply", a=2.5, b=4)),
    ("Is there anything in todo.md? Read it.", call("read_file", path="todo.md")),
)

SEVERAL = (
    ("Read a.txt and b.txt.", (call("read_file", path="a.txt"), call("read_file", path="b.txt"))),
    (
        "What is the weather in Rome and in Berlin?",
        (weather("Rome"), weather("Berlin")),
    ),
    ("Delete x.tmp and y.tmp.", (call("delete_file", path="x.tmp"), call("delete_file", path="y.tmp"))),
    ("Set two timers: 5 minutes and 15 minutes.", (call("set_timer", minutes=5), call("set_timer", minutes=15))),
    ("List the files, and set a timer for 3 minutes.", (call("list_files"), call("set_timer", minutes=3))),
    (
        "Read notes.txt and get the weather in Madrid.",
        (call("read_file", path="notes.txt"), weather("Madrid")),
    ),
)

NONE = (
    "Hello!",
    "Thank you, that was all.",
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Who are you?",
    "Translate 'good morning' into Spanish.",
    "Why is the sky blue? Answer in one sentence.",
    "Give me a word that rhymes with 'cat'.",
)

FORCED = (
    Case("forced", "I wonder what is in here.", (Wanted("list_files", None),), "list_files"),
    Case("forced", "My favourite file is letter.txt.", (call("read_file", path="letter.txt"),), "read_file"),
    Case("forced", "I live in Vienna.", (Wanted("get_weather", None),), "get_weather"),
    Case("forced", "Dinner will take 40 minutes.", (call("set_timer", minutes=40),), "set_timer"),
    Case("forced", "Nine and six.", (call("multiply", a=9, b=6),), "multiply"),
    Case("forced", "Please read report.txt.", (call("read_file", path="report.txt"),), "required"),
    Case("forced", "Weather in Lisbon, please.", (weather("Lisbon"),), "required"),
    Case("forced", "Multiply 3 by 5.", (call("multiply", a=any_of(3, 5), b=any_of(3, 5)),), "required"),
)

CASES: tuple[Case, ...] = (
    *(Case("one call", prompt, (wanted,)) for prompt, wanted in ONE),
    *(Case("several calls", prompt, calls) for prompt, calls in SEVERAL),
    *(Case("no call", prompt) for prompt in NONE),
    *FORCED,
)
