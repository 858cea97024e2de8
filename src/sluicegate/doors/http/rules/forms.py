"""Forms: how the arguments of an operation are read from a request, and their schemas. Pure.

What an argument is, and where it is sent, is said by its row in `contracts.rule_admin`; here is one
reader for each kind. Shape and size are checked; whether it can be done is for the admin to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule_admin import (
    BODY,
    CHANGES,
    CHOICE,
    COUNT,
    FLAG,
    NAME,
    OPERATIONS,
    PATH,
    QUERY,
    REQUIRED,
    REVISION,
    SECONDS,
    SHARE,
    TEXT,
    VERSION_MAX,
    WHOLE,
    Argument,
    Operation,
)
from sluicegate.doors.http.fields import query_of, whole_of
from sluicegate.doors.http.message import HttpRequest
from sluicegate.doors.http.routes import Parameter
from sluicegate.doors.http.rules.settings import RulesHttpSettings
from sluicegate.doors.http.schemas import fields, whole
from sluicegate.wire import json_objects

REPORT_JSON: Final = "json"
FORM: Final = "form"  # how a report is to be written

_SECONDS: Final = re.compile(r"[0-9]{1,8}(\.[0-9]{1,6})?", re.ASCII)


def arguments_of(
    operation: Operation,
    request: HttpRequest,
    path_parts: Mapping[str, str],
    body: bytes,
    bounds: RulesHttpSettings,
) -> dict[str, Any]:
    """The arguments of a call; `path_parts` are those of its parts that have names."""
    names = [argument.wire for argument in operation.in_place(QUERY)]
    query = query_of(request, [*names, FORM] if operation.result == "Report" else names)
    fields: dict[str, Mapping[str, object]] = {PATH: path_parts, QUERY: query}
    if operation.changes:
        fields[BODY] = _fields(body, *(argument.wire for argument in operation.in_place(BODY)))
    return {
        argument.name: _value(argument, fields[argument.place].get(argument.wire), bounds)
        for argument in operation.arguments
    }


def report_form_of(request: HttpRequest, forms: tuple[str, ...]) -> str:
    """`?form=`: how the report is to be written."""
    form = query_of(request, (FORM,)).get(FORM, REPORT_JSON)
    if form not in forms:
        raise BadValue(FORM, form, f"there is {', '.join(forms)}")
    return form


# Schemas.


def request_schema(operation: Operation) -> str:
    """The component that describes a change's body."""
    if not operation.in_place(BODY):
        return "Nothing"
    return "".join(part.title() for part in operation.name.split("_"))


def request_schemas() -> dict[str, Mapping[str, object]]:
    """The components of all bodies."""
    schemas: dict[str, Mapping[str, object]] = {
        "Nothing": {"type": "object", "additionalProperties": False}
    }
    for operation in OPERATIONS.values():
        arguments = operation.in_place(BODY)
        if arguments:
            schemas[request_schema(operation)] = fields(
                {one.wire: _described(one) for one in arguments},
                [one.wire for one in arguments if one.default is REQUIRED],
            )
    return schemas


def parameters_of(operation: Operation) -> list[Parameter]:
    """The query of an operation."""
    return [
        Parameter(one.wire, one.sentence, _schema(one), required=one.default is REQUIRED)
        for one in operation.in_place(QUERY)
    ]


def _described(argument: Argument) -> dict[str, object]:
    unit = " In parts of 10,000." if argument.kind == SHARE else ""
    return {**_schema(argument), "description": argument.sentence + unit}


def _schema(argument: Argument) -> dict[str, object]:
    kind, default = argument.kind, argument.default
    schema: dict[str, object] = {"type": "string"}
    if kind in (WHOLE, SHARE, COUNT):
        schema = whole(argument.least)
        if kind != COUNT and argument.most != VERSION_MAX:
            schema["maximum"] = argument.most
    elif kind == SECONDS:
        schema = {"type": "number"}
    elif kind == FLAG:
        schema = {"type": "boolean"}
    elif kind == CHOICE:
        schema["enum"] = list(argument.choices)
    elif kind == CHANGES:
        schema = {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"type": ["string", "null"]},
        }
    if default not in (REQUIRED, None, "") and kind != COUNT:
        schema["default"] = default
    return schema


# Readers of the kinds.


def _value(argument: Argument, value: object, bounds: RulesHttpSettings) -> object:
    if value is None and argument.default is not REQUIRED:
        if argument.kind == SECONDS:
            return bounds.wait_s_max
        if argument.kind == COUNT:
            return min(cast("int", argument.default), bounds.count_max)
        return argument.default
    return _READERS[argument.kind](argument, value, bounds)


def _whole(argument: Argument, value: object, bounds: RulesHttpSettings) -> int:
    most = bounds.count_max if argument.kind == COUNT else argument.most
    if argument.place == BODY:
        return json_objects.whole_of(value, argument.wire, argument.least, most)
    return whole_of(argument.wire, str(value or ""), argument.least, most)


def _seconds(argument: Argument, value: object, bounds: RulesHttpSettings) -> float:
    """Seconds; longer than a response may take is cut to that."""
    if not _SECONDS.fullmatch(str(value)):
        raise BadValue(argument.wire, value, "give seconds, as 5 or 0.5")
    return min(float(str(value)), bounds.wait_s_max)


def _choice(argument: Argument, value: object, _bounds: RulesHttpSettings) -> str:
    if value != argument.default and value not in argument.choices:
        remedy = f"give one of {', '.join(argument.choices)}, or leave it out"
        raise BadValue(argument.wire, value, remedy)
    return str(value)


def _flag(argument: Argument, value: object, _bounds: RulesHttpSettings) -> bool:
    if not isinstance(value, bool):
        raise BadValue(argument.wire, value, "give true or false")
    return value


def _text(argument: Argument, value: object, bounds: RulesHttpSettings) -> str:
    value = "" if value is None and argument.kind == TEXT else value
    return _bounded(value, argument.wire, argument.bound, bounds)


def _bounded(value: object, place: str, bound: str, bounds: RulesHttpSettings) -> str:
    most: int = getattr(bounds, bound)
    return json_objects.text_of(value, place, most, f"rules.{bound}")


def _revision(argument: Argument, value: object, bounds: RulesHttpSettings) -> str:
    field = argument.wire
    if not isinstance(value, str) or not value:
        remedy = "give live, the number of a release, or the id of a commit or a proposal"
        raise BadValue(field, value, remedy)
    if len(value) > bounds.revision_chars_max or not value.isprintable():
        most = f"{bounds.revision_chars_max:,} characters (rules.revision_chars_max)"
        raise BadValue(field, value, f"give at most {most}, all of them printable")
    return value


def _changes(argument: Argument, value: object, bounds: RulesHttpSettings) -> dict[str, str | None]:
    field = argument.wire
    if not isinstance(value, dict) or not value:
        raise BadValue(field, value, "send an object of names and texts; null deletes a file")
    if len(value) > bounds.changes_max:
        remedy = f"send at most {bounds.changes_max:,} at once (rules.changes_max)"
        raise BadValue(field, f"{len(value):,} files", remedy)
    changes: dict[str, str | None] = {}
    for name, text in value.items():
        if not name:
            raise BadValue(field, name, "give each file a name")
        _bounded(name, field, "name_bytes_max", bounds)
        place = f"{field}[{name}]"
        changes[name] = None if text is None else _bounded(text, place, "text_bytes_max", bounds)
    return changes


_READERS: Final[Mapping[str, Callable[[Argument, object, RulesHttpSettings], object]]] = {
    REVISION: _revision,
    NAME: _text,
    TEXT: _text,
    WHOLE: _whole,
    SHARE: _whole,
    COUNT: _whole,
    CHOICE: _choice,
    FLAG: _flag,
    SECONDS: _seconds,
    CHANGES: _changes,
}


def _fields(body: bytes, *names: str) -> dict[str, object]:
    value = json_objects.parse_json(body) if body.strip() else {}
    if not names and value not in ({}, None):
        raise BadValue("body", value, "send an empty object: {}")
    return json_objects.fields_of(
        {} if value is None else value, "", {name: name for name in names}
    )
