"""Forms: what any service's routes read of a request besides its own body. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.http.message import JSON, HttpReply, HttpRequest, problem

FIELDS_MAX: Final = 16

_NOT_JSON: Final = problem(
    415, "Unsupported Media Type", "send it with Content-Type: application/json"
)


def not_json(request: HttpRequest) -> HttpReply | None:
    """The refusal of a body that is not said to be JSON: what a page's form could send too."""
    kind = request.header(b"content-type").partition(b";")[0].strip().lower()
    return None if kind == JSON else _NOT_JSON


def query_of(request: HttpRequest, names: Sequence[str]) -> dict[str, str]:
    """The fields of the query; each one of these names, and once."""
    return _fields_of(request, names, "utf-8")


def raw_query_of(request: HttpRequest, names: Sequence[str]) -> dict[str, bytes]:
    """The same where the values are any bytes."""
    texts = _fields_of(request, names, "latin-1")
    return {name: value.encode("latin-1") for name, value in texts.items()}


def _fields_of(request: HttpRequest, names: Sequence[str], encoding: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            request.query.decode("ascii"),
            keep_blank_values=True,
            encoding=encoding,
            errors="strict",
            max_num_fields=FIELDS_MAX,
        )
    except ValueError:
        raise BadValue("query", request.query, "write it as name=value&..., in UTF-8") from None
    fields: dict[str, str] = {}
    for name, value in pairs:
        if name not in names:
            choices = f"there is {', '.join(names)}" if names else "there is none here"
            raise BadValue("query", name, choices)
        if name in fields:
            raise BadValue(name, value, "give it once")
        fields[name] = value
    return fields


def whole_of(field: str, text: str, least: int, most: int) -> int:
    """A whole number within bounds, as a text says it."""
    if text.isascii() and text.isdigit() and len(text) <= 16 and least <= int(text) <= most:
        return int(text)
    raise BadValue(field, text, f"give a whole number from {least:,} to {most:,}")
