"""The options that commands share, and how their text becomes the fields of a request."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, get_args, get_type_hints
from urllib.parse import urlsplit

import msgspec
import typer
from msgspec import UNSET, Struct, UnsetType

from gateway.core.commands import RaisedLimits
from gateway.core.run import Limits, Policies
from gateway.edge.wire import ChangedPolicies, ChangedStopRules

DEFAULT_URL = "http://127.0.0.1:8787"
NO_CAP = "none"


class Connection(Struct, frozen=True):
    """Which gateway, the key that it wants, and whether its answers are printed as they are."""

    url: str
    api_key: str | None
    as_json: bool = False

    def __repr__(self) -> str:
        return f"Connection(url={self.url!r}, api_key=…)"


def choices(field: str, of: type[Struct] = Policies) -> str:
    """`off|read_only|all`: the values of a policy as the help shows them, taken from its type."""
    return "|".join(get_args(get_type_hints(of)[field]))


BUDGET_MODES = choices("budget_mode", Limits)


def address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise typer.BadParameter(f"{url!r} must begin with http:// or https://, as in {DEFAULT_URL}.")
    return url


Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="GATEWAY_URL",
        metavar="URL",
        help="The address at which the gateway answers.",
        callback=address,
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", envvar="GATEWAY_API_KEY", metavar="KEY", help="The key that the gateway wants, if any."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the body of the API's answer as it is, and nothing else to stdout.")
]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The id of the run.")]
CallId = Annotated[str, typer.Argument(metavar="CALL", help="The id of the call, as `gateway show RUN` prints it.")]
Detach = Annotated[bool, typer.Option("--detach", help="Return at once and leave the run to the gateway.")]
MaxTurns = Annotated[
    str | None,
    typer.Option("--max-turns", metavar="N|none", help="Stop after this many turns; none is no cap."),
]
MaxBudget = Annotated[
    str | None,
    typer.Option(
        "--max-budget-usd", metavar="USD|none", help="Stop once this much is spent: over by one turn at most."
    ),
]
Deadline = Annotated[
    str | None,
    typer.Option("--deadline-seconds", metavar="S|none", help="Stop after this long, without waits for people."),
]


def limits_of(
    max_turns: str | None, max_budget_usd: str | None, deadline_seconds: str | None, budget_mode: str | None = None
) -> RaisedLimits:
    """The limits that were given; the others stay as they are."""
    return RaisedLimits(
        budget_mode=UNSET if budget_mode is None else one_of(BUDGET_MODES, budget_mode, "budget_mode"),
        max_turns=cap(max_turns, int, "--max-turns"),
        max_budget_usd=cap(max_budget_usd, Decimal, "--max-budget-usd"),
        deadline_seconds=cap(deadline_seconds, float, "--deadline-seconds"),
    )


def cap(text: str | None, kind: type[Any], option: str) -> Any | UnsetType | None:
    if text is None:
        return UNSET
    if text == NO_CAP:
        return None
    try:
        number = kind(text)
        if 0 < number < float("inf"):
            return number
    except (ValueError, InvalidOperation):
        pass
    raise typer.BadParameter(f"{text!r} must be a number above 0, or {NO_CAP}.", param_hint=option)


def policies_of(**given: str | None) -> ChangedPolicies:
    """The policies that were given; the others are the agent's."""
    changed = {name: value for name, value in given.items() if value is not None}
    for name, value in changed.items():
        one_of(choices(name), value, name)
    return msgspec.convert(changed, ChangedPolicies)


def one_of(choices: str, value: str, name: str) -> Any:
    if value not in choices.split("|"):
        hint = f"--{name.replace('_', '-')}"
        raise typer.BadParameter(f"{value!r} must be one of {choices.replace('|', ', ')}.", param_hint=hint)
    return value


def stop_rules_of(
    repeated_calls: int | None,
    repeated_failures: int | None,
    after_tools: list[str] | None,
    predicates: list[str] | None,
) -> ChangedStopRules:
    """The stop rules that were given; the others are the agent's."""
    return ChangedStopRules(
        repeated_calls=repeated_calls or UNSET,
        repeated_failures=repeated_failures or UNSET,
        after_tools=tuple(after_tools) if after_tools else UNSET,
        predicates=tuple(predicates) if predicates else UNSET,
    )
