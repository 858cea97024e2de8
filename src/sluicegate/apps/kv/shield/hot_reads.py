"""Hot reads: the shields of a dispatcher, of single keys and of ranges, as one.

Each has its own counters and half of the cache. Dispatchers know a range by its key behind `[`,
with which no table's name begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import add, attrgetter
from typing import Final, final

from sluicegate.apps.kv.shield.ranges import RangeShield
from sluicegate.apps.kv.shield.settings import HotPlace, ShieldSettings, ShieldStats
from sluicegate.apps.kv.shield.shield import Shield
from sluicegate.contracts.chance import Chance
from sluicegate.contracts.engine import Place
from sluicegate.contracts.key_values import Row
from sluicegate.contracts.request import Request
from sluicegate.policies.coalesce import CoalesceStats
from sluicegate.policies.hot_key import HotKeyStats

RANGE_MARK: Final = "["


@final
class WritesUnderWay:
    """What the shields were told before a write, to be told after it."""

    __slots__ = ("keys", "slots")

    def __init__(self, keys: list[str], slots: list[int]) -> None:
        self.keys = keys
        self.slots = slots


@final
class HotReads:
    """What is hot here, and its answers."""

    __slots__ = ("keys", "ranges")

    def __init__(
        self,
        settings: ShieldSettings,
        chance: Chance,
        raised: Callable[[Request, int], object] | None = None,
    ) -> None:
        """`raised` as in `Shield`."""
        cache_bytes = max(1, settings.cache_bytes_max // 2)
        halved = replace(
            settings,
            cache_bytes_max=cache_bytes,
            entry_bytes_max=min(settings.entry_bytes_max, cache_bytes),
        )
        self.keys: Shield[Row] = Shield(halved, chance, raised)
        self.ranges = RangeShield(halved, chance, raised)

    def begin_writes(self, table: str, places: Iterable[Place]) -> WritesUnderWay:
        """These are about to be written: cache nothing of them until `end_writes`."""
        places = list(places)
        keys = [self.keys.key(table, partition, sort) for partition, sort in places]
        for key in keys:
            self.keys.begin_write(key)
        slots = self.ranges.begin_write(table, [partition for partition, _ in places])
        return WritesUnderWay(keys, slots)

    def end_writes(self, writes: WritesUnderWay) -> None:
        """The engine has answered or failed, and nobody has been told yet."""
        for key in writes.keys:
            self.keys.end_write(key)
        self.ranges.end_write(writes.slots)

    def replace_table(self, table: str) -> None:
        """Drop what is cached of a replaced table, before the commit is acknowledged."""
        self.keys.replace_table(table)
        self.ranges.shield.replace_table(table)

    def top(self, k: int) -> list[tuple[str, int]]:
        """The hottest here and what is guaranteed of each, for other dispatchers to heed."""
        ranges = [(RANGE_MARK + key, weight) for key, weight in self.ranges.shield.top(k)]
        return sorted([*self.keys.top(k), *ranges], key=_weight, reverse=True)[:k]

    def heed(self, keys: Iterable[str], now_us: int) -> int:
        """These are hot at another dispatcher; how many there was room for."""
        of_keys, of_ranges = _parted(keys)
        return self.keys.heed(of_keys, now_us) + self.ranges.shield.heed(of_ranges, now_us)

    def board(self, k: int) -> list[HotPlace]:
        """The hottest, and what became of their reads."""
        both = [*self.keys.board(k), *self.ranges.shield.board(k)]
        return sorted(both, key=attrgetter("guaranteed"), reverse=True)[:k]

    @property
    def remembered(self) -> int:
        """The weight of the last one to two windows, of which that of each is guaranteed."""
        return self.keys.remembered + self.ranges.shield.remembered

    def stats(self) -> ShieldStats:
        """What both look like now, together."""
        keys, ranges = self.keys.stats(), self.ranges.shield.stats()
        return ShieldStats(
            HotKeyStats(*map(add, keys.hot, ranges.hot)),
            CoalesceStats(*map(add, keys.flights, ranges.flights)),
            *map(add, keys[2:], ranges[2:]),
        )

    async def close(self) -> None:
        """End what is fetched ahead."""
        await self.keys.close()
        await self.ranges.shield.close()


def _weight(hot: tuple[str, int]) -> int:
    return hot[1]


def _parted(keys: Iterable[str]) -> tuple[list[str], list[str]]:
    """Those of single keys, and those of ranges without their mark."""
    of_keys: list[str] = []
    of_ranges: list[str] = []
    for key in keys:
        if key.startswith(RANGE_MARK):
            of_ranges.append(key[len(RANGE_MARK) :])
        else:
            of_keys.append(key)
    return of_keys, of_ranges
