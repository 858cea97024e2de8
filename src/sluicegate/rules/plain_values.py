"""Reading: from a file's bytes to plain values, whatever their spelling.

YAML and TOML say the same; from here on nobody asks which it was. What is wrong with the text is a
`BadRules` with the line. No other exception leaves this file but `Unavailable`, for a file that
cannot be read or a package that is not there.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.rules.problems import BadRules, FieldPath, Problem

FILE_BYTES_MAX: Final = 1 << 20

_FORMS: Final = {".yaml": "yaml", ".yml": "yaml", ".toml": "toml"}
_TOML_LINE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)")


class Read(NamedTuple):
    """Plain values, and the line of each field where the form tells."""

    value: object
    lines: dict[FieldPath, int]


def read_bytes(path: str | os.PathLike[str], bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """What a file holds, up to a bound; more is an error and not read."""
    try:
        with open(path, "rb") as file:
            data = file.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Unavailable(f"the rules file {os.fspath(path)}", words) from None
    if len(data) > bytes_max:
        remedy = f"it is larger than {bytes_max:,} bytes; make it smaller, or raise bytes_max"
        raise _wrong(os.fspath(path), remedy)
    return data


def form_of(path: str | os.PathLike[str]) -> str:
    """The form that a file's name says: yaml or toml."""
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMS:
        raise BadValue("path", os.fspath(path), f"name it with {', '.join(_FORMS)} at the end")
    return _FORMS[suffix]


def read_text(data: bytes | str, *, form: str, source: str) -> Read:
    """The plain values that a text of this form says."""
    if form not in _FORMS.values():
        raise BadValue("form", form, "give yaml or toml")
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _wrong(source, "this is not UTF-8; save it as UTF-8", line) from None
    return Read(*read_yaml(text, source)) if form == "yaml" else _read_toml(text, source)


def _read_toml(text: str, source: str) -> Read:
    try:
        return Read(tomllib.loads(text), {})
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place = _TOML_LINE.search(message)
        line = int(place[1] or text.count("\n") + 1) if place else 0
        raise _wrong(source, f"this is not TOML: {_TOML_LINE.sub('', message)}", line) from None
    except (ValueError, RecursionError) as error:  # a number or a nest without an end
        raise _wrong(source, f"this is not TOML that can be read: {error}") from None


def _wrong(source: str, remedy: str, line: int = 0) -> BadRules:
    return BadRules(source, [Problem("", source, remedy, line)])


if TYPE_CHECKING:
    import yaml

DEPTH_MAX: Final = 16
VALUES_MAX: Final = 100_000

_INT: Final = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT: Final = re.compile(r"[-+]?([0-9]{1,18}\.[0-9]{1,18})(e[-+]?[0-9]{1,2})?", re.IGNORECASE)
_WORDS: Final[dict[str, bool | None]] = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
    "null": None,
    "~": None,
    "": None,
}
_TEXT_TAGS: Final = frozenset({"!", "tag:yaml.org,2002:str"})
_MERGE: Final = "<<"


class _Anchored(NamedTuple):
    """What an alias stands for, and how many values that is."""

    value: object
    values: int


def read_yaml(text: str, source: str) -> tuple[object, dict[FieldPath, int]]:
    """The plain value that a text says, and the lines of its fields."""
    try:
        import yaml  # noqa: PLC0415 - only who writes YAML needs it
    except ModuleNotFoundError:
        cause = (
            f"{source} is YAML, and PyYAML is not installed; pip install '.[rules]' in the checkout"
        )
        raise Unavailable("YAML", f"{cause}, or write the file as TOML") from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        reader = _Reader(yaml, yaml.parse(text, Loader=loader), source)
        return reader.document(), reader.lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        line = 0 if mark is None else mark.line + 1
        hint = _hint(text, line)
        raise _wrong(source, f"this is not YAML: {message}{hint}", line) from None
    except yaml.YAMLError as error:  # a character that no YAML may hold
        raise _wrong(source, f"this is not YAML: {' '.join(str(error).split())}") from None


@final
class _Reader:
    """Turns events into values."""

    def __init__(self, yaml: Any, events: Iterator[yaml.Event], source: str) -> None:
        self._yaml = yaml
        self._events = events
        self._source = source
        self._anchors: dict[str, _Anchored] = {}
        self._values = 0
        self.lines: dict[FieldPath, int] = {}

    def document(self) -> object:
        """The value of the one document there may be."""
        yaml, value, documents = self._yaml, None, 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._wrong(event, "keep to one document; take out the second '---'")
            elif isinstance(event, yaml.NodeEvent):
                value = self._value(event, ())
        return value

    def _value(self, event: Any, at: FieldPath) -> object:
        yaml = self._yaml
        self._count(event, 1)
        if isinstance(event, yaml.AliasEvent):
            anchored = self._anchors.get(event.anchor)
            if anchored is None:
                raise self._wrong(event, f"nothing before it is marked &{event.anchor}")
            self._count(event, anchored.values)
            return anchored.value
        if len(at) >= DEPTH_MAX:
            raise self._wrong(event, f"it is nested deeper than {DEPTH_MAX}")
        before = self._values
        value: object
        if isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(event, at)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._refuse_tag(event)
            value = [self._value(item, (*at, place)) for place, item in enumerate(self._inside())]
        else:
            value = self._scalar(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, self._values - before + 1)
        return value

    def _mapping(self, event: Any, at: FieldPath) -> dict[str, object]:
        self._refuse_tag(event)
        own: dict[str, object] = {}
        merged: dict[str, object] = {}
        for key in self._inside():
            if not isinstance(key, self._yaml.ScalarEvent):
                raise self._wrong(key, "a field's name is a text")
            name = key.value
            value = self._value(next(self._events), (*at, name))
            if name == _MERGE and key.implicit[0]:
                for part in reversed(value if isinstance(value, list) else [value]):
                    if not isinstance(part, dict):
                        raise self._wrong(key, "'<<' merges mappings, as in '<<: *base'")
                    merged.update(part)
                continue
            if name in own:
                raise self._wrong(key, f"{name!r} stands here twice; keep one of them")
            own[name] = value
            self.lines[(*at, name)] = key.start_mark.line + 1
        # What is written out goes before what is merged, and in the order of the file.
        return {**own, **{name: merged[name] for name in merged if name not in own}}

    def _inside(self) -> Iterator[Any]:
        """The events up to the end of the list or mapping that has just begun."""
        for event in self._events:
            if isinstance(event, self._yaml.CollectionEndEvent):
                return
            yield event

    def _scalar(self, event: Any) -> object:
        value: str = event.value
        if event.tag is not None:
            if event.tag not in _TEXT_TAGS:
                raise self._wrong(event, "tags are not used here; take out the '!'")
            return value
        if not event.implicit[0]:  # quoted, or a block of text
            return value
        if value in _WORDS:
            return _WORDS[value]
        if _INT.fullmatch(value):
            return int(value)
        if _FLOAT.fullmatch(value):
            return float(value)
        return value

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None and event.tag != "!":
            raise self._wrong(event, "tags are not used here; take out the '!'")

    def _count(self, event: Any, values: int) -> None:
        self._values += values
        if self._values > VALUES_MAX:
            remedy = "write it as JSON, which has no such bound, or as several files"
            raise self._wrong(event, f"it unfolds to more than {VALUES_MAX:,} values; {remedy}")

    def _wrong(self, event: Any, remedy: str) -> BadRules:
        return _wrong(self._source, remedy, event.start_mark.line + 1)


def _hint(text: str, line: int) -> str:
    """What people stumble over most, if this line looks like it."""
    lines = text.splitlines()
    if 0 < line <= len(lines):
        if "/{" in lines[line - 1]:
            return "; put a path with {braces} in quotes"
        if "\t" in lines[line - 1]:
            return "; indent with spaces, not tabs"
    return ""
