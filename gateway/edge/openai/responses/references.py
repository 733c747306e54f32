"""Items that a client only names, since it takes them for kept, as the API's own clients do unless they are told not
to: what each stands for, by the run that it is of.

A message is known by its run and the turns that this had when the response began, as the response itself is.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from gateway.core.errors import NotFound
from gateway.core.messages import Assistant, text_of
from gateway.core.run import Run
from gateway.edge.openai.answering import in_words
from gateway.edge.openai.asking import core_id, run_of
from gateway.edge.openai.responses.wire import ItemIn, ResponsesRequest

REFERENCE = "item_reference"
MESSAGE_ID = re.compile(r"msg_([0-9a-f]{16,32})_(\d{1,7})")
CALL_PREFIX = "fc_"

Known = Callable[[str], Awaitable[Run | None]]


async def with_items(request: ResponsesRequest, known: Known) -> ResponsesRequest:
    """The request with the items themselves. Raises NotFound for one that is not of a run here."""
    if isinstance(request.input, str) or not any(is_reference(item) for item in request.input):
        return request
    items = [await item_of(item, known) if is_reference(item) else item for item in request.input]
    return replace(request, input=items)


def is_reference(item: ItemIn) -> bool:
    return item.type == REFERENCE or (item.type is None and item.role is None and item.id is not None)


async def item_of(reference: ItemIn, known: Known) -> ItemIn:
    named = reference.id or ""
    call_id = core_id(named.removeprefix(CALL_PREFIX))
    message = MESSAGE_ID.fullmatch(named)
    run_id = f"run_{message[1]}" if message else run_of(call_id)
    run = await known(run_id) if run_id else None
    item = run and (message_item(run, int(message[2])) if message else call_item(run, call_id))
    if item is None:
        raise NotFound(f"there is no item {named} here: send the item itself.", param="input")
    return item


def message_item(run: Run, turns: int) -> ItemIn:
    """What the response said that began after so many turns."""
    reply = next((reply for reply in replies(run, turns) if is_the_clients(run, reply)), None)
    text = in_words(run) if reply is None else text_of(reply.content)
    return ItemIn(type="message", role="assistant", content=text)


def replies(run: Run, turns: int) -> list[Assistant]:
    """The replies of the run behind its first ones, so many of them. Others may stand before its own."""
    said = [message for message in run.messages if isinstance(message, Assistant)]
    return said[-(run.turns - turns) :] if run.turns > turns else []


def is_the_clients(run: Run, reply: Assistant) -> bool:
    """Whether a response ended with it: any reply of a conversation, else one without calls of the gateway's only."""
    theirs = {tool.name for tool in run.tools if tool.client_side}
    wanted = [call.function.name in theirs for call in reply.tool_calls]
    return run.conversation is not None or not wanted or any(wanted)


def call_item(run: Run, call_id: str) -> ItemIn | None:
    """By `run:turn:index`."""
    turn, index = (int(part) for part in call_id.split(":")[1:])
    reply = next(iter(replies(run, turn - 1)), None)
    if reply is None or index >= len(reply.tool_calls):
        return None
    called = reply.tool_calls[index].function
    return ItemIn(type="function_call", call_id=call_id, name=called.name, arguments=called.arguments)
