"""Parts: rows are cut into parts by a function of the input alone.

So the same input gives the same parts again, after a kill or on another machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import NamedTuple

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.row_stream import HEADER


class LoadPart(NamedTuple):
    """One part to send."""

    number: int
    rows: int
    data: bytes
    sha256: bytes


def cut_parts(rows: Iterable[bytes], *, rows_max: int, bytes_max: int) -> Iterator[LoadPart]:
    """The parts of these rows; each has at least one, and no more than fit."""
    number, pieces, size = 0, [HEADER], len(HEADER)
    for row in rows:
        if len(HEADER) + len(row) > bytes_max:
            raise BadValue("--part-bytes", bytes_max, f"a row has {len(row):,} bytes; allow more")
        if len(pieces) > rows_max or size + len(row) > bytes_max:
            yield _part(number, pieces)
            number, pieces, size = number + 1, [HEADER], len(HEADER)
        pieces.append(row)
        size += len(row)
    if len(pieces) > 1:
        yield _part(number, pieces)


def _part(number: int, pieces: list[bytes]) -> LoadPart:
    data = b"".join(pieces)
    return LoadPart(number, len(pieces) - 1, data, sha256(data).digest())
