"""Fields of a JSON object that anybody may have written, by their types.

What has the wrong type is named with its path. Fields that nobody asks for are ignored: a newer
program may have written them.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from sluicegate.contracts.errors import BadValue

INT_MAX: Final = (1 << 53) - 1  # what every reader of JSON agrees on

Object = dict[str, Any]


def write_object(value: Object) -> bytes:
    """An object as bytes; the same object is always the same bytes."""
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return text.encode("ascii")


def check_format(fields: Object, what: str, format_read: int) -> None:
    """Refuse what a newer program has written in a form that this one cannot know."""
    format_given = whole(fields, "format", what, least=1)
    if format_given != format_read:
        remedy = f"this program reads format {format_read}; upgrade it to read newer ones"
        raise BadValue(f"{what}.format", format_given, remedy)


def whole(fields: Object, name: str, what: str, *, least: int = 0, most: int = INT_MAX) -> int:
    """A whole number."""
    value = fields.get(name)
    if type(value) is not int or not least <= value <= most:
        raise BadValue(f"{what}.{name}", value, f"give a whole number from {least} to {most:,}")
    return value


def text(fields: Object, name: str, what: str, *, chars_max: int) -> str:
    """A text."""
    value = fields.get(name)
    if not isinstance(value, str) or len(value) > chars_max:
        raise BadValue(f"{what}.{name}", value, f"give a text of at most {chars_max:,} characters")
    return value


def like(fields: Object, name: str, what: str, shape: re.Pattern[str], remedy: str) -> str:
    """A text of a certain shape."""
    value = fields.get(name)
    if not isinstance(value, str) or shape.fullmatch(value) is None:
        raise BadValue(f"{what}.{name}", value, remedy)
    return value


def flag(fields: Object, name: str, what: str) -> bool:
    """True or false."""
    value = fields.get(name)
    if not isinstance(value, bool):
        raise BadValue(f"{what}.{name}", value, "give true or false")
    return value


def inner(fields: Object, name: str, what: str, *, fields_max: int) -> Object:
    """An object within."""
    value = fields.get(name)
    if not isinstance(value, dict):
        raise BadValue(f"{what}.{name}", value, "give an object")
    if len(value) > fields_max:
        remedy = f"give at most {fields_max:,}"
        raise BadValue(f"{what}.{name}", f"{len(value):,} fields", remedy)
    return value
