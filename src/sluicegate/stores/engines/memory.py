"""Memory: an engine in this process, for demos and as what the suite holds other engines against.

In each space the partitions in order, in each partition the sort keys in order, and a dictionary of
the values. Inserting into a sorted list moves pointers: 20 us among 100,000 keys, less below. All
is answered at once, and all is lost with the process.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from sluicegate.contracts.engine import Change, EnginePage, Entry, KeyRange, Place, Update
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.stores.engines.bounds import (
    CHANGE_BYTES,
    WALK_BYTES_MAX,
    check_after,
    check_changes,
    check_place,
    check_rows_max,
    check_space,
    check_update,
    decide_changes,
    swap_of,
)
from sluicegate.stores.urls import Query, pairs_in, parse_query

SCHEME: Final = "memory:"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """How much may be stored; validated."""

    bytes_max: int = 1 << 30

    def __post_init__(self) -> None:
        if not 1 <= self.bytes_max <= 1 << 50:
            raise BadValue("memory.bytes_max", self.bytes_max, f"give 1 to {1 << 50}")


_QUERY: Final[Query] = {"bytes_max": ("bytes_max", int, "a whole number")}


def open_memory(url: str) -> MemoryEngine:
    """Return a new engine for `memory:?bytes_max=...`."""
    path, _, query = url.removeprefix(SCHEME).partition("?")
    if path:
        raise BadValue("engine", url, "write memory: alone; what is in memory has no name")
    pairs = pairs_in(query, url, "engine", "memory:?name=value")
    return MemoryEngine(MemorySettings(**parse_query(pairs, _QUERY, "engine")))  # type: ignore[arg-type]


@final
class _Partition:
    __slots__ = ("keys", "values")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.values: dict[bytes, bytes] = {}


@final
class _Space:
    __slots__ = ("keys", "partitions")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.partitions: dict[bytes, _Partition] = {}


@final
class MemoryEngine:
    """Ordered bytes in dictionaries."""

    def __init__(self, settings: MemorySettings | None = None) -> None:
        self.name = "memory"
        self.durability = "nothing is stored: a write is lost with this process"
        self.shared = False
        self._settings = settings or MemorySettings()
        self._spaces: dict[str, _Space] = {}
        self._bytes = 0
        self._closed = False

    def read(self, space: str, places: Sequence[Place]) -> Sequence[bytes | None]:
        """The values at these places."""
        contents = self._space(space)
        values: list[bytes | None] = []
        for partition, sort in places:
            check_place(partition, sort)
            rows = None if contents is None else contents.partitions.get(partition)
            values.append(None if rows is None else rows.values.get(sort))
        return values

    def scan(self, space: str, partition: bytes, span: KeyRange) -> EnginePage:
        """Rows of one partition, from either side."""
        check_place(partition, b"")
        begin, end, reverse, rows_max, bytes_max = span
        check_rows_max(rows_max)
        contents = self._space(space)
        rows = None if contents is None else contents.partitions.get(partition)
        if rows is None:
            return EnginePage((), False, 0, 0)
        low = bisect_left(rows.keys, begin)
        high = len(rows.keys) if end is None else bisect_left(rows.keys, end)
        places = range(high - 1, low - 1, -1) if reverse else range(low, high)
        page_rows: list[tuple[bytes, bytes]] = []
        size = 0
        for place in places:
            if page_rows and (len(page_rows) >= rows_max or size >= bytes_max):
                return EnginePage(page_rows, True, len(page_rows), size)
            sort = rows.keys[place]
            value = rows.values[sort]
            page_rows.append((sort, value))
            size += len(sort) + len(value)
        return EnginePage(page_rows, False, len(page_rows), size)

    async def write(self, changes: Sequence[Change]) -> None:
        """Make them, in one turn of the loop."""
        self._make_room(check_changes(changes))
        for change in changes:
            self._change(change)

    async def swap(self, change: Change, expected: bytes | None) -> bool:
        """Make it if the value there is `expected`."""
        check_changes([change])
        return await self.update(swap_of(change, expected))

    async def update(self, update: Update) -> bool:
        """Read, decide and write, in one turn of the loop."""
        check_update(update)
        places = [(update.partition, sort) for sort in update.sorts]
        changes = decide_changes(update, self.read(update.space, places))
        await self.write(changes)
        return bool(changes)

    async def load(self, space: str, entries: Sequence[Entry]) -> None:
        """Write many."""
        await self.write([Change(space, *entry) for entry in entries])

    async def walk(self, space: str, after: Place | None, rows_max: int) -> Sequence[Entry]:
        """Entries in the order of their partitions, then of their sort keys."""
        check_rows_max(rows_max)
        check_after(after)
        contents = self._space(space)
        if contents is None:
            return ()
        first = 0 if after is None else bisect_left(contents.keys, after[0])
        entries: list[Entry] = []
        size = 0
        for place in range(first, len(contents.keys)):
            partition = contents.keys[place]
            rows = contents.partitions[partition]
            start = bisect_right(rows.keys, after[1]) if after and after[0] == partition else 0
            for at in range(start, len(rows.keys)):
                if entries and (len(entries) >= rows_max or size >= WALK_BYTES_MAX):
                    return entries
                sort = rows.keys[at]
                value = rows.values[sort]
                entries.append((partition, sort, value))
                size += len(value)
        return entries

    async def drop(self, space: str) -> None:
        """Forget a whole space."""
        if self._space(space) is None:
            return
        for partition, rows in self._spaces.pop(space).partitions.items():
            for sort, value in rows.values.items():
                self._bytes -= CHANGE_BYTES + len(partition) + len(sort) + len(value)

    def shard_of(self, space: str, partition: bytes) -> str:
        """All is one."""
        return "memory"

    async def close(self) -> None:
        """Forget everything."""
        self._closed = True
        self._spaces.clear()

    def _space(self, space: str) -> _Space | None:
        if self._closed:
            raise Unavailable("the memory engine", "it was closed")
        check_space(space)
        return self._spaces.get(space)

    def _make_room(self, weight: int) -> None:
        if self._closed:
            raise Unavailable("the memory engine", "it was closed")
        if self._bytes + weight > self._settings.bytes_max:
            raise Unavailable(
                "the memory engine",
                f"it holds {self._bytes:,} bytes of {self._settings.bytes_max:,};"
                " drop what is not needed, raise bytes_max, or use lmdb:DIR",
            )

    def _change(self, change: Change) -> None:
        space, partition, sort, value, _ = change
        if value is None:
            self._delete(space, partition, sort)
            return
        contents = self._spaces.get(space)
        if contents is None:
            contents = self._spaces[space] = _Space()
        rows = contents.partitions.get(partition)
        if rows is None:
            rows = contents.partitions[partition] = _Partition()
            insort(contents.keys, partition)
        before = rows.values.get(sort)
        if before is None:
            insort(rows.keys, sort)
            self._bytes += CHANGE_BYTES + len(partition) + len(sort)
        else:
            self._bytes -= len(before)
        rows.values[sort] = bytes(value)
        self._bytes += len(value)

    def _delete(self, space: str, partition: bytes, sort: bytes) -> None:
        contents = self._spaces.get(space)
        rows = None if contents is None else contents.partitions.get(partition)
        if contents is None or rows is None or sort not in rows.values:
            return
        value = rows.values.pop(sort)
        del rows.keys[bisect_left(rows.keys, sort)]
        self._bytes -= CHANGE_BYTES + len(partition) + len(sort) + len(value)
        if not rows.keys:
            del contents.partitions[partition]
            del contents.keys[bisect_left(contents.keys, partition)]
        if not contents.keys:
            del self._spaces[space]
