"""The model over HTTP: routes, streams, and errors with bodies. It listens while the weights load."""

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial

import assel
import msgspec
from aiohttp import web
from prometheus_client import exposition

from model_server import wire
from model_server.chat import Chat, Host, understand
from model_server.errors import ErrorBody, Problem, Refused
from model_server.jobs import Ended
from model_server.memory import Remembered
from model_server.metrics import Metrics
from model_server.prompt import Control, Text, takes_tools
from model_server.replies import Answer, Chunks, Origin, answer, completion, reading
from model_server.service import Service
from model_server.tool_calls import Parsed

REQUEST_BYTES_MAX = 8 * 1024 * 1024
DRAIN_SECONDS_MAX = 5  # how long replies in flight may take when the server stops
_THREAD_BYTES_MIN = 64 * 1024  # a request of this size is tokenised beside the event loop

_log = logging.getLogger(__name__)
_encoder = msgspec.json.Encoder()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Card(msgspec.Struct, frozen=True):
    """What the server says of the model it serves."""

    host: Host
    file: str
    size_bytes: int
    quantisation: str
    created: int

    @property
    def fingerprint(self) -> str:
        return f"fp_{self.quantisation.lower()}"


class Server:
    """The handlers, and what they share."""

    def __init__(self, service: Service, card: Card, metrics: Metrics) -> None:
        self._service = service
        self._card = card
        self._metrics = metrics
        self._remembered = Remembered()
        self._remembering = threading.Lock()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/chat/completions", self.chat),
            web.post("/tokenize", self.tokenize),
            web.get("/v1/models", self.models),
            web.get("/v1/models/{model:.+}", self.model),
            web.get("/healthz", self.healthz),
            web.get("/readyz", self.readyz),
            web.get("/metrics", self.metrics),
        ]

    # ── chat ──

    async def chat(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._chat(request)
        except Refused as refused:
            self._metrics.ended(_outcome(refused))
            raise
        except (asyncio.CancelledError, ConnectionError):
            self._metrics.ended("cancelled")
            raise

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        asked = wire.decode_chat(body)
        self._service.refuse_if_full()
        work = partial(self._understand, asked, self._service.next_id())
        chat = await asyncio.to_thread(work) if len(body) >= _THREAD_BYTES_MIN else work()
        if asked.stream:
            return await self._stream(request, chat, asked.include_usage)
        return _json(await self._whole(chat))

    def _understand(self, asked: wire.ChatRequest, number: int) -> Chat:
        with self._remembering:
            return understand(asked, self._card.host, number, self._service.engine.tokenise, self._remembered)

    async def _whole(self, chat: Chat) -> wire.Completion:
        async with aclosing(self._told(chat)) as told:
            async for part in told:
                if isinstance(part, _Last):
                    return completion(self._origin(), part.answer)
        raise AssertionError("a reply has an end, or raises")

    async def _stream(self, request: web.Request, chat: Chat, include_usage: bool) -> web.StreamResponse:
        chunks = Chunks(self._origin(), include_usage)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        try:
            async with aclosing(self._told(chat)) as told:
                async for part in told:
                    if not response.prepared:
                        await response.prepare(request)
                        await response.write(_event(chunks.opening()))
                    if told_now := b"".join(map(_event, _chunks(chunks, part))):
                        await response.write(told_now)
        except Refused as refused:
            if not response.prepared:
                raise
            self._metrics.ended(_outcome(refused))
            await response.write(_event(ErrorBody(refused.problem)))
        await response.write(_DONE)
        return response

    async def _told(self, chat: Chat) -> "AsyncGenerator[str | _Last, None]":
        """What may be shown, as it comes, and then the whole answer. The first part comes with the first token, also if
        nothing of it may be shown yet, so that a client knows that the reply has begun."""
        shown, begun = "", False
        read = reading(chat.reader)
        async with aclosing(self._service.run(chat.job)) as events:
            async for event in events:
                if isinstance(event, Ended):
                    yield self._conclude(chat, shown, read.end(cut_off=event.cut_off), event)
                elif (text := read.feed(event.text)) or not begun:
                    shown, begun = shown + text, True
                    yield text

    def _conclude(self, chat: Chat, shown: str, rest: Parsed, ended: Ended) -> "_Last":
        whole = answer(shown, rest, ended, len(chat.job.prompt))
        self._metrics.answered(whole)
        if not ended.by_stop_string:  # else the client was told less than was written
            with self._remembering:
                self._remembered.remember(chat.job.prompt, whole.said, ended.tokens)
        return _Last(rest.content, whole)

    def _origin(self) -> Origin:
        card = self._card
        return Origin(f"chatcmpl-{secrets.token_hex(12)}", int(time.time()), card.host.name, card.fingerprint)

    # ── the rest ──

    async def tokenize(self, request: web.Request) -> web.Response:
        asked = wire.decode_tokenize(await request.read())
        segment = Control(asked.content) if asked.parse_special else Text(asked.content)
        tokens = tuple(await asyncio.to_thread(self._service.engine.tokenise, segment))
        return _json(wire.Tokens(tokens, len(tokens)))

    async def models(self, _: web.Request) -> web.Response:
        return _json(wire.ModelList(data=(self._served(),)))

    async def model(self, request: web.Request) -> web.Response:
        if request.match_info["model"] != self._card.host.name:
            raise Refused(
                404, f"This server has one model, {self._card.host.name}.", param="model", code="model_not_found"
            )
        return _json(self._served())

    def _served(self) -> wire.ServedModel:
        card = self._card
        return wire.ServedModel(
            id=card.host.name,
            created=card.created,
            file=card.file,
            size_bytes=card.size_bytes,
            quantisation=card.quantisation,
            context_tokens=card.host.context_tokens,
            takes_tools=takes_tools(card.host.template),
        )

    async def healthz(self, _: web.Request) -> web.Response:
        return _json({"status": "ok"})

    async def readyz(self, _: web.Request) -> web.Response:
        phase = self._service.phase
        state = wire.Ready(phase, self._card.host.name, self._service.progress)
        return _json(state, 200 if phase == "ready" else 503)

    async def metrics(self, request: web.Request) -> web.Response:
        self._metrics.ready.set(self._service.phase == "ready")
        encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._metrics.registry), headers={"Content-Type": content_type})


class _Last(msgspec.Struct, frozen=True):
    """The end of a reply: what was not shown yet of its text, and all of it."""

    rest: str | None
    answer: Answer


def create_app(service: Service, card: Card, metrics: Metrics) -> web.Application:
    """The server as an application, to be served by `serving`. The service lives as long as the application."""
    app = web.Application(client_max_size=REQUEST_BYTES_MAX, middlewares=[_errors_have_bodies])
    app.add_routes(Server(service, card, metrics).routes())
    app.cleanup_ctx.append(partial(_living, service))
    return app


async def _living(service: Service, _: web.Application) -> AsyncIterator[None]:
    service.start()
    yield
    await service.close()


@asynccontextmanager
async def serving(app: web.Application, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serves, and yields the address (`http://127.0.0.1:8789`, without `/v1`). Port 0 is any free one.

    A handler is cancelled when its client goes away, and its job with it. Raises OSError if the port is taken.
    """
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=DRAIN_SECONDS_MAX)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield _address(host, runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


# ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_DONE = assel.send(assel.Event(data="[DONE]"))


def _chunks(chunks: Chunks, part: str | _Last) -> Iterable[wire.Chunk]:
    if isinstance(part, str):
        return (chunks.text(part),) if part else ()
    return chunks.ending(part.rest, part.answer)


def _event(value: object) -> bytes:
    return assel.send(assel.Event(data=_encoder.encode(value).decode()))


def _json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    body = _encoder.encode(value)
    return web.Response(status=status, headers=headers, body=body, content_type="application/json")


def _outcome(refused: Refused) -> str:
    return {429: "queue_full", 500: "failed"}.get(refused.status, "refused")


@web.middleware
async def _errors_have_bodies(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error, ours or aiohttp's, has the same body. A bug is logged, and its traceback stays here."""
    try:
        return await handler(request)
    except Refused as refused:
        retry = {} if refused.retry_seconds is None else {"Retry-After": str(refused.retry_seconds)}
        return _json(ErrorBody(refused.problem), refused.status, retry)
    except web.HTTPRequestEntityTooLarge as error:
        return _json(_problem(error.text or error.reason, "request_too_large"), 413)
    except web.RequestPayloadError:
        response = _json(_problem("The body does not have the encoding that its headers say.", "invalid_body"), 400)
        response.force_close()  # where this request ends and the next one begins cannot be known
        return response
    except web.HTTPException as error:
        words = f"{error.reason}: {request.method} {request.path}."
        return _json(_problem(words, None), error.status, _allowed(error))
    except ConnectionError:
        return web.Response(status=499)  # the client is gone, and there is nobody to tell
    except Exception:  # noqa: BLE001 - the last resort of a server: logged, and answered in the shape of an error
        _log.exception("a request failed: %s %s", request.method, request.path)
        return _json(ErrorBody(Problem("The model server failed.", "server_error")), 500)


def _problem(words: str, code: str | None) -> ErrorBody:
    return ErrorBody(Problem(words, "invalid_request_error", code=code))


def _allowed(error: web.HTTPException) -> dict[str, str]:
    return {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
