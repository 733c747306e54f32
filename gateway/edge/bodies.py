"""Request bodies and parameters to typed values, with errors that name the field; and JSON responses."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from aiohttp import web

from gateway.core.codec import encode
from gateway.core.errors import BadRequest

T = TypeVar("T")

_decoders: dict[type, msgspec.json.Decoder[object]] = {}


def decode(body: bytes, kind: type[T]) -> T:
    """The body as `kind`. An empty body is an empty object. Raises BadRequest with the path of the field, and
    RecursionError for one that is nested too deeply."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(body or b"{}")  # type: ignore[return-value]
    except msgspec.ValidationError as error:
        message, param = split_path(str(error))
        raise BadRequest(
            f"{param + ': ' if param else ''}{message}.{fields_of(kind, param, message)}", param=param
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}.", code="malformed_json") from None


def fields_of(kind: type, param: str | None, message: str) -> str:
    """What there is, for whoever sent a field of the body that there is not."""
    if param is None or "." in param or "unknown field" not in message:
        return ""
    return f" The fields are: {', '.join(field.encode_name for field in msgspec.structs.fields(kind))}."


def split_path(message: str) -> tuple[str, str | None]:
    """msgspec's message and the path in it: ``Expected `int`, got `str` - at `$.limits.max_turns` ``."""
    located = re.fullmatch(r"(.*?) - at `(?:key in )?\$\.?(.*?)`", message, re.DOTALL)
    words, path = (located[1], located[2]) if located else (message, "")
    field = re.fullmatch(r"Object (?:contains unknown|missing required) field `(.*?)`", words, re.DOTALL)
    return words, ".".join(filter(None, (path, field and field[1]))) or None


def number_param(
    request: web.Request, name: str, default: float, *, least: float, most: float, whole: bool = False
) -> float:
    """A query parameter as a number within bounds. Raises BadRequest."""
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most or (whole and not value.is_integer()):
        kind = "a whole number" if whole else "a number"
        raise BadRequest(f"{name} is {text!r}: it must be {kind} from {least:g} to {most:g}.", param=name)
    return value


def flag_param(request: web.Request, name: str) -> bool:
    text = request.query.get(name, "0").lower()
    if text not in ("0", "1", "true", "false"):
        raise BadRequest(f"{name} is {text!r}: it must be 1 or 0.", param=name)
    return text in ("1", "true")


def only_params(request: web.Request, known: frozenset[str]) -> None:
    """A parameter that means nothing here is a mistake of the caller's, not something to skip."""
    for name in request.query:
        if name not in known:
            raise BadRequest(f"{name} is no parameter of {request.path}: it takes {sorted(known)}.", param=name)


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=encode(value), status=status, headers=headers, content_type="application/json")
