"""From a request to what is sent for it, byte for byte: a pure function. What sends it is app.py."""

from collections.abc import Mapping
from hashlib import blake2b
from http import HTTPStatus
from types import MappingProxyType

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from scripted import faults, scripts, tokens, wire
from scripted.capping import capped, completion_tokens
from scripted.faults import BadBehaviour, Behaviour, Fault, Kind
from scripted.scripts import Script
from scripted.wire import Answer, ChatRequest, Counts, Refused, Reply, Transcript, Usage

BEHAVIOUR_HEADER = "X-Scripted"
_REISSUED_ID = "c1"
_RETRY_AFTER_SECONDS = 1.0
_JSON = MappingProxyType({"Content-Type": "application/json"})
_EVENTS = MappingProxyType({"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"})

# Status faults: type and code as OpenAI gives them.
_REFUSALS: Mapping[Kind, tuple[str, str | None]] = MappingProxyType(
    {
        Kind.BAD_REQUEST: ("invalid_request_error", None),
        Kind.UNAUTHORISED: ("invalid_request_error", "invalid_api_key"),
        Kind.FORBIDDEN: ("invalid_request_error", "permission_denied"),
        Kind.RATE_LIMITED: ("requests", "rate_limit_exceeded"),
        Kind.SERVER_ERROR: ("server_error", None),
        Kind.UNAVAILABLE: ("service_unavailable", None),
    }
)

_encoder = msgspec.json.Encoder()


class Delivery(Struct, frozen=True, kw_only=True):
    """What is sent, and how: `pieces` one after the other, after the waits, and then perhaps the connection drops.

    `length` is the announced length in bytes, None for a stream. A drop without pieces sends no headers either.
    """

    status: int = 200
    headers: Mapping[str, str]
    pieces: tuple[bytes, ...]
    length: int | None = None
    latency_seconds: float = 0
    stall_seconds: float = 0
    drop: bool = False

    @property
    def whole(self) -> bool:
        """Nothing about it needs more than one ordinary response."""
        return self.length is not None and not (self.drop or self.stall_seconds)


def respond(body: bytes, headers: Mapping[str, str], defaults: Behaviour, known: Mapping[str, Script]) -> Delivery:
    """The whole provider. Raises Refused for a request that gets an error."""
    request, transcript = wire.decode_request(body)
    script, by_name = script_of(request.model, known)
    behaviour = by_name.over(_by_header(headers)).over(defaults)
    fault = behaviour.fault_now(request.turn, _attempt(headers))
    if fault.kind in _REFUSALS:
        delivery = _refused(fault)
    else:
        said = capped(_with_id(scripts.reply(script, request, known), fault.kind), request.tokens_max)
        answer = Answer(_id(body), request.model, said, _usage(said, transcript), said.finish)
        delivery = _damaged(_written(_with_fault(answer, fault.kind), request), fault)
    return replace(delivery, latency_seconds=(behaviour.latency_ms or 0) / 1000)


def script_of(model: str, known: Mapping[str, Script]) -> tuple[str, Behaviour]:
    """The script that a model name means, and what the name asks of it. Raises Refused."""
    try:
        script, asked = faults.split_model(model)
    except BadBehaviour as error:
        raise Refused(400, str(error), param="model", code="invalid_behaviour") from None
    if script not in known:
        words = f"The model {script!r} does not exist. Known are: {', '.join(known)}."
        raise Refused(404, words, param="model", code="model_not_found")
    return script, asked


def _by_header(headers: Mapping[str, str]) -> Behaviour:
    try:
        return faults.parse(headers.get(BEHAVIOUR_HEADER, ""))
    except BadBehaviour as error:
        raise Refused(400, str(error), param=BEHAVIOUR_HEADER, code="invalid_behaviour") from None


def _attempt(headers: Mapping[str, str]) -> int:
    try:
        return faults.attempt_of(headers)
    except BadBehaviour as error:
        raise Refused(400, str(error), code="invalid_behaviour") from None


def _refused(fault: Fault) -> Delivery:
    type_, code = _REFUSALS[fault.kind]
    status = HTTPStatus(int(fault.kind))
    problem = wire.Problem(f"Scripted fault: {status} {status.phrase}.", type_, code=code)
    body = _encoder.encode(wire.ErrorBody(problem))
    return Delivery(status=status, headers={**_JSON, **_retry_after(fault)}, pieces=(body,), length=len(body))


def _retry_after(fault: Fault) -> dict[str, str]:
    seconds = fault.retry_after_seconds
    if seconds is None and fault.kind is Kind.RATE_LIMITED:
        seconds = _RETRY_AFTER_SECONDS
    return {} if seconds is None else {"Retry-After": f"{seconds:g}"}


def _id(body: bytes) -> str:
    """A digest of the request, so that the same request has the same reply to the byte."""
    return f"chatcmpl-{blake2b(body, digest_size=12).hexdigest()}"


def _usage(said: Reply, transcript: Transcript) -> Usage:
    if said.usage is not None:
        return _reported(said.usage)
    try:
        prompt = tokens.prompt_tokens(transcript.messages, transcript.tools)
    except tokens.Uncountable as error:
        raise Refused(400, str(error), param="messages", code="invalid_field") from None
    counts = Counts(
        prompt_tokens=prompt,
        completion_tokens=completion_tokens(said),
        reasoning_tokens=tokens.text_tokens(said.reasoning or ""),
    )
    return _reported(counts)


def _reported(counts: Counts) -> Usage:
    total = counts.prompt_tokens + counts.completion_tokens if counts.total_tokens is None else counts.total_tokens
    thought = wire.CompletionTokensDetails(counts.reasoning_tokens) if counts.reasoning_tokens else UNSET
    cached = wire.PromptTokensDetails(counts.cached_tokens)
    return Usage(counts.prompt_tokens, counts.completion_tokens, total, cached, thought)


def _plain(answer: Answer) -> Delivery:
    body = _encoder.encode(wire.completion(answer))
    return Delivery(headers=_JSON, pieces=(body,), length=len(body))


def _streamed(answer: Answer, include_usage: bool) -> Delivery:
    events = [wire.event(_encoder.encode(chunk)) for chunk in wire.chunks(answer, include_usage)]
    return Delivery(headers=_EVENTS, pieces=(*events, wire.event(b"[DONE]")))


def _written(answer: Answer, request: ChatRequest) -> Delivery:
    return _streamed(answer, request.include_usage) if request.stream else _plain(answer)


def _with_id(said: Reply, kind: Kind) -> Reply:
    if kind is not Kind.REISSUE_ID:
        return said
    return replace(said, tool_calls=tuple(replace(call, id=_REISSUED_ID) for call in said.tool_calls))


def _with_fault(answer: Answer, kind: Kind) -> Answer:
    """Faults in what is said about a reply."""
    match kind:
        case Kind.NO_USAGE:
            return replace(answer, usage=UNSET)
        case Kind.NO_FINISH:
            return replace(answer, finish=UNSET)
        case Kind.FINISH_STOP:
            return replace(answer, finish="stop")
        case Kind.NO_INDEX:
            return replace(answer, indexed=False)
        case _:
            return answer


def _damaged(whole: Delivery, fault: Fault) -> Delivery:
    """Faults in how a reply is sent."""
    match fault.kind:
        case Kind.DROP_BEFORE:
            return replace(whole, pieces=(), drop=True)
        case Kind.DROP_MIDDLE:
            return replace(whole, pieces=_first_half(whole), drop=True)
        case Kind.TRUNCATE:
            return _truncated(whole)
        case Kind.BAD_JSON:
            return _malformed(whole)
        case Kind.STALL:
            return replace(whole, stall_seconds=fault.stall_ms / 1000)
        case _:
            return whole


def _first_half(whole: Delivery) -> tuple[bytes, ...]:
    """Of a plain reply half its bytes, of a stream half its events and never the finish, even if it says nothing."""
    if whole.length is None:
        return whole.pieces[: (len(whole.pieces) - 1) // 2]
    return (whole.pieces[0][: whole.length // 2],)


def _truncated(whole: Delivery) -> Delivery:
    half = _first_half(whole)
    return replace(whole, pieces=half, length=None if whole.length is None else len(half[0]))


def _malformed(whole: Delivery) -> Delivery:
    """Half a JSON value, in the middle event of a stream or as the whole body, and everything else in order."""
    if whole.length is not None:
        return _truncated(whole)
    middle = len(whole.pieces) // 2
    line = whole.pieces[middle]
    broken = line[: len(line) // 2] + b"\n\n"
    return replace(whole, pieces=(*whole.pieces[:middle], broken, *whole.pieces[middle + 1 :]))
