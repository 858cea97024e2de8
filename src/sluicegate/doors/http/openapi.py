"""OpenAPI: the document of a service, written from the table of its routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sluicegate.doors.http.routes import (
    DOCUMENT,
    Parameter,
    Route,
    RouteResponse,
    RouteTable,
    Work,
    places_in,
)

VERSION: Final = "3.1.1"
PROBLEM_TYPE: Final = "application/problem+json"
Schema = Mapping[str, object]

PROBLEM_SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "Problem details (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "field": {"type": "string", "description": "What cannot be used."},
        "value": {"type": "string", "description": "What was sent there."},
        "remedy": {"type": "string", "description": "What would be right."},
        "grant": {"type": "string", "description": "What the caller would need."},
        "reason": {"type": "string"},
        "who": {"type": "string", "description": "Who may not."},
        "what": {"type": "string", "description": "What is away, or was changed meanwhile."},
        "seen": {"type": "string", "description": "What was seen of it, or is there now."},
    },
}


def document_route(work: Work, path: str = DOCUMENT) -> Route:
    """Where a service tells its document."""
    answers = {200: RouteResponse("The document.", "Document")}
    return Route("GET", path, work, "This document.", answers, open=True)


def document(
    table: RouteTable, schemas: Mapping[str, Schema], *, title: str, summary: str, version: str
) -> dict[str, object]:
    """The document, as JSON can hold it."""
    paths: dict[str, dict[str, object]] = {}
    for route in table.routes:
        paths.setdefault(route.path.replace("{+", "{"), {})[route.method.lower()] = _operation(
            route
        )
    return {
        "openapi": VERSION,
        "info": {"title": title, "summary": summary, "version": version},
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Problem": PROBLEM_SCHEMA},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"},
            },
        },
    }


def _operation(route: Route) -> dict[str, object]:
    document: dict[str, object] = {
        "operationId": route.name or getattr(route.work, "__name__", route.path),
        "summary": route.summary,
        "responses": {
            **{str(status): _response(response) for status, response in route.responses.items()},
            "default": {
                "description": "What went wrong, and what would be right.",
                "content": {PROBLEM_TYPE: {"schema": _ref("Problem")}},
            },
        },
    }
    if route.grant is not None:
        document["description"] = f"Needs the grant `{route.grant.value}`."
    if route.table_grant is not None:
        document["description"] = f"Needs the grant `{route.table_grant.value}` on the table."
    if not (route.open or route.health):
        # A token or a certificate; or neither, where nobody has a name.
        document["security"] = [{"token": []}, {"certificate": []}, {}]
    parameters = [*(_place(name) for name in places_in(route.path)), *route.parameters]
    if parameters:
        document["parameters"] = [
            {
                "name": one.name,
                "in": one.place,
                "required": one.required,
                "description": one.sentence,
                "schema": one.schema,
            }
            for one in parameters
        ]
    if route.request_schema:
        document["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _ref(route.request_schema)}},
        }
    if route.content_types:
        document["requestBody"] = {
            "required": True,
            "content": {kind: {} for kind in route.content_types},
        }
    return document


def _place(name: str) -> Parameter:
    return Parameter(name, "As the path says it.", {"type": "string"}, "path", required=True)


def _response(response: RouteResponse) -> dict[str, object]:
    if response.empty:
        return {"description": response.sentence}
    schema = _ref(response.schema) if response.schema else {"type": "string"}
    content = {response.content_type: {"schema": schema}}
    for kind in response.texts:
        content[kind] = {"schema": {"type": "string"}}
    return {"description": response.sentence, "content": content}


def _ref(name: str) -> dict[str, object]:
    return {"$ref": f"#/components/schemas/{name}"}
