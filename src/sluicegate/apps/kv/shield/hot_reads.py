"""Hot reads: the shields of a dispatcher, of single keys and of ranges, as one.

Each has its own counters and half of the cache; both read the load of the shards from one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import add, attrgetter
from typing import final

from sluicegate.apps.kv.shield.ranges import RangeShield
from sluicegate.apps.kv.shield.settings import HotPlace, ShieldSettings, ShieldStats
from sluicegate.apps.kv.shield.shield import Shield
from sluicegate.contracts.chance import Chance
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.engine import Place
from sluicegate.contracts.key_values import Row
from sluicegate.contracts.request import Request
from sluicegate.policies.cache.coalesce import CoalesceStats
from sluicegate.policies.cache.hot_key import HotKeyStats, OfferedLoads


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

    __slots__ = ("_loads", "keys", "ranges")

    def __init__(
        self,
        settings: ShieldSettings,
        chance: Chance,
        raised: Callable[[Request, int], object] | None = None,
        refused: Callable[[Request, Decision, int], object] | None = None,
        busy: Callable[[str], float] | None = None,
    ) -> None:
        """`raised` and `refused` as in `Shield`.

        `busy` returns the load of a shard: from 0 for idle to 1 when its slots are taken or
        requests are queued for it. Without it all shards count as full.
        """
        halved = _halved(settings)
        self._loads = None if busy is None else OfferedLoads(busy)
        self.keys: Shield[Row] = Shield(halved, chance, raised, refused, self._loads)
        self.ranges = RangeShield(halved, chance, raised, refused, self._loads)

    def replace(self, settings: ShieldSettings) -> None:
        """Go by these from now on, as far as they can change."""
        halved = _halved(settings)
        self.keys.replace(halved)
        self.ranges.shield.replace(halved)

    def begin_writes(self, table: str, places: Iterable[Place], shard: str = "") -> WritesUnderWay:
        """These are about to be written: cache nothing of them until `end_writes`."""
        if self._loads is not None:
            self._loads.see(shard).forward()  # writes are load that no cache takes away
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

    def board(self, k: int) -> list[HotPlace]:
        """The hottest, and what became of their reads."""
        both = [*self.keys.board(k), *self.ranges.shield.board(k)]
        return sorted(both, key=attrgetter("guaranteed"), reverse=True)[:k]

    @property
    def remembered(self) -> int:
        """The reads of the last one to two windows, of which those of each key are guaranteed."""
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


def _halved(settings: ShieldSettings) -> ShieldSettings:
    """Keys and ranges have half of the cache each."""
    cache_bytes = max(1, settings.cache_bytes_max // 2)
    return replace(
        settings,
        cache_bytes_max=cache_bytes,
        entry_bytes_max=min(settings.entry_bytes_max, cache_bytes),
    )
