"""Traces: tables of recorded requests, read as a stream.

    trace = open_trace("requests.csv.gz")        columns time,key,size,cost; all but time optional
    for row in trace.rows(): ...                 times begin at 0 and never go back

`Columns` names other columns by the header or by their number from 0; a header is found by itself.
A row that cannot be read is an error that names its line, or is skipped, up to `bad_rows_max`. A
file is unpacked by the ending of its name; zstd is read where Python brings it (3.14) or the
package `zstandard` is installed.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import IO, Any, Final, NamedTuple, cast, final
from zlib import error as zlib_error

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.timestamps import parse_instant

COST_MAX: Final = 1 << 40
SIZE_MAX: Final = 1 << 53
AT_US_MAX: Final = 1 << 53
TOGETHER_MAX: Final = 1_000_000  # rows that bear the same instant
UNITS: Final = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0, "ns": 0.001}
FIELD_CHARS_MAX: Final = 1 << 20
BAD_ROWS_MAX: Final = 1_000_000


class TraceRow(NamedTuple):
    """A request: when it came, for which key, how large the value is, what it cost."""

    at_us: int
    key: str
    size: int = 0
    cost: int = 1


class BadTraceRow(BadValue):
    """A row of a file that cannot be read; the field names the file and the line."""

    def __init__(self, file: str, line: int, value: object, remedy: str) -> None:
        super().__init__(f"{file}, line {line:,}", value, remedy)


@final
class Trace(NamedTuple):
    """A trace that can be read again and again; nothing of it is kept in memory."""

    name: str
    rows: Callable[[], Iterator[TraceRow]]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns: names of the header, or numbers from 0; None if the trace has no such column.

    Several names of `cost` are added up. Time is a number in `unit`, or a date and time of day.
    """

    time: str = "time"
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


def open_trace(path: str, columns: Columns | None = None) -> Trace:
    """Open the trace in a file; without `columns` they have their usual names."""
    if columns is None:
        names = _numbered(_first_fields(path))
        if not names:
            raise BadValue("trace", path, "it has no rows; give a trace with at least one")
        if "time" not in names:
            raise BadValue("trace", path, "name the column of its time: --time NAME (or a number)")
        columns = Columns(key="key" if "key" in names else None)
    return Trace(path, rows=partial(read_table, path, columns))


def read_table(path: str, columns: Columns) -> Iterator[TraceRow]:
    """The rows of a file, the first at 0, each set apart from those of the same second."""
    unit_us = max(int(UNITS[columns.unit]), 1)
    yield from spread(from_zero(_rows(path, columns), path), unit_us)


def parse_time(text: str, unit: str) -> int:
    """An instant in microseconds: a number in the unit, or a date and time of day."""
    try:
        return round(float(text) * UNITS[unit])
    except ValueError:
        return parse_instant(text)


@contextmanager
def open_file(path: str) -> Iterator[IO[bytes]]:
    """Open the file for its unpacked bytes; an error names the file."""
    try:
        with _open(path) as file:
            yield file
    except (OSError, lzma.LZMAError, zlib_error, EOFError, csv.Error) as error:
        if isinstance(error, FileNotFoundError | IsADirectoryError):
            raise BadValue("trace", path, "give the path of a file that is there") from error
        raise BadValue("trace", path, f"it cannot be read: {error}") from error


def text_lines(file: IO[bytes]) -> Iterator[str]:
    """Its lines as text; a byte-order mark is not part of the first."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
    try:
        yield from text
    finally:
        with suppress(ValueError):  # already closed by its owner
            text.detach()


def from_zero(rows: Iterable[TraceRow], file: str) -> Iterator[TraceRow]:
    """Shift the rows so that the first is at 0; reject rows out of order."""
    first_us = last_us = -1
    for count, row in enumerate(rows, 1):
        if first_us < 0:
            first_us = row.at_us
        elif row.at_us < last_us:
            raise BadValue(
                f"{file}, row {count:,}",
                row.at_us - first_us,
                f"sort the file by time; the row before is at {last_us - first_us} us",
            )
        last_us = row.at_us
        yield row._replace(at_us=row.at_us - first_us)


def spread(rows: Iterable[TraceRow], unit_us: int) -> Iterator[TraceRow]:
    """Spread rows of the same instant evenly over the unit in which time was recorded.

    A thousand requests of one second did not come in one microsecond. They come before the next
    instant there is. Those of one instant are held in memory, `TOGETHER_MAX` at most.
    """
    together: list[TraceRow] = []
    for row in rows:
        if together and row.at_us != together[0].at_us:
            yield from _apart(together, min(unit_us, row.at_us - together[0].at_us))
            together = []
        together.append(row)
        if len(together) > TOGETHER_MAX:
            raise BadValue(
                "trace", row.at_us, f"more than {TOGETHER_MAX:,} rows are of one instant"
            )
    yield from _apart(together, unit_us)


def _apart(together: list[TraceRow], over_us: int) -> Iterator[TraceRow]:
    for at, row in enumerate(together):
        yield row._replace(at_us=row.at_us + at * over_us // len(together))


def _open(path: str) -> IO[bytes]:
    name = path.lower()
    if name.endswith(".gz"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    if name.endswith(".bz2"):
        return cast("IO[bytes]", bz2.open(path, "rb"))
    if name.endswith((".xz", ".lzma")):
        return cast("IO[bytes]", lzma.open(path, "rb"))
    if name.endswith(".zst"):
        return _open_zstd(path)
    return open(path, "rb")


def _open_zstd(path: str) -> IO[bytes]:
    for module in ("compression.zstd", "zstandard"):
        if find_spec(module.partition(".")[0]) is not None:
            zstd: Any = import_module(module)
            return cast("IO[bytes]", zstd.open(path, "rb"))
    raise BadValue("trace", path, "unpack it first, or pip install zstandard")


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
                    remedy = f"correct or remove this row ({why})"
                    raise BadTraceRow(path, reader.line_num, ",".join(fields), remedy) from error


def _row(fields: Sequence[str], names: dict[str, int], columns: Columns) -> TraceRow:
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
    try:
        parse_time(fields[names[columns.time]], columns.unit)
    except (ValueError, KeyError):
        return True
    return False


def _check(path: str, columns: Columns, names: dict[str, int]) -> None:
    """Require the columns of time and key that were named; size and cost may be missing."""
    for what, name in (("time", columns.time), ("key", columns.key)):
        if name is not None and name not in names:
            there = ", ".join(list(names)[: len(names) // 2]) or "none"
            raise BadValue(
                f"{path}, column of {what}", name, f"name the column that has it, or none: {there}"
            )
