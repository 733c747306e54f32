"""What goes between the HTTP side and the thread that owns the model. Plain data."""

from msgspec import Struct

from model_server.tool_calls import CallReader
from model_server.wire import Tool


class Sampling(Struct, frozen=True):
    """How tokens are chosen. Temperature 0 is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None


class Free(Struct, frozen=True, tag=True):
    """The model writes what it likes."""


class Governed(Struct, frozen=True, tag=True):
    """A grammar holds from the first token."""

    grammar: str


class WhenCalling(Struct, frozen=True, tag=True):
    """A grammar of the tools holds from where the reply can only be a call."""

    reader: CallReader
    tools: tuple[Tool, ...]
    parallel: bool


Constraint = Free | Governed | WhenCalling


class Job(Struct, frozen=True, kw_only=True):
    """One reply that is wanted. `banned` tokens are never chosen."""

    id: int
    prompt: tuple[int, ...]
    tokens_max: int
    sampling: Sampling = Sampling()
    stops: tuple[str, ...] = ()
    constraint: Constraint = Free()
    banned: tuple[int, ...] = ()
    past_the_end: bool = False  # goes on when the model wants to end, to measure speed


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Start(Struct, frozen=True, tag=True):
    job: Job


class Cancel(Struct, frozen=True, tag=True):
    id: int


class Forget(Struct, frozen=True, tag=True):
    """Drop what is kept of requests that are over."""


class Stop(Struct, frozen=True, tag=True):
    pass


Command = Start | Cancel | Forget | Stop

# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Wrote(Struct, frozen=True, tag=True):
    id: int
    text: str


class Spent(Struct, frozen=True, kw_only=True):
    """When a reply was asked for, begun, first answered and finished, in seconds of one clock."""

    asked_at: float
    begun_at: float
    first_at: float
    ended_at: float


class Ended(Struct, frozen=True, tag=True, kw_only=True):
    """`tokens` is what was generated, without the token that ended it. `cut_off` if the model did not end it."""

    id: int
    tokens: tuple[int, ...]
    cached: int
    cut_off: bool
    by_stop_string: bool
    spent: Spent


class Failed(Struct, frozen=True, tag=True):
    id: int
    reason: str


class Cancelled(Struct, frozen=True, tag=True):
    """Its cells and its sequence are free from now on."""

    id: int


Event = Wrote | Ended | Failed | Cancelled


class Snapshot(Struct, frozen=True, kw_only=True):
    """The state after a batch, for the metrics."""

    waiting: int
    working: int
    lines_kept: int
    cells_in_use: int
    cells_evicted: int
    preemptions: int
    batch_tokens: int
    batch_failed: bool


class Report(Struct, frozen=True):
    events: tuple[Event, ...]
    snapshot: Snapshot
