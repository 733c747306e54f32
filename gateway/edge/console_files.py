"""The console's files, read once into memory. A request names one of them or nothing: no path is ever made of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from aiohttp import web
from msgspec import Struct

INDEX = "index.html"
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # the browser itself refuses to make elements out of text
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Cache-Control": "no-cache",  # kept, and asked about each time: a new gateway is never seen with an old console
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class File(Struct, frozen=True):
    content: bytes
    content_type: str
    etag: str


def console_files() -> Mapping[str, File]:
    """Every file of the console by its name below the folder, such as `modules/main.js`."""
    return dict(found(files("gateway.edge") / "console", PurePosixPath()))


def found(folder: Traversable, below: PurePosixPath) -> list[tuple[str, File]]:
    here: list[tuple[str, File]] = []
    for entry in folder.iterdir():
        name = below / entry.name
        if entry.is_dir():
            here += found(entry, name)
        elif name.suffix in CONTENT_TYPES:
            here.append((str(name), file_of(entry.read_bytes(), name.suffix)))
    return here


def file_of(content: bytes, suffix: str) -> File:
    return File(content, CONTENT_TYPES[suffix], hashlib.sha256(content).hexdigest()[:32])


def send_file(request: web.Request, file: File) -> web.Response:
    """The file, or 304 for a browser that has it."""
    headers = {**HEADERS, "ETag": f'"{file.etag}"'}
    known = request.if_none_match or ()
    if any(etag.value in (file.etag, "*") for etag in known):
        return web.Response(status=304, headers=headers)
    response = web.Response(body=file.content, headers={**headers, "Content-Type": file.content_type})
    response.enable_compression()
    return response
