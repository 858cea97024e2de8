"""A trace, and its rows, whatever format it was recorded in.

Times begin at 0 and never go back. A trace without times is an order of keys (`trace.timed`), one
without keys is an order of costs (`trace.keyed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue

COST_MAX: Final = 1 << 40
SIZE_MAX: Final = 1 << 53
AT_US_MAX: Final = 1 << 53
TOGETHER_MAX: Final = 1_000_000  # rows that bear the same instant


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
    timed: bool  # without times it is an order of keys, and no more
    keyed: bool
    rows: Callable[[], Iterator[TraceRow]]


def from_zero(rows: Iterable[TraceRow], file: str) -> Iterator[TraceRow]:
    """Shift the rows so that the first is at 0; refuse one that goes back in time."""
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
