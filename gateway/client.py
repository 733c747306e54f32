"""A thin async client of the gateway's HTTP API, typed by the Structs of the server itself. The CLI is built on it.

    async with Gateway("http://127.0.0.1:8787") as gateway:
        run = await gateway.start("Which file mentions a timeout?", wait_seconds=30)
        print(run.status, run.output)

It knows nothing of what runs do. Every method is one call of the API; a watched run survives a broken connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Self

import aiohttp
import assel
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gateway import sse
from gateway.core.codec import encode
from gateway.core.commands import RaisedLimits, ToolOutput
from gateway.core.errors import GatewayError
from gateway.core.events import Event
from gateway.core.run import Status
from gateway.core.statistics import Report
from gateway.edge.wire import (
    Cancel,
    ChangedPolicies,
    ChangedStopRules,
    GiveVerdict,
    PostOutputs,
    Resume,
    RunBody,
    RunPage,
    StartRun,
    ToolDefinition,
)

__all__ = [
    "ChangedPolicies",
    "ChangedStopRules",
    "Gateway",
    "GatewayProblem",
    "GatewayUnreachable",
    "RaisedLimits",
    "RunBody",
    "RunPage",
    "Seen",
    "StartRun",
    "Status",
    "TextDelta",
    "ToolDefinition",
    "ToolOutput",
]

DEFAULT_URL = "http://127.0.0.1:8787"
CONNECT_SECONDS_MAX = 5.0
REPLY_SECONDS_MAX = 30.0  # on top of what the gateway was asked to wait
SILENCE_SECONDS_MAX = 60.0  # of a stream, in which the gateway sends a comment every 15 s
RECONNECT_SECONDS_MAX = 10.0
RECONNECT_PAUSE_SECONDS = 0.2

LOST = (aiohttp.ClientError, TimeoutError, OSError)
SSE = {"Accept": "text/event-stream"}


class GatewayProblem(GatewayError):
    """The gateway refused a request. `str(problem)` is its `detail`: what was wrong, and what to do.

    `body` is the whole answer as it came; None where it was no gateway's.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        title: str = "",
        code: str | None = None,
        param: str | None = None,
        body: bytes | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.code = code
        self.param = param
        self.body = body


class GatewayUnreachable(GatewayError):
    """Nothing answers at the URL, or no longer."""

    def __init__(self, url: str) -> None:
        super().__init__(f"No gateway answers at {url}: start one with `gateway serve`.")
        self.url = url


class Seen(Struct, frozen=True):
    """A recorded event of a watched run: `line` is its line of the trace, verbatim."""

    run_id: str
    seq: int
    line: str
    event: Event


class TextDelta(Struct, frozen=True, tag="text_delta", kw_only=True):
    """A piece of the reply's text while it is streamed: never recorded, and gone after a reconnection."""

    run_id: str = msgspec.field(name="runId")
    text: str


class RefusalDetails(Struct, frozen=True):
    code: str | None = None
    param: str | None = None


class Refusal(Struct, frozen=True):
    """What we read of a problem body."""

    detail: str
    title: str = ""
    error: RefusalDetails = RefusalDetails()


_run_decoder = msgspec.json.Decoder(RunBody)
_page_decoder = msgspec.json.Decoder(RunPage)
_report_decoder = msgspec.json.Decoder(Report)
_refusal_decoder = msgspec.json.Decoder(Refusal)
_sse_decoder: msgspec.json.Decoder[Event | TextDelta] = msgspec.json.Decoder(Event | TextDelta)

Opener = Callable[[], Awaitable[aiohttp.ClientResponse]]


class Gateway:
    """One gateway, over one pool of connections. Methods raise GatewayProblem and GatewayUnreachable."""

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        api_key: str | None = None,
        *,
        reconnect_seconds: float = RECONNECT_SECONDS_MAX,
    ) -> None:
        self.url = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._reconnect_seconds = reconnect_seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    # --- starting ---

    async def start(
        self, order: StartRun | str, *, wait_seconds: float = 0, idempotency_key: str | None = None
    ) -> RunBody:
        """Start a run, and return it at once, or once it has stopped or the time is up."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return await self._run("POST", "/v1/runs", order_of(order), wait_seconds=wait_seconds, headers=headers)

    def stream(self, order: StartRun | str) -> AsyncGenerator[Seen | TextDelta, None]:
        """Start a run and watch it until it stops, with the text of its replies as it comes."""
        body = encode(replace(order_of(order), stream=True))
        return self._watch(Place(), partial(self._open, "POST", "/v1/runs", body=body, headers=SSE), follow=False)

    # --- looking ---

    async def get(self, run_id: str, *, wait_seconds: float = 0) -> RunBody:
        """A run as it is, or once it has stopped or the time is up."""
        return await self._run("GET", f"/v1/runs/{run_id}", wait_seconds=wait_seconds)

    async def runs(
        self,
        *,
        status: Status | None = None,
        agent: str | None = None,
        text: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> RunPage:
        """One page of the list, newest first; with `text` only runs in whose entry all its words occur."""
        asked = {"status": status, "agent": agent, "text": text, "limit": limit, "cursor": cursor}
        params = {name: str(value) for name, value in asked.items() if value is not None}
        return self._decoded(_page_decoder, await self.request("GET", "/v1/runs", params=params))

    async def stats(self, days: int = 30) -> Report:
        """Figures over the runs of so many days."""
        return self._decoded(_report_decoder, await self.request("GET", "/v1/stats", params={"days": str(days)}))

    def events(self, run_id: str, *, after: int = 0, follow: bool = False) -> AsyncGenerator[Seen | TextDelta, None]:
        """The record above `after`, and then what happens, until the run stops; with `follow`, for ever."""
        place = Place(run_id, after)
        return self._watch(place, partial(self._open_at, place, follow=follow), follow=follow)

    # --- changing ---

    async def approve(
        self, run_id: str, call_id: str, *, args_hash: str | None = None, wait_seconds: float = 0
    ) -> RunBody:
        return await self._do(run_id, "approve", GiveVerdict(call_id=call_id, args_hash=args_hash), wait_seconds)

    async def reject(
        self,
        run_id: str,
        call_id: str,
        reason: str | None = None,
        *,
        args_hash: str | None = None,
        wait_seconds: float = 0,
    ) -> RunBody:
        """Refuse a call. The model reads the reason."""
        verdict = GiveVerdict(call_id=call_id, reason=reason, args_hash=args_hash)
        return await self._do(run_id, "reject", verdict, wait_seconds)

    async def resume(self, run_id: str, limits: RaisedLimits | None = None, *, wait_seconds: float = 0) -> RunBody:
        """Go on with a run that a limit, a cancellation or the provider stopped."""
        return await self._do(run_id, "resume", Resume(limits=limits or RaisedLimits()), wait_seconds)

    async def cancel(self, run_id: str, reason: str = "cancelled by the client") -> RunBody:
        """Stop a run now, whatever it does or waits for."""
        return await self._do(run_id, "cancel", Cancel(reason=reason))

    async def tool_outputs(self, run_id: str, outputs: Sequence[ToolOutput], *, wait_seconds: float = 0) -> RunBody:
        """Post what came back from calls that the client ran, or settle one in doubt."""
        return await self._do(run_id, "tool_outputs", PostOutputs(outputs=list(outputs)), wait_seconds)

    # --- the wire ---

    async def _do(self, run_id: str, verb: str, body: Struct, wait_seconds: float = 0) -> RunBody:
        return await self._run("POST", f"/v1/runs/{run_id}/{verb}", body, wait_seconds=wait_seconds)

    async def _run(
        self,
        method: str,
        path: str,
        body: Struct | None = None,
        *,
        wait_seconds: float,
        headers: Mapping[str, str] | None = None,
    ) -> RunBody:
        params = {"wait": f"{wait_seconds:g}"} if wait_seconds else {}
        sent = None if body is None else encode(body)
        seconds_max = REPLY_SECONDS_MAX + wait_seconds
        reply = await self.request(method, path, body=sent, params=params, headers=headers, seconds_max=seconds_max)
        return self._decoded(_run_decoder, reply)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        seconds_max: float = REPLY_SECONDS_MAX,
    ) -> bytes:
        """Any call of the API, and the body of its answer as it came."""
        timeout = aiohttp.ClientTimeout(total=seconds_max, sock_connect=CONNECT_SECONDS_MAX)
        try:
            response = await self._open(method, path, body=body, params=params, headers=headers, timeout=timeout)
            async with response:
                return await response.read()
        except LOST as error:
            raise GatewayUnreachable(self.url) from error

    async def _open(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> aiohttp.ClientResponse:
        """A response that is none of a problem. Raises what aiohttp raises where there is none at all."""
        if self._session is None:
            raise RuntimeError("use the client as `async with Gateway(...) as gateway`")
        json = {"Content-Type": "application/json"} if body is not None else {}
        response = await self._session.request(
            method,
            self.url + path,
            data=body,
            params=params,
            allow_redirects=False,
            headers={**json, **(headers or {})},
            timeout=timeout or aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS_MAX, sock_read=SILENCE_SECONDS_MAX),
        )
        if response.status >= 400:
            async with response:
                raise self._refused(response.status, await response.read())
        return response

    def _refused(self, status: int, body: bytes) -> GatewayProblem:
        try:
            said = _refusal_decoder.decode(body)
        except msgspec.MsgspecError:
            return self._not_a_gateway(status)
        error = said.error
        return GatewayProblem(status, said.detail, title=said.title, code=error.code, param=error.param, body=body)

    def _not_a_gateway(self, status: int) -> GatewayProblem:
        words = f"What answers at {self.url} is no gateway: its reply ({status}) cannot be read."
        return GatewayProblem(status, words, code="not_a_gateway")

    def _decoded(self, decoder: msgspec.json.Decoder[Any], body: bytes | str) -> Any:
        try:
            return decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise self._not_a_gateway(200) from error

    # --- watching ---

    async def _open_at(self, place: Place, *, follow: bool) -> aiohttp.ClientResponse:
        headers = {**SSE, "Last-Event-ID": str(place.seq)}
        params = {"follow": "1"} if follow else {}
        return await self._open("GET", f"/v1/runs/{place.run_id}/events", params=params, headers=headers)

    async def _watch(self, place: Place, opener: Opener, *, follow: bool) -> AsyncGenerator[Seen | TextDelta, None]:
        """Events in order, each once: a connection that breaks is taken up again behind the last event seen."""
        patience = Patience(self._reconnect_seconds)
        while True:
            lost: Exception | None = None
            try:
                async with await opener() as response:
                    place.connected = True
                    place.run_id = response.headers.get("X-Run-Id", place.run_id)
                    async with aclosing(assel.aparse(response.content.iter_any(), sse.parser())) as frames:
                        async for frame in frames:
                            patience.renew()
                            yield self._noted(place, frame)
                if response.status == 204 or (place.stopped and not follow):
                    return
            except LOST as error:
                lost = error
            if not place.connected or patience.is_over():
                raise GatewayUnreachable(self.url) from lost
            await asyncio.sleep(RECONNECT_PAUSE_SECONDS)
            opener = partial(self._open_at, place, follow=follow)

    def _noted(self, place: Place, frame: assel.Event) -> Seen | TextDelta:
        event = self._decoded(_sse_decoder, frame.data)
        if isinstance(event, TextDelta):
            return event
        place.seq = int(frame.id or place.seq)
        place.stopped = frame.event == "run_stopped"
        return Seen(place.run_id, place.seq, frame.data, event)


class Place(Struct):
    """How far a run was watched."""

    run_id: str = ""
    seq: int = 0
    stopped: bool = False
    connected: bool = False


class Patience:
    """How long a lost connection is tried again, counted from its loss."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lost_at: float | None = None

    def renew(self) -> None:
        self._lost_at = None

    def is_over(self) -> bool:
        if self._lost_at is None:
            self._lost_at = time.monotonic()
        return time.monotonic() - self._lost_at >= self._seconds


def order_of(order: StartRun | str) -> StartRun:
    return StartRun(input=order) if isinstance(order, str) else order
