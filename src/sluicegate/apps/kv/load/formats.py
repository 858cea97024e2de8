"""Formats: the rows of files and streams, one after the other.

    csv, tsv     a header names the columns: partition, sort, value, ttl; only partition is required
    jsonl        an object a line, with those names
    rows         the binary format of `wire/row_stream.py`

A ttl is in seconds; empty is for ever. Partition, sort and value are UTF-8 text, or bytes in
base64. An error names its file and line.
"""

from __future__ import annotations

import csv
import json
from base64 import b64decode
from binascii import Error as BinasciiError
from collections.abc import Iterator
from io import TextIOWrapper
from typing import Any, BinaryIO, Final

from sluicegate.contracts.engine import VALUE_BYTES_MAX
from sluicegate.contracts.errors import BadValue
from sluicegate.wire.row_stream import TTL_US_MAX, RowReader, StreamRow, row_bytes

CSV: Final = "csv"
TSV: Final = "tsv"
JSONL: Final = "jsonl"
ROWS: Final = "rows"
FORMS: Final = (CSV, TSV, JSONL, ROWS)
_BY_ENDING: Final = {
    "csv": CSV,
    "tsv": TSV,
    "tab": TSV,
    "jsonl": JSONL,
    "ndjson": JSONL,
    "rows": ROWS,
}
_COLUMNS: Final = frozenset({"partition", "sort", "value", "ttl"})
_LINE_CHARS_MAX: Final = 4 * VALUE_BYTES_MAX
_PIECE_BYTES: Final = 1 << 20


def form_of(path: str, form_flag: str) -> str:
    """Return the format of a file: as given, else by its suffix."""
    if form_flag != "auto":
        return form_flag
    form = _BY_ENDING.get(path.lower().rpartition(".")[2])
    if form is None:
        remedy = f"its name does not tell; say --format {'|'.join(FORMS)}"
        raise BadValue("--format", path, remedy)
    return form


def parse_rows(file: BinaryIO, path: str, form: str, *, base64: bool) -> Iterator[bytes]:
    """Each row as it stands in a stream."""
    if form == ROWS:
        return _parse_binary(file, path)
    text = TextIOWrapper(file, encoding="utf-8", errors="strict", newline="")
    rows = _parse_objects(text, path) if form == JSONL else _parse_cells(text, path, form)
    return _detach_after(text, _encode(rows, path, base64=base64))


def _detach_after(text: TextIOWrapper, rows: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the rows, and leave the file behind the text open for its owner."""
    try:
        yield from rows
    finally:
        if not text.closed:
            text.detach()


def _encode(
    rows: Iterator[tuple[int, dict[str, Any]]], path: str, *, base64: bool
) -> Iterator[bytes]:
    for line, fields in rows:
        try:
            partition, sort, value = [
                _bytes_in(fields, name, base64=base64) for name in ("partition", "sort", "value")
            ]
            yield row_bytes(StreamRow(partition, sort, value, _ttl_us(fields.get("ttl"))))
        except BadValue as error:
            place = f"{path} line {line}: {error.field}"
            raise BadValue(place, error.value, error.remedy) from None


def _parse_cells(text: TextIOWrapper, path: str, form: str) -> Iterator[tuple[int, dict[str, Any]]]:
    csv.field_size_limit(_LINE_CHARS_MAX)
    if form == CSV:
        reader = csv.reader(text, strict=True)
    else:
        reader = csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE)
    try:
        head = [name.lstrip("\ufeff").strip().lower() for name in next(reader, [])]
        if "partition" not in head or not _COLUMNS.issuperset(head) or len(set(head)) < len(head):
            remedy = "begin with a line that names the columns: partition, sort, value, ttl"
            raise BadValue(f"{path} line 1", ",".join(head), remedy)
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(head):
                remedy = f"there are {len(head)} columns, and here {len(cells)} cells"
                raise BadValue(f"{path} line {reader.line_num}", cells, remedy)
            yield reader.line_num, dict(zip(head, cells, strict=True))
    except csv.Error as error:
        raise BadValue(f"{path} line {reader.line_num}", str(error), "mend the line") from None
    except UnicodeDecodeError as error:
        raise _not_utf8(path, reader.line_num, error) from None


def _parse_objects(text: TextIOWrapper, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    line = 0
    try:
        while text_line := text.readline(_LINE_CHARS_MAX):
            line += 1
            if not text_line.strip():
                continue
            try:
                value = json.loads(text_line)
            except (ValueError, RecursionError) as error:
                remedy = f"write one JSON object a line ({error})"
                raise BadValue(f"{path} line {line}", text_line[:80], remedy) from None
            if not isinstance(value, dict) or not _COLUMNS.issuperset(value):
                remedy = "write an object of partition, sort, value and ttl"
                raise BadValue(f"{path} line {line}", text_line[:80], remedy)
            yield line, value
    except UnicodeDecodeError as error:
        raise _not_utf8(path, line, error) from None


def _parse_binary(file: BinaryIO, path: str) -> Iterator[bytes]:
    reader = RowReader()
    try:
        while piece := file.read(_PIECE_BYTES):
            for row in reader.feed(piece):
                yield row_bytes(row)
        reader.end()
    except BadValue as error:
        raise BadValue(f"{path}: {error.field}", error.value, error.remedy) from None


def _bytes_in(fields: dict[str, Any], name: str, *, base64: bool) -> bytes:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise BadValue(name, value, "write a text")
    if not base64:
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise BadValue(name, value, "write text that UTF-8 has, or use --base64") from None
    try:
        return b64decode(value, validate=True)
    except (BinasciiError, ValueError):
        raise BadValue(name, value, "write base64, or leave out --base64") from None


def _ttl_us(value: Any) -> int:
    if value is None or value == "":
        return 0
    try:
        # A double tells microseconds apart for far longer than anything is kept.
        ttl_us = round(float(value) * 1_000_000)
    except (TypeError, ValueError, OverflowError):
        ttl_us = 0
    if isinstance(value, bool) or not 0 < ttl_us <= TTL_US_MAX:
        most_s = TTL_US_MAX // 1_000_000
        remedy = f"write seconds above 0 and up to {most_s:,}, or nothing for ever"
        raise BadValue("ttl", value, remedy)
    return ttl_us


def _not_utf8(path: str, line: int, error: UnicodeDecodeError) -> BadValue:
    remedy = "write it in UTF-8, or as base64 with --base64"
    return BadValue(
        f"{path} behind line {line}", error.object[error.start : error.start + 8], remedy
    )
