"""The commands that start runs and change them. Each but `cancel` then watches the run until it stops."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gateway.cli import options as o
from gateway.cli.options import DEFAULT_URL, Connection
from gateway.core.commands import ToolOutput
from gateway.edge.wire import StartRun


def run(
    task: Annotated[str, typer.Argument(metavar="TASK", help="What the agent is asked; - reads it from stdin.")],
    agent: Annotated[str | None, typer.Option(help="The agent that does it; else the gateway's default.")] = None,
    model: Annotated[str | None, typer.Option(help="A model to use instead of the agent's.")] = None,
    system: Annotated[str | None, typer.Option(help="A system prompt to use instead of the agent's.")] = None,
    max_turns: o.MaxTurns = None,
    max_budget_usd: o.MaxBudget = None,
    deadline_seconds: o.Deadline = None,
    budget_mode: Annotated[
        str | None,
        typer.Option(metavar=o.BUDGET_MODES, help="Whether a budget may be passed by a turn, or by nothing."),
    ] = None,
    repeated_calls: Annotated[
        int | None, typer.Option(metavar="N", min=2, help="Stop when one call was asked for this often.")
    ] = None,
    repeated_failures: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop when one call has failed this often.")
    ] = None,
    after_tool: Annotated[
        list[str] | None, typer.Option(metavar="TOOL", help="Stop once this tool has succeeded; may be repeated.")
    ] = None,
    stop_rule: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Hold it to a stop rule of the gateway's; may be repeated.")
    ] = None,
    dedupe: Annotated[
        str | None,
        typer.Option(metavar=o.choices("dedupe"), help="Which repeated calls are answered from the record."),
    ] = None,
    tool_errors: Annotated[
        str | None, typer.Option(metavar=o.choices("tool_errors"), help="What the model reads of a tool's error.")
    ] = None,
    on_permanent_error: Annotated[
        str | None,
        typer.Option(metavar=o.choices("on_permanent_error"), help="What an error does that no wording can mend."),
    ] = None,
    approval: Annotated[
        str | None, typer.Option(metavar=o.choices("approval"), help="What a call gets that needs an approval.")
    ] = None,
    detach: o.Detach = False,
    url: o.Url = DEFAULT_URL,
    api_key: o.ApiKey = None,
    as_json: o.AsJson = False,
) -> None:
    """Run a task and watch it: asks for approvals on a terminal, and Ctrl-C cancels the run."""
    order = StartRun(
        input=sys.stdin.read() if task == "-" else task,
        agent=agent,
        model=model,
        system=system,
        limits=o.limits_of(max_turns, max_budget_usd, deadline_seconds, budget_mode),
        policies=o.policies_of(
            dedupe=dedupe, tool_errors=tool_errors, on_permanent_error=on_permanent_error, approval=approval
        ),
        stop_rules=o.stop_rules_of(repeated_calls, repeated_failures, after_tool, stop_rule),
    )
    from gateway.cli.attending import attend

    attend(Connection(url, api_key, as_json), lambda gateway: gateway.start(order), detach=detach)


def approve(
    run_id: o.RunId,
    call_id: o.CallId,
    args_hash: Annotated[
        str | None, typer.Option(metavar="HASH", help="Approve only if these are still the call's arguments.")
    ] = None,
    detach: o.Detach = False,
    url: o.Url = DEFAULT_URL,
    api_key: o.ApiKey = None,
    as_json: o.AsJson = False,
) -> None:
    """Approve a call that waits, or run one in doubt again, and watch the run go on."""
    from gateway.cli.attending import attend

    attend(
        Connection(url, api_key, as_json),
        lambda gateway: gateway.approve(run_id, call_id, args_hash=args_hash),
        detach=detach,
    )


def reject(
    run_id: o.RunId,
    call_id: o.CallId,
    reason: Annotated[str | None, typer.Option(metavar="WORDS", help="Why, in words that the model reads.")] = None,
    detach: o.Detach = False,
    url: o.Url = DEFAULT_URL,
    api_key: o.ApiKey = None,
    as_json: o.AsJson = False,
) -> None:
    """Reject a call that waits, or skip one in doubt, and watch the run go on."""
    from gateway.cli.attending import attend

    attend(
        Connection(url, api_key, as_json),
        lambda gateway: gateway.reject(run_id, call_id, reason),
        detach=detach,
    )


def settle(
    run_id: o.RunId,
    call_id: o.CallId,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="What came back, as the model shall read it.")],
    failed: Annotated[bool, typer.Option("--failed", help="Say that the call failed.")] = False,
    detach: o.Detach = False,
    url: o.Url = DEFAULT_URL,
    api_key: o.ApiKey = None,
    as_json: o.AsJson = False,
) -> None:
    """Say what came back from a call in doubt, or from one that you made yourself, and watch the run go on."""
    from gateway.cli.attending import attend

    outputs = [ToolOutput(call_id=call_id, output=output, ok=not failed)]
    attend(
        Connection(url, api_key, as_json),
        lambda gateway: gateway.tool_outputs(run_id, outputs),
        detach=detach,
    )


def resume(
    run_id: o.RunId,
    max_turns: o.MaxTurns = None,
    max_budget_usd: o.MaxBudget = None,
    deadline_seconds: o.Deadline = None,
    detach: o.Detach = False,
    url: o.Url = DEFAULT_URL,
    api_key: o.ApiKey = None,
    as_json: o.AsJson = False,
) -> None:
    """Go on with a run that stopped for now, under higher limits where one stopped it, and watch it."""
    limits = o.limits_of(max_turns, max_budget_usd, deadline_seconds)
    from gateway.cli.attending import attend

    attend(
        Connection(url, api_key, as_json),
        lambda gateway: gateway.resume(run_id, limits),
        detach=detach,
    )


def cancel(
    run_id: o.RunId,
    reason: Annotated[
        str, typer.Option(metavar="WORDS", help="Why, in words that stay in the record.")
    ] = "cancelled from the command line",
    url: o.Url = DEFAULT_URL,
    api_key: o.ApiKey = None,
    as_json: o.AsJson = False,
) -> None:
    """Stop a run now, whatever it does or waits for; it can be resumed."""
    from gateway.cli.talk import talk

    told = talk(Connection(url, api_key, as_json), lambda gateway: gateway.cancel(run_id, reason))
    if as_json:
        typer.echo(told.body)
    else:
        from gateway.cli.render import tell_stop

        tell_stop(told.value)
