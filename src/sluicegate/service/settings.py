"""Settings: one table of fields, read from flags, the environment and a file, in that order.

An app says once what can be set: a name, how its text becomes a value, a default and a sentence.
From that come its flags (`--grace-s`), its variables (`SLUICEGATE_LIMITER_GRACE_S`), the names in
its file (`grace_s`), and what `--print-config` shows, with where each value comes from. A wrong
text is an error that names the place it was written in.

Nothing here knows what any setting means.
"""

from __future__ import annotations

import os
import tomllib
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue

FILE_BYTES_MAX: Final = 1_000_000
_SECRET_SHOWN: Final = "(set, not shown)"

# The text of a setting and the place it was written in, to its value.
Read = Callable[[str, str], Any]


class Field(NamedTuple):
    """One setting. With `several` it may be said again, and its value is a tuple."""

    name: str
    read: Read
    default: str
    help: str
    metavar: str = "VALUE"
    several: bool = False
    secret: bool = False


@final
class Effective:
    """What every field came to be, and from where."""

    __slots__ = ("fields", "sources", "texts", "values")

    def __init__(
        self,
        fields: Sequence[Field],
        values: Mapping[str, Any],
        texts: Mapping[str, tuple[str, ...]],
        sources: Mapping[str, str],
    ) -> None:
        self.fields = fields
        self.values = values
        self.texts = texts
        self.sources = sources

    def lines(self) -> list[str]:
        """A settings file that says the same, with the source of each value behind it."""
        said = [(field, self._shown(field)) for field in self.fields]
        width = max(len(f"{field.name} = {shown}") for field, shown in said)
        return [
            f"{f'{field.name} = {shown}':<{min(width, 60)}}  # {self.sources[field.name]}"
            for field, shown in said
        ]

    def _shown(self, field: Field) -> str:
        texts = self.texts[field.name]
        if field.secret:
            texts = tuple(text if text == field.default else _hidden(text) for text in texts)
        if field.several:
            return "[" + ", ".join(map(_quoted, texts)) + "]"
        return _quoted(texts[0])


def add_flags(parser: ArgumentParser, fields: Sequence[Field]) -> None:
    """A flag for each field, and `--config` and `--print-config`."""
    for field in fields:
        default = f" (default {field.default})" if field.default else ""
        more = "; may be said again" if field.several else ""
        # A switch may be said alone: `--insecure` is `--insecure on`.
        alone: dict[str, Any] = {"nargs": "?", "const": "on"} if field.read is yes_or_no else {}
        parser.add_argument(
            _flag(field),
            dest=field.name,
            metavar=field.metavar,
            action="append" if field.several else "store",
            default=None,
            **alone,
            help=f"{field.help}{more}{default}".replace("%", "%%"),
        )
    parser.add_argument(
        "--config", metavar="FILE", help="a TOML file of settings, named as the flags are with _"
    )
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="show every setting as it is in effect, and where it comes from, and end",
    )


def gather(
    fields: Sequence[Field],
    arguments: Namespace,
    variables_prefix: str,
    environment: Mapping[str, str] | None = None,
) -> Effective:
    """The value of every field: the flag, else the variable, else the file, else the default."""
    environment = os.environ if environment is None else environment
    path = arguments.config or environment.get(f"{variables_prefix}CONFIG", "")
    filed = _read_file(path, fields) if path else {}
    values: dict[str, Any] = {}
    texts: dict[str, tuple[str, ...]] = {}
    sources: dict[str, str] = {}
    for field in fields:
        variable = variables_prefix + field.name.upper()
        flagged = getattr(arguments, field.name)
        if flagged is not None:
            said = tuple(flagged) if field.several else (flagged,)
            where, source = _flag(field), "flag"
        elif variable in environment:
            text = environment[variable]
            said = tuple(part for part in text.split() if part) if field.several else (text,)
            where, source = variable, f"variable {variable}"
        elif field.name in filed:
            said, where, source = filed[field.name], f"{path}: {field.name}", f"file {path}"
        else:
            said = (field.default,) if field.default or not field.several else ()
            where, source = _flag(field), "default"
        read = tuple(field.read(text, where) for text in said)
        values[field.name] = read if field.several else read[0]
        texts[field.name] = said
        sources[field.name] = source
    _refuse_unknown(fields, environment, variables_prefix)
    return Effective(fields, values, texts, sources)


# Readers that most apps want.


def text(said: str, where: str) -> str:
    """Any text."""
    return said


def whole(least: int, most: int) -> Read:
    """A whole number within bounds; `1_000` and `1,000` are one thousand."""

    def read(said: str, where: str) -> int:
        try:
            value = int(said.replace(",", "").replace("_", ""))
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise BadValue(where, said, f"give a whole number from {least:,} to {most:,}")
        return value

    return read


def seconds(least: float, most: float) -> Read:
    """Seconds within bounds."""

    def read(said: str, where: str) -> float:
        try:
            value = float(said)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise BadValue(where, said, f"give seconds from {least:g} to {most:g}")
        return value

    return read


def one_of(*words: str) -> Read:
    """One of some words."""

    def read(said: str, where: str) -> str:
        if said not in words:
            raise BadValue(where, said, f"give one of {', '.join(words)}")
        return said

    return read


def yes_or_no(said: str, where: str) -> bool:
    """on or off, in the usual spellings."""
    word = said.strip().lower()
    if word in {"on", "yes", "true", "1"}:
        return True
    if word in {"off", "no", "false", "0"}:
        return False
    raise BadValue(where, said, "give on or off")


def _flag(field: Field) -> str:
    return "--" + field.name.replace("_", "-")


def _read_file(path: str, fields: Sequence[Field]) -> dict[str, tuple[str, ...]]:
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadValue("--config", path, f"it cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise BadValue("--config", path, f"a settings file has at most {FILE_BYTES_MAX:,} bytes")
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadValue("--config", path, f"it is not TOML: {error}") from None
    known = {field.name: field for field in fields}
    found: dict[str, tuple[str, ...]] = {}
    for name, value in table.items():
        if name not in known:
            raise BadValue(f"{path}: {name}", value, f"there are {', '.join(known)}")
        found[name] = _texts(value, known[name], f"{path}: {name}")
    return found


def _texts(value: object, field: Field, where: str) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    if len(values) != 1 and not field.several:
        raise BadValue(where, value, "give one value")
    texts: list[str] = []
    for one in values:
        if isinstance(one, bool):
            texts.append("on" if one else "off")
        elif isinstance(one, str | int | float):
            texts.append(str(one))
        else:
            raise BadValue(where, one, "give a text or a number")
    return tuple(texts)


def _refuse_unknown(
    fields: Sequence[Field], environment: Mapping[str, str], variables_prefix: str
) -> None:
    """A misspelt variable would be a setting that silently does nothing."""
    known = {variables_prefix + field.name.upper() for field in fields}
    known.add(f"{variables_prefix}CONFIG")
    for name in environment:
        if name.startswith(variables_prefix) and name not in known:
            names = ", ".join(sorted(known))
            raise BadValue(name, environment[name], f"there is no such variable; there are {names}")


def _hidden(said: str) -> str:
    """A URL without its password; of any other secret, only that there is one."""
    scheme, marks, rest = said.partition("://")
    if not marks:
        return _SECRET_SHOWN
    who, at, where = rest.rpartition("@")
    return f"{scheme}://{who.partition(':')[0]}:(not shown)@{where}" if at else said


def _quoted(said: str) -> str:
    return '"' + said.replace("\\", "\\\\").replace('"', '\\"') + '"'
