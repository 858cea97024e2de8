"""Sorted rows: more rows than memory should hold, in order; the rest is in a file without a name.

An external merge sort (Knuth, "The Art of Computer Programming", volume 3, 5.4): rows are collected
until there are `rows_at_once`, sorted, written as one run, and all runs are merged as they are
read. Where there are `RUNS_MAX` of them they are merged to one, so that the merge needs a bounded
memory too. All rows have one width; equal ones stay.

Bounds: `rows_at_once` rows and `RUNS_MAX` pages in memory, 20 MB with the defaults; on the disk
twice the rows while runs are merged.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator
from tempfile import TemporaryFile
from types import TracebackType
from typing import BinaryIO, Final, Self, cast, final

ROWS_AT_ONCE: Final = 100_000
PAGE_ROWS: Final = 512
RUNS_MAX: Final = 64


@final
class SortedRows:
    """Add rows, then read them in order, once or often."""

    def __init__(self, width: int, rows_at_once: int = ROWS_AT_ONCE) -> None:
        self._width = width
        self._rows_at_once = rows_at_once
        self._rows: list[bytes] = []
        self._runs: list[tuple[int, int]] = []  # begin and end in the file
        self._file = _new_file()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, row: bytes) -> None:
        """One more."""
        self._rows.append(row)
        if len(self._rows) >= self._rows_at_once:
            self._rows.sort()
            self._runs.append(_write(self._file, self._rows))
            self._rows = []
            if len(self._runs) >= RUNS_MAX:
                self._merge()

    def __iter__(self) -> Iterator[bytes]:
        """All of them, in order."""
        self._rows.sort()
        return heapq.merge(self._rows, *map(self._read, self._runs))

    def _merge(self) -> None:
        merged = _new_file()
        self._runs = [_write(merged, iter(self))]
        self._file.close()
        self._file = merged

    def _read(self, run: tuple[int, int]) -> Iterator[bytes]:
        at, end = run
        while at < end:
            page = os.pread(self._file.fileno(), min(end - at, PAGE_ROWS * self._width), at)
            at += len(page)
            for begin in range(0, len(page), self._width):
                yield page[begin : begin + self._width]


def _new_file() -> BinaryIO:
    return cast("BinaryIO", TemporaryFile(prefix="sluicegate-rows-", buffering=0))


def _write(file: BinaryIO, rows: Iterable[bytes]) -> tuple[int, int]:
    """Append a run; where it begins and ends."""
    begin = file.tell()
    page: list[bytes] = []
    for row in rows:
        page.append(row)
        if len(page) == PAGE_ROWS:
            _write_all(file, b"".join(page))
            page = []
    _write_all(file, b"".join(page))
    return begin, file.tell()


def _write_all(file: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
