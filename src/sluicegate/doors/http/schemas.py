"""Schemas: short ways to write JSON schemas, and the shapes that every service answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

TEXT: Final[Mapping[str, object]] = {"type": "string"}
BOOL: Final[Mapping[str, object]] = {"type": "boolean"}
FREE: Final[Mapping[str, object]] = {"type": "object", "additionalProperties": True}


def text(sentence: str, **more: object) -> dict[str, object]:
    """A text, and what it is."""
    return {"type": "string", "description": sentence, **more}


def whole(least: int, sentence: str = "") -> dict[str, object]:
    """A whole number from `least` up."""
    schema: dict[str, object] = {"type": "integer", "minimum": least}
    return {**schema, "description": sentence} if sentence else schema


def fields(
    properties: Mapping[str, object], required: Sequence[str] = (), sentence: str = ""
) -> dict[str, object]:
    """An object with these fields, and perhaps others."""
    schema: dict[str, object] = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    if sentence:
        schema["description"] = sentence
    return schema


def several(of: Mapping[str, object]) -> dict[str, object]:
    """A list."""
    return {"type": "array", "items": dict(of)}


def ref(name: str) -> dict[str, object]:
    """A component of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


EVERYWHERE: Final[Mapping[str, Mapping[str, object]]] = {
    "Health": fields({"status": TEXT, "reason": TEXT}, ["status"]),
    "Ready": fields({"ready": BOOL, "reason": TEXT}, ["ready", "reason"]),
    "Document": {**FREE, "description": "This document."},
}
