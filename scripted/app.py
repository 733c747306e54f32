"""The provider over HTTP: routes, waits, and connections that drop. What is said is in replies.py."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import msgspec
from aiohttp import web

from scripted import replies, tokens, wire
from scripted.faults import Behaviour
from scripted.replies import Delivery
from scripted.scripts import SCRIPTS, Script
from scripted.wire import Refused

REQUEST_BYTES_MAX = 32 * 1024 * 1024
DRAIN_SECONDS_MAX = 5  # how long replies in flight may take when the server stops
_THREAD_BYTES_MIN = 256 * 1024  # a request of this size is counted beside the event loop

_DEFAULTS = web.AppKey("defaults", Behaviour)
_SCRIPTS = web.AppKey("scripts", Mapping[str, Script])

_log = logging.getLogger(__name__)
_encoder = msgspec.json.Encoder()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def create_app(
    defaults: Behaviour | None = None,
    *,
    scripts: Mapping[str, Script] = SCRIPTS,
    request_bytes_max: int = REQUEST_BYTES_MAX,
) -> web.Application:
    """The provider as an application, to be served by `serving` or by a process that embeds it."""
    app = web.Application(client_max_size=request_bytes_max, middlewares=[_errors_have_bodies])
    app[_DEFAULTS] = defaults or Behaviour()
    app[_SCRIPTS] = scripts
    app.on_startup.append(_load_encoding)
    app.router.add_post("/v1/chat/completions", _chat)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/v1/models/{model}", _model)
    app.router.add_get("/healthz", _healthz)
    return app


@asynccontextmanager
async def serving(app: web.Application, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serves, and yields the address (`http://127.0.0.1:8788`, without `/v1`). Port 0 is any free one.

    A handler is cancelled when its client goes away, so that nobody waits for nothing. Raises OSError if the port is
    taken.
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


async def _load_encoding(_: web.Application) -> None:
    """At the start, so that the first reply is not slower than the others."""
    await asyncio.to_thread(tokens.encoding)


# ── handlers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _chat(request: web.Request) -> web.StreamResponse:
    body = await request.read()
    delivery = await _respond(body, request)
    if delivery.latency_seconds:
        await asyncio.sleep(delivery.latency_seconds)
    return await _deliver(request, delivery)


async def _respond(body: bytes, request: web.Request) -> Delivery:
    asked = (body, request.headers, request.app[_DEFAULTS], request.app[_SCRIPTS])
    if len(body) >= _THREAD_BYTES_MIN:
        return await asyncio.to_thread(replies.respond, *asked)
    return replies.respond(*asked)


async def _models(request: web.Request) -> web.Response:
    return _json(wire.ModelList(data=tuple(wire.Model(id=name) for name in request.app[_SCRIPTS])))


async def _model(request: web.Request) -> web.Response:
    name = request.match_info["model"]
    replies.script_of(name, request.app[_SCRIPTS])
    return _json(wire.Model(id=name))


async def _healthz(_: web.Request) -> web.Response:
    return _json({"status": "ok"})


# ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _deliver(request: web.Request, delivery: Delivery) -> web.StreamResponse:
    if delivery.whole:
        return web.Response(status=delivery.status, headers=delivery.headers, body=delivery.pieces[0])
    if delivery.drop and not delivery.pieces:
        return _hang_up(request, web.Response())
    response = web.StreamResponse(status=delivery.status, headers=delivery.headers)
    response.content_length = delivery.length
    await response.prepare(request)
    await asyncio.sleep(delivery.stall_seconds)
    with suppress(ConnectionError):  # the client is gone, and there is nobody to tell
        for piece in delivery.pieces:
            await response.write(piece)
    return _hang_up(request, response) if delivery.drop else response


def _hang_up(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Closes the connection after what was written. aiohttp then finds it closed and sends nothing more."""
    if request.transport is not None:
        request.transport.close()
    return response


def _json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    body = _encoder.encode(value)
    return web.Response(status=status, headers=headers, body=body, content_type="application/json")


@web.middleware
async def _errors_have_bodies(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error, ours or aiohttp's, has the same body. A bug is logged, and its traceback stays here."""
    try:
        return await handler(request)
    except Refused as refused:
        return _json(wire.ErrorBody(refused.problem), refused.status)
    except web.HTTPRequestEntityTooLarge as error:
        return _json(_problem(error.text or error.reason, "request_too_large"), 413)
    except web.RequestPayloadError:
        response = _json(_problem("The body does not have the encoding that its headers say.", "invalid_body"), 400)
        response.force_close()  # where this request ends and the next one begins cannot be known
        return response
    except web.HTTPException as error:
        words = f"{error.reason}: {request.method} {request.path}."
        return _json(_problem(words, None), error.status, _allowed(error))
    except Exception:  # noqa: BLE001 - the last resort of a server: logged, and answered in the shape of an error
        _log.exception("a request failed: %s %s", request.method, request.path)
        return _json(wire.ErrorBody(wire.Problem("The scripted provider failed.", "server_error")), 500)


def _problem(words: str, code: str | None) -> wire.ErrorBody:
    return wire.ErrorBody(wire.Problem(words, "invalid_request_error", code=code))


def _allowed(error: web.HTTPException) -> dict[str, str]:
    return {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
