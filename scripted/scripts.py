"""The scripts, as data: a script is a list of steps, and the first step whose conditions hold is the reply.

Nothing is stored: the turn is the number of assistant messages in the request, the rest is in what its tools answered.
A script from a TOML or JSON file is decoded into the same Structs (loading.py).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from scripted.wire import ChatRequest, Counts, Function, Parts, Reply, ToolCall


class Call(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One call of a tool. `{turn}` in its id is the turn it is made in.

    `arguments` instead of `args` is sent letter by letter, valid or not, as it was recorded; so is the id then.
    """

    id: str
    tool: str
    args: dict[str, Any] = {}
    arguments: str | None = None

    def __post_init__(self) -> None:
        if self.args and self.arguments is not None:
            raise ValueError("A call has args or arguments, not both")


class Step(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One reply, and when it is given: in one turn or in any, once the tools' text contains something or always.

    `echo` repeats what the last tool answered instead of a text. `finish` and `usage` are said instead of what follows
    from the reply. `ignores_max_tokens`: the reply is not cut, as from a provider that does not know the parameter.
    """

    turn: Annotated[int, Meta(ge=0)] | None = None
    tool_text_contains: str = ""
    calls: tuple[Call, ...] = ()
    text: str | Parts | None = None
    echo: bool = False
    reasoning: str | None = None
    refusal: str | None = None
    finish: str | None = None
    usage: Counts | None = None
    ignores_max_tokens: bool = False

    def __post_init__(self) -> None:
        if self.echo and self.text is not None:
            raise ValueError("A step has a text or echoes one, not both")

    def holds(self, turn: int, tool_text: str) -> bool:
        return self.turn in (None, turn) and self.tool_text_contains in tool_text

    @property
    def always(self) -> bool:
        return self.turn is None and not self.tool_text_contains


class Script(Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    steps: Annotated[tuple[Step, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        if not (self.steps and self.steps[-1].always):
            raise ValueError("The last step of a script must have no conditions, so that every request has a reply")


def reply(script: str, request: ChatRequest, scripts: Mapping[str, Script] | None = None) -> Reply:
    """What the script says to this request. Raises KeyError for a script that does not exist."""
    steps = (SCRIPTS if scripts is None else scripts)[script].steps
    turn, tool_text = request.turn, request.tool_text
    step = next(step for step in steps if step.holds(turn, tool_text))
    return Reply(
        content=request.last_tool_text if step.echo else step.text,
        tool_calls=tuple(_tool_call(call, turn) for call in step.calls),
        reasoning=step.reasoning,
        refusal=step.refusal,
        stated_finish=step.finish,
        usage=step.usage,
        ignores_max_tokens=step.ignores_max_tokens,
    )


def _tool_call(call: Call, turn: int) -> ToolCall:
    if call.arguments is not None:
        return ToolCall(id=call.id, function=Function(call.tool, call.arguments))
    arguments = msgspec.json.encode(call.args).decode()
    return ToolCall(id=call.id.replace("{turn}", str(turn)), function=Function(call.tool, arguments))


def _list(id: str) -> tuple[Call, ...]:
    return (Call(id, "list_files"),)


def _read(id: str, path: str) -> tuple[Call, ...]:
    return (Call(id, "read_file", {"path": path}),)


def _delete(id: str, path: str) -> tuple[Call, ...]:
    return (Call(id, "delete_file", {"path": path}),)


_QUESTION = "Which file mentions a timeout?"
_FOUND = "errors.log mentions a timeout."
_FREED = "Deleted access.log to free space."
_HINT = "Call list_files"  # in the words of the error for a file that does not exist

SCRIPTS: Mapping[str, Script] = MappingProxyType(
    {
        "plan": Script(
            "Lists the files, reads one, answers.",
            (
                Step(turn=0, calls=_list("c1")),
                Step(turn=1, calls=_read("c2", "errors.log")),
                Step(text="errors.log mentions a timeout: worker 7 timed out after 30000 ms."),
            ),
        ),
        "runaway": Script("Lists the files for ever.", (Step(calls=_list("c{turn}")),)),
        "recover": Script(
            "Reads a file that does not exist; finds another way only if the error says which.",
            (
                Step(turn=0, calls=_read("c1", "timeout.log")),
                Step(turn=1, tool_text_contains=_HINT, calls=_list("c2")),
                Step(turn=2, tool_text_contains=_HINT, calls=_read("c3", "errors.log")),
                Step(tool_text_contains=_HINT, text=_FOUND),
                Step(text="I could not read the file, so I do not know."),
            ),
        ),
        "denied": Script(
            "Asks for ever for a file that it may not read.", (Step(calls=_read("c{turn}", "/etc/shadow")),)
        ),
        "once": Script("Reads one file, answers.", (Step(turn=0, calls=_read("c1", "errors.log")), Step(text=_FOUND))),
        "repeat": Script(
            "Reads the same file twice, answers.",
            (
                Step(turn=0, calls=_read("c1", "errors.log")),
                Step(turn=1, calls=_read("c2", "errors.log")),
                Step(text=_FOUND),
            ),
        ),
        "destructive": Script(
            "Deletes a file, and says what it was told about it.",
            (
                Step(turn=0, calls=_list("c1")),
                Step(turn=1, calls=_delete("c2", "access.log")),
                Step(tool_text_contains="declined", text="I did not delete anything: you declined the deletion."),
                Step(text=_FREED),
            ),
        ),
        "double_delete": Script(
            "Deletes the same file twice.",
            (
                Step(turn=0, calls=_delete("c1", "access.log")),
                Step(turn=1, calls=_delete("c2", "access.log")),
                Step(text=_FREED),
            ),
        ),
        "slow": Script(
            "Calls a tool that takes three seconds, answers.",
            (Step(turn=0, calls=(Call("c1", "scan_archive"),)), Step(text="The archive holds 1200 files.")),
        ),
        "delegate": Script(
            "Gives the question to a subagent, repeats its summary.",
            (Step(turn=0, calls=(Call("c1", "research", {"question": _QUESTION}),)), Step(echo=True)),
        ),
    }
)
