"""Bucket walk: the walk of a space whose partitions are listed in buckets.

From bucket to bucket, from partition to partition, from row to row: the last place is all that is
needed to go on, and what is there throughout a walk is met once. An engine lists buckets and reads
partitions, several at a time; a page is bounded in rows and in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, final

from sluicegate.contracts.engine import EnginePage, Entry, Place

PARTS_MIN: Final = 64  # partitions that are asked of a bucket at once
PARTS_MAX: Final = 1_000


class Buckets(Protocol):
    """A space, as an engine has it."""

    @property
    def count(self) -> int:
        """How many buckets it has."""

    def bucket_of(self, partition: bytes) -> int:
        """The bucket that a partition is in."""

    async def parts(
        self, asks: Sequence[tuple[int, bytes]], limit: int
    ) -> Sequence[Sequence[bytes]]:
        """Of each bucket its partitions behind one, in their order, at most so many."""

    async def pages(
        self, parts: Sequence[bytes], begin: bytes, rows_max: int, bytes_max: int
    ) -> Sequence[EnginePage]:
        """Of each partition its rows from `begin` on."""


@final
class BucketWalk:
    """One call of a walk."""

    __slots__ = ("_at_once", "_buckets", "_bytes", "_bytes_max", "_entries", "_rows_max")

    def __init__(self, buckets: Buckets, *, rows_max: int, bytes_max: int, at_once: int) -> None:
        self._buckets = buckets
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._at_once = at_once
        self._entries: list[Entry] = []
        self._bytes = 0

    async def entries(self, after: Place | None) -> list[Entry]:
        """Entries behind a place; none at the end."""
        bucket, part = 0, b""
        if after is not None and after[0]:  # the empty place is before the first
            part, sort = after
            bucket = self._buckets.bucket_of(part)
            if await self._tell([part], sort + b"\0"):
                return self._entries
        limit = min(max(self._rows_max, PARTS_MIN), PARTS_MAX)
        while bucket < self._buckets.count:
            buckets = range(bucket, min(bucket + self._at_once, self._buckets.count))
            asks = [(one, part if one == bucket else b"") for one in buckets]
            pages = await self._buckets.parts(asks, limit)
            bucket, part = buckets.stop, b""
            parts: list[bytes] = []
            for one, those in zip(buckets, pages, strict=True):
                parts += those
                if len(those) == limit:  # there may be more of them: not past this bucket yet
                    bucket, part = one, those[-1]
                    break
            if await self._tell(parts, b""):
                break
        return self._entries

    async def _tell(self, parts: Sequence[bytes], begin: bytes) -> bool:
        """Find what these hold; whether it is enough."""
        for at in range(0, len(parts), self._at_once):
            those = parts[at : at + self._at_once]
            pages = await self._buckets.pages(
                those,
                begin,
                self._rows_max - len(self._entries),
                max((self._bytes_max - self._bytes) // len(those), 1),
            )
            for part, page in zip(those, pages, strict=True):
                for sort, value in page.rows:
                    if self._is_enough():
                        return True
                    self._entries.append((part, sort, value))
                    self._bytes += len(part) + len(sort) + len(value)
                if page.more:
                    return True
            if self._is_enough():
                return True
        return False

    def _is_enough(self) -> bool:
        return len(self._entries) >= self._rows_max or self._bytes >= self._bytes_max
