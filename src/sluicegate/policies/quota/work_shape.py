"""Work shape: what is claimed of a request before its work is done, and how it is cut into chunks.

A scan of 200 RU holds its slot for as long as 200 reads; cut into chunks of 10 RU it enters twenty
times, and a read of a higher class passes between two of them. Each chunk costs its fixed part
again. Bound: `chunks_max` chunks of a request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from sluicegate.contracts.request import NO_ATTRIBUTES, Request
from sluicegate.kernels.cost_model import AMOUNT_MAX
from sluicegate.kernels.native import mypyc_attr

ROWS: Final = "rows"
SIZE: Final = "size_bytes"


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class WorkShape:
    """Rows to look at and bytes to move; 0 bytes: not known."""

    __slots__ = ("rows", "size_bytes")

    def __init__(self, rows: int = 1, size_bytes: int = 0) -> None:
        self.rows = rows
        self.size_bytes = size_bytes

    def __repr__(self) -> str:
        return f"WorkShape(rows={self.rows}, size_bytes={self.size_bytes})"


def read_shape(request: Request) -> WorkShape:
    """The shape in a request's attributes: `rows` (1 if absent) and `size_bytes` (0).

    A text that is no number, or too large a number, counts as absent.
    """
    attributes = request.attributes
    if attributes is NO_ATTRIBUTES:
        return WorkShape()
    if isinstance(attributes, dict):  # mypyc asks a dict directly, another mapping the long way
        return WorkShape(_number(attributes.get(ROWS), 1), _number(attributes.get(SIZE), 0))
    return WorkShape(_number(attributes.get(ROWS), 1), _number(attributes.get(SIZE), 0))


def rows_each(
    shape: WorkShape, whole_mru: int, fixed_mru: int, chunk_mru: int, chunks_max: int
) -> int:
    """How many rows a chunk has, given the predictions for all rows and for none."""
    rows = max(1, shape.rows)
    spare_mru = max(0, chunk_mru - fixed_mru)
    each = rows * spare_mru // max(1, whole_mru - fixed_mru)
    least = -(-rows // chunks_max)
    return min(rows, max(1, each, least))


def cut_chunks(request: Request, shape: WorkShape, each: int) -> Iterator[Request]:
    """Yield the chunks, of `each` rows and their share of the bytes."""
    rows = max(1, shape.rows)
    for first in range(0, rows, each):
        count = min(each, rows - first)
        size_bytes = shape.size_bytes * (first + count) // rows
        size_bytes -= shape.size_bytes * first // rows
        yield _chunk(request, first, count, size_bytes)


def _number(text: str | None, otherwise: int) -> int:
    if text is None or len(text) > 16 or not (text.isascii() and text.isdigit()):
        return otherwise
    return min(int(text), AMOUNT_MAX)


def _chunk(request: Request, first: int, rows: int, size_bytes: int) -> Request:
    attributes = {
        **request.attributes,
        "first_row": str(first),
        ROWS: str(rows),
        SIZE: str(size_bytes),
    }
    chunk = request.copy(attributes)
    if first:
        chunk.arrived_us = 0  # it arrives when the one before has ended, so it has not waited
    return chunk
