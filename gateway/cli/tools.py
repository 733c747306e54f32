"""`gateway tools`: what each agent may use, and one of them tried out. Neither needs a gateway."""

from __future__ import annotations

from typing import Annotated

import typer

tools = typer.Typer(no_args_is_help=False, invoke_without_command=True)

ConfigPath = Annotated[
    str | None, typer.Option("--config", metavar="PATH", help="The configuration; without one, a ready example.")
]


@tools.callback()
def list_tools(
    context: typer.Context,
    config: ConfigPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tools as JSON, schemas included.")] = False,
) -> None:
    """List the tools of each agent, with their flags and what they take."""
    context.obj = config
    if context.invoked_subcommand is None:
        from gateway.cli.toolshed import show_tools

        show_tools(config, as_json=as_json)


@tools.command("try")
def try_tool(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="TOOL", help="The name of the tool.")],
    arguments: Annotated[str, typer.Argument(metavar="ARGUMENTS", help="One JSON object, as a model sends it.")] = "{}",
    agent: Annotated[str | None, typer.Option(help="The agent whose tool it is; else the first that has it.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Approve the call, if it needs an approval.")] = False,
    config: ConfigPath = None,
) -> None:
    """Run one tool here and now, on the agent's own workspace, and print what a model would read."""
    from gateway.cli.toolshed import try_out

    try_out(config or context.obj, name, arguments, agent=agent, approved=yes)
