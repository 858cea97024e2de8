"""Hot key: keep the answer of a key for a moment when the reads it saves are worth a stale answer.

    saved   = reads of the key in the last one to two windows, without this one, * ttl / window
    offered = the load that the engine would have if every read went to it; 1: all it can do
    a key is hot if  saved * min(offered, 1) ** 4 >= 1/2

On an overloaded engine a key is hot at its second read within a ttl. On a half loaded one it must
save 8 reads in a ttl, at a quarter of the load 128, and an idle engine answers every read itself: a
stale answer has a price, and a read that costs the engine nothing is not worth it. No number of
reads a second is hot by itself.

    COLD       not hot: fetch it, keep nothing
    MISS       hot, and not kept: fetch it once for all who wait, and `fill`
    FRESH      serve it
    REFRESH    serve it; this reader, one of many, fetches ahead, and `fill`s
    STALE      fetch it; if that fails, serve this, at most `stale_us` past its time
    NEGATIVE   it is known not to exist, for a shorter time

The reads of a key come from a Space-Saving counter: a caller that cycles through endless keys does
not raise what is guaranteed to one of them. The offered load comes from `OfferedLoad`, one for each
engine or shard. When the cache is full, a new answer must be read more often than all those
together that it would push out, so the space goes to the most reads per byte.

Writes: `fill = begin(key, now)`, fetch, `fill.put(...)`; and `invalidate(key)` when a write is
done, before it is acknowledged. A fill whose key was written meanwhile is void. A strong read
bypasses the cache (`strong=True`) and is counted. So on the node that writes no read is older than
the last write, on others by at most `staleness_us_max` and one fetch.

Sources: the hot-key defence of Airbnb's Mussel dispatchers (Gaonkar, Getz and Cho, 2025), which
takes an absolute count; TinyLFU's admission with aggregated victims (Einziger et al., 2021).
Bounds: `counters`, `cache_bytes_max`; keys longer than `key_length_max` are COLD.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar, final

from sluicegate.kernels import lru_ttl
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.lru_ttl import FRESH, MISS, NEGATIVE, REFRESH, STALE, LruTtl
from sluicegate.kernels.space_saving import CAPACITY_MAX, SpaceSaving
from sluicegate.policies.settings import check_ranges, within

__all__ = [
    "COLD",
    "FRESH",
    "MISS",
    "NEGATIVE",
    "REFRESH",
    "STALE",
    "Fill",
    "HotKey",
    "HotKeySettings",
    "HotKeyStats",
    "OfferedLoad",
    "OfferedLoads",
]

COLD: Final = -1
COUNT_MAX: Final = 1 << 53
# Reads are counted in sixteenths, so that rounding on halving does not change the order.
GRAIN: Final = 16
# Forwarded reads that the offered load is a mean over: a burst of a few does not count as load, and
# at 1,000 reads a second a full engine is noticed within a tenth of a second.
LOAD_READS: Final = 64
SHARDS_MAX: Final = 10_000  # further ones share one load
_HALVED_MAX: Final = 58  # after that many halvings nothing is left

V = TypeVar("V")


@final
class OfferedLoad:
    """The load that an engine would have if no read were saved.

    Every read adds the load that it sees: 0 when the engine is idle, 1 when its slots are taken or
    requests are queued. Reads arrive at random, so they see the share of time that the engine is
    busy, `forwarded * time / slots`. The sum over all reads, per forwarded read, is therefore
    `reads * time / slots`: the load with every read forwarded. Nothing flaps when the cache takes
    the load away.
    """

    __slots__ = ("offered", "read_worth", "seen")

    def __init__(self, offered: float = 0.0) -> None:
        self.offered = offered
        self.read_worth = min(offered, 1.0) ** 4
        self.seen = 0.0  # summed over the reads since the last forwarded read

    def forward(self) -> None:
        """Count a read or write that goes to the engine."""
        offered = self.offered + (self.seen - self.offered) / LOAD_READS
        self.offered = offered
        self.seen = 0.0
        squared = offered * offered
        self.read_worth = squared * squared if offered < 1.0 else 1.0


@final
class OfferedLoads:
    """The offered load of each shard.

    `busy` returns the load of a shard now: from 0 for idle to 1 when its slots are taken or
    requests are queued for it.
    """

    __slots__ = ("_busy", "_loads")

    def __init__(self, busy: Callable[[str], float]) -> None:
        self._busy = busy
        self._loads: dict[str, OfferedLoad] = {}

    def of(self, shard: str) -> OfferedLoad:
        """Return the load of a shard."""
        load = self._loads.get(shard)
        if load is None:
            if len(self._loads) >= SHARDS_MAX:
                return self._loads[next(iter(self._loads))]
            load = self._loads[shard] = OfferedLoad()
        return load

    def see(self, shard: str) -> OfferedLoad:
        """Count a read of this shard, and return the load of the shard."""
        load = self._loads.get(shard) or self.of(shard)
        load.seen += self._busy(shard)
        return load


@dataclass(frozen=True, slots=True, kw_only=True)
class HotKeySettings:
    """How reads are counted, and for how long and in how much memory answers are kept.

    `saved_min` is the number of reads that a kept answer must save within its ttl at full load:
    half a read, so one other read of late is enough also where the load is a little below one, or
    where it was counted in the window before. The ttl: at 3,200
    reads of a key a second, one in 10,000 is forwarded if it is kept for 3.13 s; the jitter takes
    5% of 3.5 s, what is fetched ahead 15 ms.
    """

    name: str = "hot_key"
    counters: int = ranged(2_500, 1, CAPACITY_MAX)
    key_length_max: int = ranged(512, 1, 1 << 20)
    window_us: int = ranged(3_000_000, 1, COUNT_MAX)
    saved_min: float = ranged(0.5, 0.0, float(COUNT_MAX))
    cache_bytes_max: int = ranged(32 << 20, 1, lru_ttl.BYTES_MAX)
    entry_bytes_max: int = 1 << 20
    ttl_us: int = ranged(3_500_000, 1, lru_ttl.TTL_US_MAX)
    negative_ttl_us: int = 300_000
    stale_us: int = ranged(30_000_000, 0, lru_ttl.TTL_US_MAX)
    jitter: float = ranged(0.1, 0.0, 1.0)
    beta: float = ranged(1.0, 0.0, lru_ttl.BETA_MAX)

    def __post_init__(self) -> None:
        check_ranges("hot_key", self)
        within("hot_key.entry_bytes_max", self.entry_bytes_max, 1, self.cache_bytes_max)
        within("hot_key.negative_ttl_us", self.negative_ttl_us, 1, self.ttl_us)


class HotKeyStats(NamedTuple):
    """Levels now, counts since the beginning."""

    counted: int  # keys that hold a counter
    cached: int
    cached_bytes: int
    cold: int
    missed: int
    served: int  # fresh, refreshed ahead, or known not to exist
    refreshed: int
    stale: int
    filled: int
    void: int  # fills that came too late, were too large, or not worth what they would push out
    untracked: int  # keys too long to count


@final
class Fill(Generic[V]):
    """A fetch that is under way, for a hot key."""

    __slots__ = ("_begun_us", "_epoch", "_hot", "_open", "key")

    def __init__(self, hot: HotKey[V], key: str, epoch: int, begun_us: int) -> None:
        self._hot = hot
        self._epoch = epoch
        self._begun_us = begun_us
        self._open = True
        self.key = key

    def put(self, value: V, size_bytes: int, *, now_us: int, draw: float) -> bool:
        """Keep what it brought; False if the key was written meanwhile, or it has no room."""
        if not self._open:
            return False
        self._open = False
        took_us = max(0, now_us - self._begun_us)
        return self._hot.keep(self.key, value, size_bytes, self._epoch, took_us, now_us, draw)

    def put_missing(self, *, now_us: int, draw: float) -> bool:
        """Keep, for the shorter time, that there is nothing."""
        if not self._open:
            return False
        self._open = False
        return self._hot.keep_missing(self.key, self._epoch, now_us, draw)


@final
class HotKey(Generic[V]):
    """The counter and the cache."""

    __slots__ = (
        "_cache",
        "_cold",
        "_counters",
        "_filled",
        "_missed",
        "_refreshed",
        "_saved_per_count",
        "_served",
        "_stale",
        "_untracked",
        "_void",
        "_window",
        "settings",
    )

    def __init__(self, settings: HotKeySettings) -> None:
        self.settings = settings
        self._counters = SpaceSaving(settings.counters, key_length_max=settings.key_length_max)
        self._cache: LruTtl[V] = LruTtl(
            settings.cache_bytes_max,
            ttl_us=settings.ttl_us,
            stale_us=settings.stale_us,
            negative_ttl_us=settings.negative_ttl_us,
            jitter=settings.jitter,
            beta=settings.beta,
            entry_bytes_max=settings.entry_bytes_max,
            admission=self._counters.guaranteed,
        )
        self._saved_per_count = _saved_per_count(settings)
        self._window = -1
        self._cold = self._missed = self._served = self._refreshed = self._stale = 0
        self._filled = self._void = self._untracked = 0

    def replace(self, settings: HotKeySettings) -> None:
        """Go by these times and bounds of the cache; what is kept keeps its own end.

        Counters and their window stay as they are.
        """
        self.settings = settings
        self._saved_per_count = _saved_per_count(settings)
        cache = self._cache
        cache.bytes_max = settings.cache_bytes_max  # the next answer makes room
        cache.entry_bytes_max = settings.entry_bytes_max
        cache.ttl_us = settings.ttl_us
        cache.negative_ttl_us = min(settings.negative_ttl_us, settings.ttl_us)

    @property
    def staleness_us_max(self) -> int:
        """How much older than its fetch an answer can be: fresh, and after an error."""
        return self.settings.ttl_us + self.settings.stale_us

    @property
    def reads(self) -> int:
        """The reads of the last one to two windows."""
        return self._counters.total // GRAIN

    def look(
        self,
        key: str,
        now_us: int,
        draw: float,
        load: OfferedLoad | None = None,
        strong: bool = False,
    ) -> tuple[int, V | None]:
        """Count this key, and return what to do: one of the states above, and the value if any."""
        if self.is_hot(key, now_us, load, strong):
            return self.find(key, now_us, draw)
        return COLD, None

    def is_hot(
        self, key: str, now_us: int, load: OfferedLoad | None = None, strong: bool = False
    ) -> bool:
        """Count this read, and return whether `find` has something to say.

        Without `load` a read is worth as much as on a full engine.
        """
        if len(key) > self.settings.key_length_max:
            self._untracked += 1
            if load is not None:
                load.forward()
            return False
        window = now_us // self.settings.window_us
        if window > self._window:
            self._age(window)
        before = self._counters.update(key, GRAIN) - GRAIN
        worth = before * self._saved_per_count
        if load is not None:
            worth *= load.read_worth
        if strong or worth < self.settings.saved_min:
            self._cold += 1
            if load is not None:
                load.forward()
            return False
        return True

    def find(self, key: str, now_us: int, draw: float) -> tuple[int, V | None]:
        """Look up a key that is hot."""
        state, value = self._cache.get(key, now_us, draw)
        if state == MISS:
            self._missed += 1
        elif state == STALE:
            self._stale += 1
        else:
            self._served += 1
            if state == REFRESH:
                self._refreshed += 1
        return state, value

    def begin(self, key: str, now_us: int, load: OfferedLoad | None = None) -> Fill[V]:
        """Begin a fetch after MISS, STALE or REFRESH; before the read, or a write is missed."""
        if load is not None:
            load.forward()
        return Fill(self, key, self._cache.begin(key), now_us)

    def invalidate(self, key: str) -> bool:
        """The key has been written: forget it, and void all fetches under way."""
        return self._cache.invalidate(key)

    def top(self, k: int) -> list[tuple[str, int]]:
        """The keys read most in the last one to two windows, and the reads guaranteed of each."""
        return [
            (str(heavy.key), heavy.guaranteed // GRAIN)
            for heavy in self._counters.top(k)
            if heavy.guaranteed > GRAIN
        ]

    def keep(
        self,
        key: str,
        value: V,
        size_bytes: int,
        epoch: int,
        fetch_us: int,
        now_us: int,
        draw: float,
    ) -> bool:
        """Keep what a fetch brought; called by a `Fill`."""
        stored = self._cache.put(
            key,
            value,
            size_bytes + len(key),
            epoch=epoch,
            now_us=now_us,
            draw=draw,
            fetch_us=fetch_us,
        )
        self._count_fill(stored)
        return stored

    def keep_missing(self, key: str, epoch: int, now_us: int, draw: float) -> bool:
        """Keep that a fetch brought nothing; called by a `Fill`."""
        stored = self._cache.put_negative(key, len(key), epoch=epoch, now_us=now_us, draw=draw)
        self._count_fill(stored)
        return stored

    def refuse(self) -> None:
        """Who was just to be served was refused instead: count it as not served."""
        self._served -= 1

    def stats(self) -> HotKeyStats:
        """What it looks like now."""
        return HotKeyStats(
            len(self._counters),
            len(self._cache),
            self._cache.bytes_used,
            self._cold,
            self._missed,
            self._served,
            self._refreshed,
            self._stale,
            self._filled,
            self._void,
            self._untracked,
        )

    def _age(self, window: int) -> None:
        passed = window - self._window if self._window >= 0 else 0
        self._window = window
        for _ in range(min(passed, _HALVED_MAX)):
            self._counters.halve()

    def _count_fill(self, stored: bool) -> None:
        if stored:
            self._filled += 1
        else:
            self._void += 1


def _saved_per_count(settings: HotKeySettings) -> float:
    """Reads within a ttl, of each unit that the counter remembers."""
    return settings.ttl_us / (settings.window_us * GRAIN)
