"""The formats of trace files: tables of comma-separated rows, and files of keys and lines.

    trace = open_trace("requests.csv.gz")        detects the format by what the file holds
    for row in trace.rows(): ...                 a stream; nothing of it is kept

What differs between tables is which column is what, and how time is written; both are in `Columns`.
A header is found by itself. Columns are named by the header, or by their number from 0.

    csv       time,key,size,cost                                  any of them may be missing
    azure     TIMESTAMP,ContextTokens,GeneratedTokens             cost: tokens read and written
    twitter   time,key,key size,value size,client,operation,ttl   no header, times in seconds
    keys      32-bit keys in order, and nothing else              see `files`, also for what follows
    lines     a key a line
    adaptsize time key size                                       whole numbers between blanks
    oracle    time, key, size, next access                        records of 24 bytes

A row that cannot be read is an error that names its line, or is skipped if so many are allowed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.traces.files import (
    is_oracle,
    open_file,
    read_adaptsize,
    read_keys,
    read_lines,
    read_oracle,
    text_lines,
    unpacked_name,
)
from sluicegate.lab.traces.trace import (
    AT_US_MAX,
    COST_MAX,
    SIZE_MAX,
    BadTraceRow,
    Trace,
    TraceRow,
    from_zero,
    spread,
)
from sluicegate.wire.timestamps import parse_instant

UNITS: Final = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0, "ns": 0.001}
FIELD_CHARS_MAX: Final = 1 << 20
BAD_ROWS_MAX: Final = 1_000_000
FORMATS: Final = ("csv", "azure", "twitter", "keys", "lines", "adaptsize", "oracle")
EMPTY: Final = "it has no rows; give one that has"
_TWITTER_FIELDS: Final = 7
_ADAPTSIZE_WORDS: Final = 3
_LOOK_BYTES: Final = 1 << 12
# Control characters, but for blanks and ends of lines; numbers of 32 bits are full of zeros.
_NOT_TEXT: Final = frozenset(range(32)) - frozenset(b"\t\n\v\f\r")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which column is what: names of the header, or numbers from 0; none if there is none.

    Several names of `cost` are added up. Time is a number in `unit`, or a date and time of day.
    """

    time: str | None = "time"
    key: str | None = "key"
    size: str | None = "size"
    cost: tuple[str, ...] = ("cost",)
    unit: str = "s"
    bad_rows_max: int = 0

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise BadValue("unit", self.unit, f"give one of {', '.join(UNITS)}")
        if not 0 <= self.bad_rows_max <= BAD_ROWS_MAX:
            raise BadValue("bad_rows_max", self.bad_rows_max, f"give 0 to {BAD_ROWS_MAX:,}")


OWN: Final = Columns()
AZURE: Final = Columns(
    time="TIMESTAMP", key=None, size="ContextTokens", cost=("ContextTokens", "GeneratedTokens")
)
TWITTER: Final = Columns(time="0", key="1", size="3", cost=())


def read_table(path: str, columns: Columns) -> Iterator[TraceRow]:
    """The rows of a file, the first at 0, each set apart from those of the same second."""
    rows = _rows(path, columns)
    if columns.time is None:
        yield from rows
        return
    unit_us = max(int(UNITS[columns.unit]), 1)
    yield from spread(from_zero(rows, path), unit_us)


def open_trace(path: str, format: str | None = None, columns: Columns | None = None) -> Trace:  # noqa: A002
    """Open the trace in a file; `columns` is for `csv`."""
    if format is None:
        format = detect_format(path)  # noqa: A001 - as the flag says it
    elif format not in FORMATS:
        raise BadValue("--format", format, f"give one of {', '.join(FORMATS)}")
    if format == "keys":
        return Trace(path, timed=False, keyed=True, rows=partial(read_keys, path))
    if format == "lines":
        return Trace(path, timed=False, keyed=True, rows=partial(read_lines, path))
    if format == "adaptsize":
        return Trace(path, timed=True, keyed=True, rows=partial(read_adaptsize, path))
    if format == "oracle":
        return Trace(path, timed=True, keyed=True, rows=partial(read_oracle, path))
    chosen = {"csv": columns or OWN, "azure": AZURE, "twitter": TWITTER}[format]
    if format == "csv" and columns is None:
        names = _numbered(_first_fields(path))
        chosen = Columns(
            time="time" if "time" in names else None, key="key" if "key" in names else None
        )
        if not names:
            raise BadValue("trace", path, EMPTY)
        if chosen.time is None and chosen.key is None:
            raise BadValue("trace", path, "name its columns: --time NAME, --key NAME (or numbers)")
    return Trace(
        path,
        timed=chosen.time is not None,
        keyed=chosen.key is not None,
        rows=partial(read_table, path, chosen),
    )


def detect_format(path: str) -> str:
    """The format of a file, by what it holds."""
    with open_file(path) as file:
        begin = file.read(_LOOK_BYTES)
    if not begin.strip():
        raise BadValue("trace", path, EMPTY)
    if not _NOT_TEXT.isdisjoint(begin):
        if is_oracle(begin):
            return "oracle"
        if unpacked_name(path).endswith((".trace", ".bin")):
            return "keys"
        raise BadValue("trace", path, "it is no text; if it holds 32-bit keys, say --format keys")
    fields = _first_fields(path)
    if AZURE.time in fields:
        return "azure"
    if len(fields) > 1:
        return "twitter" if _is_twitter(fields) else "csv"
    if fields and fields[0].strip() in {OWN.time, OWN.key}:
        return "csv"
    lines = [line.split() for line in begin.decode("utf-8", "replace").splitlines()]
    lines = [words for words in lines if words and not words[0].startswith("*")]
    if len(begin) == _LOOK_BYTES:
        lines = lines[:-1]  # the last may go on
    if lines and all(len(words) == 1 for words in lines):
        if _is_table(begin.splitlines()):
            remedy = "set its columns apart by commas, or say --format lines if its lines are keys"
            raise BadValue("trace", path, remedy)
        return "lines"
    if lines and all(_is_adaptsize(words) for words in lines):
        return "adaptsize"
    raise BadValue("trace", path, f"say what it holds: --format with one of {', '.join(FORMATS)}")


def _is_twitter(fields: Sequence[str]) -> bool:
    if len(fields) != _TWITTER_FIELDS:
        return False
    try:
        parse_time(fields[0], "s")
    except ValueError:
        return False
    return True


def _is_table(lines: Sequence[bytes]) -> bool:
    """Whether lines are of as many columns, with semicolons or bars between."""
    return any(
        lines[0].count(mark) > 0 and len({line.count(mark) for line in lines[:-1]}) == 1
        for mark in (b";", b"|")
    )


def _is_adaptsize(words: Sequence[str]) -> bool:
    return len(words) == _ADAPTSIZE_WORDS and all(word.isdecimal() for word in words)


def parse_time(text: str, unit: str) -> int:
    """An instant in microseconds: a number in the unit, or a date and time of day."""
    try:
        return round(float(text) * UNITS[unit])
    except ValueError:
        return parse_instant(text)


def _first_fields(path: str) -> list[str]:
    with open_file(path) as file:
        return next(csv.reader(text_lines(file)), [])


def _rows(path: str, columns: Columns) -> Iterator[TraceRow]:
    csv.field_size_limit(FIELD_CHARS_MAX)
    bad = 0
    with open_file(path) as file:
        reader = csv.reader(text_lines(file))
        names: dict[str, int] = {}
        for fields in reader:
            if not fields or (len(fields) == 1 and not fields[0].strip()):
                continue
            if not names:
                names = _numbered(fields)
                if _is_header(fields, names, columns):
                    _check(path, columns, names)
                    continue
                _check(path, columns, names)
            try:
                yield _row(fields, names, columns)
            except (ValueError, IndexError, OverflowError) as error:
                bad += 1
                if bad > columns.bad_rows_max:
                    short = isinstance(error, IndexError)
                    why = "it has too few columns" if short else error
                    remedy = f"mend or leave out this row ({why})"
                    raise BadTraceRow(path, reader.line_num, ",".join(fields), remedy) from error


def _row(fields: Sequence[str], names: dict[str, int], columns: Columns) -> TraceRow:
    at_us = 0
    if columns.time is not None:
        at_us = parse_time(fields[names[columns.time]], columns.unit)
        if not 0 <= at_us <= AT_US_MAX:
            raise ValueError("its time is out of range")
    key = fields[names[columns.key]] if columns.key in names else ""
    size = 0
    if columns.size in names:
        size = int(float(fields[names[columns.size]]))
    costs = [fields[names[name]] for name in columns.cost if name in names]
    cost = max(sum(int(float(text)) for text in costs), 1) if costs else 1
    if not 0 <= size <= SIZE_MAX or cost > COST_MAX:
        raise ValueError("its size or cost is out of range")
    return TraceRow(at_us, key, size, cost)


def _numbered(fields: Sequence[str]) -> dict[str, int]:
    """Where each column is, by its name and by its number."""
    found = {str(at): at for at in range(len(fields))}
    return {field.strip(): at for at, field in enumerate(fields)} | found


def _is_header(fields: Sequence[str], names: dict[str, int], columns: Columns) -> bool:
    wanted = [columns.time, columns.key, columns.size, *columns.cost]
    named = [name for name in wanted if name is not None and not name.isdecimal()]
    if named:
        return any(name in names for name in named)
    if columns.time is None:
        return False
    try:
        parse_time(fields[names[columns.time]], columns.unit)
    except (ValueError, KeyError):
        return True
    return False


def _check(path: str, columns: Columns, names: dict[str, int]) -> None:
    """Time and key are needed where they were asked for; size and cost may be missing."""
    for what, name in (("time", columns.time), ("key", columns.key)):
        if name is not None and name not in names:
            there = ", ".join(list(names)[: len(names) // 2]) or "none"
            raise BadValue(
                f"{path}, column of {what}", name, f"name the column that has it, or none: {there}"
            )
