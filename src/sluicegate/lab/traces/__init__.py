"""Traces: what really came, read from files of four formats, or made in the shapes it has.

    trace = open_trace("requests.csv.gz")        which format is told by the name and the first line
    for access in trace.rows(): ...              a stream; nothing is kept

Times begin at 0 and never go back. A trace without times is an order of keys (`trace.timed`), one
without keys is an order of costs (`trace.keyed`).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.traces.access import Access, BadRow, Trace
from sluicegate.lab.traces.files import unpacked_name
from sluicegate.lab.traces.keys import read_keys
from sluicegate.lab.traces.tables import (
    AZURE,
    OWN,
    TWITTER,
    Columns,
    first_fields,
    has_key,
    has_time,
    parse_time,
    read_table,
)

__all__ = ["FORMATS", "Access", "BadRow", "Columns", "Trace", "open_trace"]

FORMATS: Final = ("csv", "azure", "twitter", "keys")
_TWITTER_FIELDS: Final = 7


def open_trace(path: str, format: str | None = None, columns: Columns | None = None) -> Trace:  # noqa: A002
    """The trace in a file; `columns` is for `csv`."""
    if format is None:
        format = told_format(path)  # noqa: A001 - as the flag says it
    if format == "keys":
        return Trace(path, timed=False, keyed=True, rows=partial(read_keys, path))
    if format not in FORMATS:
        raise BadValue("--format", format, f"give one of {', '.join(FORMATS)}")
    known = {"csv": columns or OWN, "azure": AZURE, "twitter": TWITTER}[format]
    if format == "csv" and columns is None:
        known = Columns(
            time="time" if has_time(path, OWN) else None, key="key" if has_key(path, OWN) else None
        )
        if known.time is None and known.key is None:
            raise BadValue("trace", path, "name its columns: --time NAME, --key NAME (or numbers)")
    return Trace(
        path,
        timed=known.time is not None,
        keyed=known.key is not None,
        rows=partial(read_table, path, known),
    )


def told_format(path: str) -> str:
    """What a file is, by its name and its first line."""
    if unpacked_name(path).endswith((".trace", ".bin")):
        return "keys"
    fields = first_fields(path)
    if AZURE.time in fields:
        return "azure"
    if len(fields) == _TWITTER_FIELDS:
        try:
            parse_time(fields[0], "s")
        except ValueError:
            return "csv"
        return "twitter"
    return "csv"
