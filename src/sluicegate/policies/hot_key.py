"""Hot key: notice the few keys that everybody asks for, and keep their answers for a moment.

Judges one key by how much of the recent load is surely its own. Source: the hot-key defence of
Airbnb's Mussel dispatchers (Gaonkar, Getz and Cho, 2025): a Space-Saving counter, a local cache of
about three seconds, and one fetch for all who ask at once (`coalesce`). The kernels are
`space_saving.py` and `lru_ttl.py`.

    COLD       not hot: fetch it, keep nothing                     most keys
    MISS       hot, and not there: fetch it, and `fill`
    FRESH      serve it
    REFRESH    serve it; this reader, one of many, fetches ahead, and `fill`s
    STALE      fetch it; should that fail, serve this, at most `stale_us` past its time
    NEGATIVE   it is known not to exist, for a shorter time

A key is hot when its *guaranteed* weight reaches the threshold; whoever cycles through endless
keys raises counts and errors alike, and guarantees hardly at all. The threshold is a part of a
window's weight (`hot_permille`), so it grows with the load of the node, and at least `hot_min`.
Weights are the caller's: 1 counts hits, request units or bytes find the large value that is asked
for seldom.
Counts are halved every `window_us`; a key that cools is not served any more when its ttl is over.

Writes: `fill = begin(key, now)`, fetch, `fill.put(...)`; and `invalidate(key)` when a write is
done, before it is acknowledged. A fill whose key was written meanwhile is void. A strong read
passes by (`strong=True`): it is counted and told nothing. So on the node that writes no read is
older than the last write, on others by at most `staleness_us_max` and one fetch.

One node does not see what is hot only in sum: exchange `top` and `near` between nodes, `heed` the
one, and `heed_sums` of both. A key that has an n-th of the threshold on each of n nodes is found.

Keep the counters at 20 for each key that `top` may be asked for. The key must hold all that changes
the answer, in one spelling. What is fetched ahead has nobody waiting: give it a deadline of its
own. Cost: a counter's update (0.1 to 0.2 us compiled), a look-up where it is hot. Bounds:
`counters`, `cache_bytes_max`, `heeded_max`; keys longer than `key_length_max` are COLD; weights to
2^49.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
]

COLD: Final = -1
COUNT_MAX: Final = 1 << 53
# Weights are counted in sixteenths, so that what a halving rounds does not decide who is first.
GRAIN: Final = 16
_NEAR_MIN: Final = 2  # so much at least is guaranteed of a key that is nearly hot
_NEAR_LOOKED: Final = 5  # of so many times as many the surest are taken
_HALVED_MAX: Final = 58  # after so many halvings nothing is left

V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class HotKeySettings:
    """What is hot, and for how long an answer is kept.

    The thresholds come from a sweep: 20,000 reads a second on a node. Until all of a new set of 50
    keys were noticed (16,000 a second on them; or half of all reads, the rest fresh keys without
    end), and how many keys of Zipf 0.99 are kept, each for a counter's work and a stale moment:

        hot_min, hot_permille    100, 10 *   100, 1   50, 1   32, 1   24, 1   16, 1
        noticed in ms                1,835      575     233     166     125     104
        with endless fresh keys      never      883     494     293     210     163
        keys kept of Zipf 0.99           8       33      72     119     162     223

    (* of what is remembered, not of what comes in a window. The worst of three phases of it.)
    Of the first hundred of 20,000 reads a second by Zipf's law (0.8) 2,000 counters named 97,
    2,500 and more 99, the worst of five seeds (98 if weights are halved as whole numbers).

    The time comes from arithmetic: at 3,200 reads of a key a second, one in 10,000 is forwarded if
    it is kept for 3.13 s; the jitter takes 5% of 3.5 s, what is fetched ahead 15 ms.
    """

    name: str = "hot_key"
    counters: int = ranged(2_500, 1, CAPACITY_MAX)
    key_length_max: int = ranged(512, 1, 1 << 20)
    window_us: int = ranged(1_000_000, 1, COUNT_MAX)
    hot_min: int = ranged(24, 1, COUNT_MAX)  # guaranteed, in the last one to two windows
    hot_permille: int = ranged(1, 0, 1_000)  # and of all that comes in one
    cache_bytes_max: int = ranged(32 << 20, 1, lru_ttl.BYTES_MAX)
    entry_bytes_max: int = 1 << 20
    ttl_us: int = ranged(3_500_000, 1, lru_ttl.TTL_US_MAX)
    negative_ttl_us: int = 300_000
    stale_us: int = ranged(30_000_000, 0, lru_ttl.TTL_US_MAX)
    jitter: float = ranged(0.1, 0.0, 1.0)
    beta: float = ranged(1.0, 0.0, lru_ttl.BETA_MAX)
    heeded_max: int = ranged(1_000, 0, 1 << 20)
    heed_us: int = ranged(3_000_000, 1, COUNT_MAX)

    def __post_init__(self) -> None:
        check_ranges("hot_key", self)
        within("hot_key.entry_bytes_max", self.entry_bytes_max, 1, self.cache_bytes_max)
        within("hot_key.negative_ttl_us", self.negative_ttl_us, 1, self.ttl_us)


class HotKeyStats(NamedTuple):
    """Levels now, counts since the beginning."""

    counted: int  # keys that hold a counter
    cached: int
    cached_bytes: int
    heeded: int
    cold: int
    missed: int
    served: int  # fresh, refreshed ahead, or known not to exist
    refreshed: int
    stale: int
    filled: int
    void: int  # fills that came too late, or were too large
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
        """Keep what it brought; False if the key was written meanwhile, or it is too large."""
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
        "_heeded",
        "_missed",
        "_refreshed",
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
        )
        self._heeded: dict[str, int] = {}  # until when
        self._window = -1
        self._cold = self._missed = self._served = self._refreshed = self._stale = 0
        self._filled = self._void = self._untracked = 0

    def replace(self, settings: HotKeySettings) -> None:
        """Go by these thresholds and bounds of the cache; what is kept keeps its own end.

        Counters and their window stay as they are.
        """
        self.settings = settings
        cache = self._cache
        cache.bytes_max = settings.cache_bytes_max  # the next answer makes room
        cache.entry_bytes_max = settings.entry_bytes_max
        cache.ttl_us = settings.ttl_us
        cache.negative_ttl_us = min(settings.negative_ttl_us, settings.ttl_us)

    @property
    def staleness_us_max(self) -> int:
        """How much older than its fetch an answer can be: fresh, and after an error."""
        return self.settings.ttl_us + self.settings.stale_us

    def look(
        self, key: str, now_us: int, draw: float, weight: int = 1, strong: bool = False
    ) -> tuple[int, V | None]:
        """Count this key, and say what to do: one of the states above, and the value if any."""
        if len(key) > self.settings.key_length_max:
            self._untracked += 1
            return COLD, None
        window = now_us // self.settings.window_us
        if window > self._window:
            self._age(window)
        guaranteed = self._counters.update(key, weight * GRAIN)
        if strong or (
            guaranteed < self._threshold() and not (self._heeded and self._is_heeded(key, now_us))
        ):
            self._cold += 1
            return COLD, None
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

    def begin(self, key: str, now_us: int) -> Fill[V]:
        """Begin a fetch after MISS, STALE or REFRESH; before the read, or a write is missed."""
        return Fill(self, key, self._cache.begin(key), now_us)

    def invalidate(self, key: str) -> bool:
        """The key has been written: forget it, and void all fetches under way."""
        return self._cache.invalidate(key)

    def top(self, k: int) -> list[tuple[str, int]]:
        """The hottest keys here and what is guaranteed of each, for other nodes to heed."""
        threshold = self._threshold()
        return [
            (str(heavy.key), heavy.guaranteed // GRAIN)
            for heavy in self._counters.top(k)
            if heavy.guaranteed >= threshold
        ]

    def served(self, k: int) -> list[tuple[str, int]]:
        """The same, and those that are heeded and asked for here: all that is served as hot."""
        hot = self.top(k)
        estimates = [self._counters.estimate(key) for key in self._heeded]
        heeded = [(str(one.key), one.guaranteed // GRAIN) for one in estimates if one.guaranteed]
        hot += [one for one in heeded if one not in hot]
        return sorted(hot, key=_weight, reverse=True)[:k]

    def near(self, k: int, nodes: int) -> list[tuple[str, int]]:
        """Keys that are not hot here, but would be if they are asked for as much on each node."""
        threshold = self._threshold()
        least = max(threshold // max(nodes, 1), _NEAR_MIN * GRAIN)
        near = [
            (str(heavy.key), heavy.guaranteed // GRAIN)
            for heavy in self._counters.top(k * _NEAR_LOOKED)
            if least <= heavy.guaranteed < threshold
        ]
        return sorted(near, key=_weight, reverse=True)[:k]

    def heed_sums(self, elsewhere: Mapping[str, int], now_us: int) -> int:
        """Heed keys that are hot with what they weigh on other nodes; return how many."""
        threshold = self._threshold()
        return self.heed(
            [
                key
                for key, weight in elsewhere.items()
                if weight * GRAIN + self._counters.estimate(key).guaranteed >= threshold
            ],
            now_us,
        )

    def heed(self, keys: Iterable[str], now_us: int) -> int:
        """Hold keys from elsewhere hot for `heed_us`; return how many there was room for."""
        heeded = self._heeded
        for key in [key for key, until_us in heeded.items() if until_us <= now_us]:
            del heeded[key]
        added = 0
        for key in keys:
            if len(heeded) >= self.settings.heeded_max and key not in heeded:
                break
            if len(key) <= self.settings.key_length_max:
                heeded[key] = now_us + self.settings.heed_us
                added += 1
        return added

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
            len(self._heeded),
            self._cold,
            self._missed,
            self._served,
            self._refreshed,
            self._stale,
            self._filled,
            self._void,
            self._untracked,
        )

    def _threshold(self) -> int:
        # What is remembered is up to twice what comes in a window.
        part = self._counters.total * self.settings.hot_permille // 2_000
        least = self.settings.hot_min * GRAIN
        return part if part > least else least

    def _is_heeded(self, key: str, now_us: int) -> bool:
        until_us = self._heeded.get(key)
        if until_us is None:
            return False
        if now_us < until_us:
            return True
        del self._heeded[key]
        return False

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


def _weight(hot: tuple[str, int]) -> int:
    return hot[1]
