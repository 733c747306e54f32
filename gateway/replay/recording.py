"""The document that a recorded run becomes, self-contained: what was ordered, what came in from outside (the model, the
tools, people, the clock, the death of processes), and what is expected to come of it. Data only; see exporting.py.

Every input says `at` which place it came: so many events were recorded before it took effect.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from gateway.core.commands import ToolOutput
from gateway.core.errors import GatewayError
from gateway.core.events import RunStarted, Said
from gateway.core.pricing import ZERO, Usage
from gateway.core.run import Approval, InDoubt, Interruption, Limits, Run, Status
from scripted.scripts import Script

VERSION = 1
RUN = "recorded"
"""What the run is called in its document, and in every replay: ids are no part of what is compared."""

Place = Annotated[int, Meta(ge=0)]
During = Literal["wait", "decision", "step"]


class BadRecording(GatewayError):
    """Not a recording, or one that this version cannot play; the message is one sentence."""


class Input(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    at: Place


# --- the model ------------------------------------------------------------------------------------------------------


class Ask(Input, frozen=True, kw_only=True):
    """A request that was not simply sent once and answered. `attempts` are those that were recorded: each but the first
    followed a reply that was lost.

    `silence`: nothing more was recorded of it, since the run was stopped or its process died. `lost`: the last reply
    was lost, and the run stopped instead of asking again. `refused` and `unavailable` are the provider's, in `words`;
    `maybe_billed` says whether its last attempt was lost.
    """

    attempts: tuple[int, ...] = (1,)
    ending: Literal["reply", "silence", "lost", "refused", "unavailable"] = "reply"
    words: str = ""
    maybe_billed: bool = False


# --- tools ----------------------------------------------------------------------------------------------------------


class Progress(Input, frozen=True, kw_only=True, tag="progress"):
    call: str
    label: str


class Answer(Input, frozen=True, kw_only=True, tag="answer"):
    """What the tool returned, or the words that it failed with; and what the subagent's run cost, if it was one."""

    call: str
    text: str
    ok: bool = True
    permanent: bool = False
    cost_usd: Decimal = ZERO
    unconfirmed_cost_usd: Decimal = ZERO


class Suspension(Input, frozen=True, kw_only=True, tag="suspension"):
    """The subagent's run that answers the call waits for a person. `order` among those that wait at the same place."""

    call: str
    inner: tuple[Approval | InDoubt, ...]
    order: int = 0


ToolInput = Progress | Answer | Suspension


# --- people, the clock, and processes -------------------------------------------------------------------------------


class Verdict(Input, frozen=True, kw_only=True, tag="verdict"):
    call: str
    approved: bool
    reason: str | None = None


class Outputs(Input, frozen=True, kw_only=True, tag="tool_outputs"):
    outputs: tuple[ToolOutput, ...]


class Words(Input, frozen=True, kw_only=True, tag="message"):
    """A client went on with a message: the outputs that came with it, and what was new in its transcript."""

    said: Said
    outputs: tuple[ToolOutput, ...] = ()
    limits: Limits | None = None


class Resume(Input, frozen=True, kw_only=True, tag="resume"):
    limits: Limits | None = None


class Rejoin(Input, frozen=True, kw_only=True, tag="rejoin"):
    """Somebody settled what a subagent's run waited for."""


class Cancel(Input, frozen=True, kw_only=True, tag="cancel"):
    """Of a run that nobody drove."""

    reason: str


class Halt(Input, frozen=True, kw_only=True, tag="halt"):
    """The run was stopped while it was driven, and not by its own loop: by a person, its deadline, an operator's rule
    or a fault. `during` says what it was about to do: wait (for a reply, a tool), decide, or go on in its step."""

    status: Status
    interruption: Interruption | None = None
    error: str | None = None
    during: During


class Death(Input, frozen=True, kw_only=True, omit_defaults=True, tag="death"):
    """The process ended, `in_order` or not."""

    in_order: bool = False


class Recovery(Input, frozen=True, kw_only=True, tag="recovery"):
    """The next process took the run up."""


Action = Verdict | Outputs | Words | Resume | Rejoin | Cancel | Halt | Death | Recovery


# --- the whole ------------------------------------------------------------------------------------------------------


class Figures(Struct, frozen=True, kw_only=True):
    """What a run came to."""

    status: Status
    reason: str | None
    error: str | None
    turns: int
    tool_runs: int
    usage: Usage
    cost_usd: Decimal
    unconfirmed_cost_usd: Decimal
    output: str


class Expected(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events without what differs from one time to the next (see comparing.normal), and figures."""

    events: list[dict[str, Any]]
    figures: Figures


class Recording(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    version: Literal[1]
    run_id: str
    started: RunStarted
    script: Script
    asks: tuple[Ask, ...] = ()
    tools: tuple[ToolInput, ...] = ()
    actions: tuple[Action, ...] = ()
    expected: Expected


def figures_of(run: Run) -> Figures:
    return Figures(
        status=run.status,
        reason=run.reason,
        error=run.error,
        turns=run.turns,
        tool_runs=run.tool_runs,
        usage=run.usage,
        cost_usd=run.cost_usd,
        unconfirmed_cost_usd=run.unconfirmed_cost_usd,
        output=run.output,
    )


_decoder = msgspec.json.Decoder(Recording, float_hook=Decimal)


def decode_recording(body: bytes, name: str) -> Recording:
    """The document as it was exported, money exact. Raises BadRecording, naming the file and the field."""
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BadRecording(f"{name} is no recording: {str(error).replace(' - at `$.', ' - at `')}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecording(f"{name} is not valid JSON: {error}.") from None
