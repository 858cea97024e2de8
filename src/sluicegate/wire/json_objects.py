"""The one strict reader of JSON that others write; an error names the place and the remedy.

Text is UTF-8, no object names a field twice, numbers are those that JSON has, and nesting that
Python cannot follow is refused. What strangers send is counted before it is read: objects cost a
hundred times what their bytes do. Fields of a message may not be unknown, and null is as good as
left out. Nothing here knows a message; `mesh_json` and `check_json` do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.text import shorten, text_again

VALUES_MAX: Final = 1 << 16  # strings, objects, lists and commas of one text
_DECIMAL: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)


def parse_json(
    data: bytes | str, what: str = "body", values_max: int | None = VALUES_MAX
) -> object:
    """Return the one value that the text holds; `BadValue` names `what`."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError:
        raise BadValue(what, data, "send JSON in UTF-8") from None
    if values_max is not None and len(text) > values_max:
        values = _count_values(text, values_max)
        if values > values_max:
            raise BadValue(what, f"{values:,} values", f"send at most {values_max:,}")
    try:
        value: object = _DECODER.decode(text)
    except BadValue as error:
        raise BadValue(what, error.value, error.remedy) from None
    except RecursionError:
        raise BadValue(what, text, "send JSON (nested too deeply)") from None
    except ValueError as error:
        raise BadValue(what, text, f"send JSON ({error})") from None
    return value


def parse_object(data: bytes | str, what: str = "body") -> dict[str, Any]:
    """Return the object that a text of our own holds, however large."""
    value = parse_json(data, what, None)
    if not isinstance(value, dict):
        raise BadValue(what, value, "send an object")
    return value


def _count_values(text: str, enough: int) -> int:
    """Return how many values the text has at most, or more than is `enough`."""
    bare = text.replace("\\\\", "").replace('\\"', "")
    strings = bare.count('"') // 2
    if strings > enough:
        return strings
    outside = "".join(bare.split('"')[::2])
    return strings + outside.count(",") + outside.count("[") + outside.count("{")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise BadValue("", name, "name it once in an object")
            names.add(name)
    return fields


def _no_constant(word: str) -> NoReturn:
    raise BadValue("", word, "send a number that JSON has")


def at(place: str, name: str) -> str:
    """The path of a field of the object in that place; the outermost place is empty."""
    return f"{place}.{name}" if place else name


def fields_of(value: object, place: str, names: Mapping[str, str]) -> dict[str, object]:
    """An object's fields by the names we call them; `names` are those that may be sent."""
    if not isinstance(value, dict):
        raise BadValue(place or "body", value, "send an object")
    found: dict[str, object] = {}
    for sent, field in value.items():
        name = names.get(sent)
        if name is None:
            known = ", ".join(sorted(set(names.values())))
            raise BadValue(at(place, str(sent)), field, f"send only {known}")
        if name in found:
            raise BadValue(at(place, str(sent)), field, f"send {name} once, under one of its names")
        if field is not None:
            found[name] = field
    return found


def text_of(value: object, place: str, bytes_max: int, bound: str = "text_bytes_max") -> str:
    """A string that UTF-8 can hold; `bound` is the setting's name."""
    if not isinstance(value, str):
        raise BadValue(place, value, "send a string")
    size = len(value) if value.isascii() else len(utf8_of(value, place))
    if size > bytes_max:
        raise BadValue(place, f"{size:,} bytes", f"send at most {bytes_max:,} ({bound})")
    return value


def any_text_of(value: object, place: str, bytes_max: int) -> str:
    """What a caller says of itself: any string as text; beyond the bound, a digest."""
    if not isinstance(value, str):
        raise BadValue(place, value, "send a string")
    return shorten(text_again(value), bytes_max)


def utf8_of(text: str, place: str) -> bytes:
    """JSON can name half of a character (a lone surrogate), which no file or store can hold."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadValue(place, text, "send text that UTF-8 can hold") from None


def list_of(value: object, place: str, most: int, bound: str) -> list[object]:
    """A list of at most so many; `bound` is the setting's name."""
    if not isinstance(value, list):
        raise BadValue(place, value, "send a list")
    if len(value) > most:
        raise BadValue(place, f"{len(value):,} items", f"send at most {most:,} ({bound})")
    return value


def whole_of(value: object, place: str, least: int, most: int) -> int:
    """A whole number within bounds."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise BadValue(place, value, f"send a whole number from {least:,} to {most:,}")


def loose_whole_of(value: object, place: str, least: int, most: int) -> int:
    """A whole number as protobuf's JSON has it: also "12" and 12.0."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return whole_of(int(value), place, least, most)
    if isinstance(value, float) and value.is_integer():
        return whole_of(int(value), place, least, most)
    return whole_of(value, place, least, most)


def encode_json(value: object, errors: str = "replace") -> bytes:
    """Return compact JSON; what UTF-8 cannot hold becomes question marks, if not said otherwise."""
    return _ENCODER.encode(value).encode("utf-8", errors)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"JSON has no {type(value).__name__}")


# Made once: `json.loads` and `json.dumps` make theirs in each call that is not a plain one.
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
)
