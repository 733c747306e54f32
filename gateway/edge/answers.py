"""Idempotency-Key: the same request with the same key is carried out once and answered again with the same bytes
(after the IETF httpapi draft `idempotency-key-header`)."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.core.errors import BadRequest, CannotRun, WrongState
from gateway.core.ports import Answers, Claim, Key

KEY_LENGTH_MAX = 255
REPLAYED = {"Idempotent-Replayed": "true"}

StartOrJoin = Callable[[Key | None, str | None], Awaitable[web.Response]]
"""Carries the request out under a new key, or goes on with the run that the key stands for already."""


def key_of(request: web.Request, body: bytes) -> Key | None:
    """The request's key, with a fingerprint of what it asks for. Raises BadRequest for an unusable key."""
    text = request.headers.get("Idempotency-Key")
    if text is None:
        return None
    if not 0 < len(text) <= KEY_LENGTH_MAX or not text.isprintable():
        raise BadRequest(
            f"Idempotency-Key must have 1 to {KEY_LENGTH_MAX} printable characters.", param="Idempotency-Key"
        )
    fingerprint = hashlib.sha256(f"{request.method} {request.path_qs}\n".encode() + body).hexdigest()
    return Key(text, fingerprint)


def headers_of(run_id: str) -> dict[str, str]:
    """Where the run is."""
    return {"Location": f"/v1/runs/{run_id}", "X-Run-Id": run_id}


class IdempotentAnswers:
    """Remembers answers by key. Requests in flight are known to this process alone, and so end with it."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._in_flight: set[str] = set()

    async def claimed(self, key: Key) -> Claim | None:
        """What the key stands for. Raises CannotRun if it came with another request before."""
        claim = await self._answers.claimed(key.key)
        if claim is not None and claim.fingerprint != key.fingerprint:
            raise CannotRun(
                "this Idempotency-Key came with another request before: use a new one.",
                param="Idempotency-Key",
                code="idempotency_key_reused",
            )
        return claim

    def answer(self, key: Key | None, carry_out: StartOrJoin) -> Awaitable[web.Response]:
        return carry_out(None, None) if key is None else self._answer_once(key, carry_out)

    async def _answer_once(self, key: Key, carry_out: StartOrJoin) -> web.Response:
        if key.key in self._in_flight:
            raise WrongState(
                "the first request with this Idempotency-Key is still being answered.",
                code="idempotency_key_in_flight",
                retry_after_seconds=1.0,
            )
        self._in_flight.add(key.key)
        try:
            return await self._answer(key, carry_out)
        finally:
            self._in_flight.discard(key.key)

    async def _answer(self, key: Key, carry_out: StartOrJoin) -> web.Response:
        claim = await self.claimed(key)
        if claim is not None and claim.status is not None:
            headers = {**REPLAYED, **headers_of(claim.run_id)}
            return web.Response(body=claim.body, status=claim.status, headers=headers, content_type="application/json")
        response = await carry_out(key, claim and claim.run_id)
        body = response.body
        if response.status == 201 and isinstance(body, bytes):
            await self._answers.keep(key.key, response.status, body)
        return response
