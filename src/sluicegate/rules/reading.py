"""Reading: from a file's bytes to plain values, whatever their spelling.

YAML and TOML say the same; from here on nobody asks which it was. What is wrong with the text is a
`BadRules` with the line. No other exception leaves this file but `Unavailable`, for a file that
cannot be read or a package that is not there.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.rules.plain_yaml import read_yaml
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
        said = str(error)
        place = _TOML_LINE.search(said)
        line = int(place[1] or text.count("\n") + 1) if place else 0
        raise _wrong(source, f"this is not TOML: {_TOML_LINE.sub('', said)}", line) from None
    except (ValueError, RecursionError) as error:  # a number or a nest without an end
        raise _wrong(source, f"this is not TOML that can be read: {error}") from None


def _wrong(source: str, remedy: str, line: int = 0) -> BadRules:
    return BadRules(source, [Problem("", source, remedy, line)])
