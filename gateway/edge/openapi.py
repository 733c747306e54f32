"""/openapi.json, made from the table of routes and the wire types by msgspec's schema generator."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.core.codec import encode
from gateway.edge.problems import Problem
from gateway.edge.routes import Param, Route

REF_TEMPLATE = "#/components/schemas/{name}"
JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
TEXT = {"type": "string"}
SECURITY = {"bearer": {"type": "http", "scheme": "bearer"}}


def describe(routes: list[Route], version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    types = {Problem: None} | {kind: None for route in routes for kind in types_of(route)}
    schemas, components = msgspec.json.schema_components(list(types), schema_hook=schema_of, ref_template=REF_TEMPLATE)
    refs = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = operation(route, refs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Agent gateway",
            "version": version,
            "description": "Runs agent loops, ends each in one of five named ways, and keeps the record.",
        },
        "paths": paths,
        "components": {"schemas": as_sent(components), "securitySchemes": SECURITY},
        "security": [{}, {"bearer": []}],
    }


def as_sent(schema: Any) -> Any:
    """The schema with money as the number that it is on the wire; msgspec's own encoder would send a string."""
    if isinstance(schema, list):
        return [as_sent(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "decimal":
        return {**schema, "type": "number", "format": "double"}
    return {name: as_sent(value) for name, value in schema.items()}


def types_of(route: Route) -> list[type]:
    return [*([route.body] if route.body else []), *(kind for kind in route.answers.values() if isinstance(kind, type))]


def schema_of(kind: type) -> dict[str, Any]:
    raise NotImplementedError(f"no schema for {kind}")


def operation(route: Route, refs: dict[type, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": route.about,
        "operationId": f"{route.method.lower()}{re.sub(r'[^a-z]+', '_', route.path)}".rstrip("_"),
        "parameters": [*(path_parameter(name) for name in path_names(route.path)), *map(parameter, route.params)],
        "responses": {str(status): answer(kind, refs) for status, kind in route.answers.items()},
    }
    for status in (*route.errors, 401, 403):
        described["responses"][str(status)] = {
            "description": "What was wrong and what to do.",
            "content": {PROBLEM_JSON: {"schema": refs[Problem]}},
        }
    if route.body:
        described["requestBody"] = {
            "required": route.body_required,
            "content": {JSON: {"schema": refs[route.body]}},
        }
    return described


def path_names(path: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", path)


def path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def parameter(param: Param) -> dict[str, Any]:
    return {"name": param.name, "in": param.where, "description": param.about, "schema": param.schema}


def answer(kind: Any, refs: dict[type, Any]) -> dict[str, Any]:
    if kind is None:
        return {"description": "Nothing more to send."}
    if isinstance(kind, tuple):
        return {"description": "OK", "content": {media: {"schema": {} if media == JSON else TEXT} for media in kind}}
    return {"description": "OK", "content": {JSON: {"schema": refs[kind]}}}


def serve(routes: list[Route], version: str) -> Handler:
    """A handler that answers with the document, made once at the first request."""
    document: list[bytes] = []

    async def handler(request: web.Request) -> web.Response:
        if not document:
            document.append(encode(describe(routes, version)))
        return web.Response(body=document[0], content_type="application/json")

    return handler
