"""From a run to an answer in OpenAI's shape: whole, or the chunks that end a stream. Pure.

completed              the reply; `finish_reason` as the provider said
waits for outputs      the calls that the client runs, `tool_calls`
stopped otherwise      why and what to do next, in words, `length`: never `stop`, and never an error to retry
failed                 an error, which is the caller's to send
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType

from gateway.core.calls import outstanding
from gateway.core.codec import encode
from gateway.core.explain import what_next, why
from gateway.core.messages import Assistant, Function
from gateway.core.pricing import Usage
from gateway.core.run import Call, Run, Status, ToolOutputs
from gateway.edge.openai.asking import wire_id
from gateway.edge.openai.wire import (
    CallDelta,
    CallOut,
    Choice,
    Chunk,
    ChunkChoice,
    Completion,
    CompletionDetails,
    Delta,
    Extension,
    Finish,
    MessageOut,
    ProgressExtension,
    PromptDetails,
    UsageOut,
)
from gateway.edge.wire import pending

SAID_ENDS = ("stop", "length", "content_filter")
DONE = b"data: [DONE]\n\n"


class Shown(Struct, frozen=True):
    """What of an answer does not depend on how the run ended: the name that the client asked by."""

    run_id: str
    model: str
    created: int


def shown(run: Run, model: str) -> Shown:
    return Shown(run.id, model, int(run.created_at.timestamp()))


def completion(run: Run, model: str) -> Completion:
    head = shown(run, model)
    return Completion(
        id=f"chatcmpl-{run.id}",
        created=head.created,
        model=model,
        choices=[Choice(message=message(run), finish_reason=finish(run))],
        usage=usage(run),
        gateway=extension(run),
    )


def headers(run: Run) -> dict[str, str]:
    reason = {} if run.reason is None else {"X-Gateway-Reason": run.reason}
    return {"X-Run-Id": run.id, "X-Gateway-Status": run.status.value, **reason}


def extension(run: Run) -> Extension:
    return Extension(
        run_id=run.id,
        status=run.status,
        reason=run.reason,
        interruption=run.interruption,
        pending_approvals=pending(run),
        turns=run.turns,
        cost_usd=run.cost_usd,
        why=why(run),
        next=what_next(run),
    )


def usage(run: Run) -> UsageOut:
    """The whole run's; of a conversation that of this turn, since its client adds them up itself."""
    used = run.usage if run.conversation is None else run.last_usage
    return usage_out(used)


def usage_out(used: Usage) -> UsageOut:
    return UsageOut(
        prompt_tokens=used.prompt_tokens,
        completion_tokens=used.completion_tokens,
        total_tokens=used.total_tokens,
        prompt_tokens_details=PromptDetails(used.cached_tokens),
        completion_tokens_details=CompletionDetails(used.reasoning_tokens),
    )


def finish(run: Run) -> Finish:
    if run.status is Status.COMPLETED:
        return cast(Finish, run.finish) if run.finish in SAID_ENDS else "stop"
    return "tool_calls" if waits_for_client(run) else "length"


def waits_for_client(run: Run) -> bool:
    return isinstance(run.interruption, ToolOutputs)


def clients_calls(run: Run) -> list[Call]:
    """The calls that the client runs and has not answered."""
    if not isinstance(run.interruption, ToolOutputs):
        return []
    return [call for call in outstanding(run) if call.id in run.interruption.call_ids]


def has_reply(run: Run) -> bool:
    """Whether the answer is what the model said, and not why there is none."""
    return run.status is Status.COMPLETED or waits_for_client(run)


def last_reply(run: Run) -> Assistant:
    """Raises StopIteration if there is none: ask only where the run has ended with one."""
    return next(message for message in reversed(run.messages) if isinstance(message, Assistant))


def message(run: Run) -> MessageOut:
    if not has_reply(run):
        return MessageOut(content=in_words(run))
    reply = last_reply(run)
    calls = [CallOut(id=wire_id(call.id), function=Function(call.tool, call.arguments)) for call in clients_calls(run)]
    return MessageOut(
        content=reply.content,
        refusal=reply.refusal,
        tool_calls=calls or UNSET,
        reasoning_content=reply.reasoning_content or UNSET,
    )


def in_words(run: Run) -> str:
    """For whoever reads the answer: a sentence that says why there is none, and one that says what to do."""
    return " ".join(filter(None, (f"No answer yet. {why(run) or ''}".strip(), next_sentence(run))))


def next_sentence(run: Run) -> str | None:
    said = what_next(run)
    return said and f"{said}."


# --- in chunks ------------------------------------------------------------------------------------------------------


def chunk(
    head: Shown,
    delta: Delta,
    *,
    finish_reason: Finish | None = None,
    gateway: Extension | ProgressExtension | UnsetType = UNSET,
) -> bytes:
    choices = [ChunkChoice(delta=delta, finish_reason=finish_reason)]
    return event(Chunk(**heading(head), choices=choices, gateway=gateway))


def heading(head: Shown) -> dict[str, Any]:
    return {"id": f"chatcmpl-{head.run_id}", "created": head.created, "model": head.model}


def event(value: object) -> bytes:
    return b"data: %b\n\n" % encode(value)


def ending(run: Run, head: Shown, *, include_usage: bool) -> Iterator[bytes]:
    """The chunks that end a stream, behind its text."""
    said = message(run)
    if said.refusal:
        yield chunk(head, Delta(refusal=said.refusal))
    for position, call in enumerate(said.tool_calls or ()):
        delta = CallDelta(index=position, id=call.id, function=call.function)
        yield chunk(head, Delta(tool_calls=[delta]))
    yield chunk(head, Delta(), finish_reason=finish(run), gateway=extension(run))
    if include_usage:
        yield event(Chunk(**heading(head), choices=[], usage=usage(run)))
    yield DONE
