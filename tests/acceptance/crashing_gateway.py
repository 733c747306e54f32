"""A program that hosts gateways, one after the other, and can have one kill itself around a chosen event.

    python crashing_gateway.py        reads one order a line on stdin, answers in lines on stdout

    ← {"config": "FILE", "effects": "DIR", "crash_at": 4, "when": "before", "scan_step_seconds": 0.01}
    → pid 4711
    → gateway listening on http://127.0.0.1:40233
    → ended -9

Each gateway is a process of its own: a fork of this one, which has imported everything and opened nothing, so that it
starts in a few milliseconds. `crash_at` counts the events of that process's life; with it left out, this is the
gateway as it is, from `gateway.app`. The product knows nothing of any of this: what kills is wrapped around the store's
`append` in here.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import uvloop

from gateway.adapters.store.sqlite import SqliteStore
from gateway.adapters.tools.tool import Tool
from gateway.adapters.tools.workspace import Workspace
from gateway.app import serve
from gateway.config import load
from gateway.core.ports import Entry, Key, Record, ToolContext
from gateway.core.run import ToolSpec

When = Literal["before", "after"]

LINE = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
APPEND_LINE = ToolSpec(name="append_line", description="Append one line to a journal.", parameters=LINE)
PUT_LINE = ToolSpec(name="put_line", description="Put one line into a journal.", parameters=LINE, idempotent=True)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash_around(crash_at: int, when: When) -> None:
    """SIGKILL just before the n-th event of this process becomes durable, or right after. Events of one append are
    durable together."""
    append, seen = SqliteStore.append, 0

    async def append_or_die(
        store: SqliteStore, records: Sequence[Record], entry: Entry | None, key: Key | None = None
    ) -> None:
        nonlocal seen
        due = seen < crash_at <= seen + len(records)
        seen += len(records)
        if due and when == "before":
            die()
        await append(store, records, entry, key)
        if due:
            die()

    SqliteStore.append = append_or_die


def own_tools(effects: Path, scan_step_seconds: float) -> dict[str, Tool]:
    """Two tools that write outside of every workspace, one that does not care about being run twice and one that takes
    the idempotency key; and the scan of the archive at another pace."""

    def append_line(args: dict[str, Any], ctx: ToolContext) -> str:
        with (effects / args["file"]).open("a") as journal:
            journal.write(f"{ctx.idempotency_key}\n")
        return "Appended one line."

    def put_line(args: dict[str, Any], ctx: ToolContext) -> str:
        with (effects / f"{args['file']}.asked").open("a") as asked:
            asked.write(f"{ctx.idempotency_key}\n")
        journal = effects / args["file"]
        if not journal.exists() or ctx.idempotency_key not in journal.read_text().splitlines():
            append_line(args, ctx)
        return "The line is there."

    scan = Workspace(effects, scan_step_seconds=scan_step_seconds).tools()["scan_archive"]
    return {
        "append_line": Tool(APPEND_LINE, append_line),
        "put_line": Tool(PUT_LINE, put_line),
        "scan_archive": scan,
    }


def be_gateway(order: dict[str, Any]) -> NoReturn:
    """What the fork does, and nothing of its host's."""
    code = 1
    try:
        print(f"pid {os.getpid()}", flush=True)  # noqa: T201
        os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
        if order.get("crash_at"):
            crash_around(order["crash_at"], order["when"])
        tools = own_tools(Path(order["effects"]), order.get("scan_step_seconds", 0.5))
        uvloop.run(serve(load(order["config"], env={}), tools))
        code = 0
    except BaseException:  # noqa: BLE001  the fork must not go on with its host's loop
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def host() -> None:
    logging.basicConfig(level="INFO", format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            be_gateway(order)
        _, status = os.waitpid(pid, 0)
        print(f"ended {os.waitstatus_to_exitcode(status)}", flush=True)  # noqa: T201


if __name__ == "__main__":
    host()
