"""LRU with TTL: a cache bounded in bytes, whose entries die young and never outlive a write.

Source: least recently used, with the times of HTTP caching (RFC 5861: serve stale while it is
revalidated); the early refresh is Vattani, Chierichetti and Lowenstein, "Optimal Probabilistic
Cache Stampede Prevention" (2015); the epoch of a fill is the lease of Nishtala et al., "Scaling
Memcache at Facebook" (2013), kept locally; admission is TinyLFU's with aggregated victims (Einziger
et al., "Lightweight Robust Size Aware Cache Management", 2021).

    expires = now + ttl * (1 - jitter * draw)            never later than the ttl, so it is a bound
    refresh when   now - fetch_us * beta * ln(1 - draw) >= expires
    served fresh until expires, then stale until expires + stale_us, then not at all

An answer is thus at most `ttl_us + stale_us` older than the fetch that brought it (plus that
fetch's own time). Entries put together do not expire together; and each reader of an entry with
time r to live is told to refresh it with the probability exp(-r / (fetch_us * beta)), so that one
of many does while the others are still served. What was not found is kept as a *negative* entry,
for a shorter time, and is never stale and never refreshed early.

A fill must not bring back what a write has replaced meanwhile:

    epoch = begin(key) ... fetch ... put(key, value, epoch, ...)       the write: invalidate(key)

`put` is void when the epoch moved. Call `invalidate` when the write is done, before it is
acknowledged: a fetch begun earlier is then void, and one begun later sees the write. (A write whose
outcome is unknown may land later; there the ttl is the bound.) What was changed: an epoch for every
key would be a table without a bound, so keys share `epoch_slots` of them. Two keys in one slot cost
a needless fetch now and then, never a stale answer.

What was changed in the order of things: dead entries are not swept. Entries are also linked in the
order they were written, negative ones apart, and since each order has one ttl it is nearly the
order of death. Each put takes up to two dead ones from the old ends, so they go twice as fast as
entries come; jitter can hide a dead one behind a live one for `ttl * jitter`.

`admission` returns how often a key is read. With it, a new key that needs room must be read more
often than all live entries together that it would push out; otherwise nothing is pushed out.

A clock that goes back stands still here until it has caught up: nothing gets a negative age, and
what expired stays expired. On a clock that steps back by s an entry may live s longer.

Cost: O(1) a call, amortised over the entries a put evicts; no call looks at all entries.
Bounds: `bytes_max` over all entries, `entry_bytes_max` for one; an entry costs its `size_bytes`,
key and value, as the caller counts them, and `overhead_bytes` (measured: under 200 compiled, about
300 interpreted). A value too large is not kept, and neither is the old one it replaces.
Not good at: strong reads, which must go round it; scans, without admission. Not for threads.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Final, Generic, TypeAlias, TypeVar, final

from sluicegate.kernels.bounds import within
from sluicegate.kernels.count_min import fingerprint

Key: TypeAlias = str | bytes
V = TypeVar("V")

# What `get` found. NEGATIVE: known not to exist. REFRESH and STALE: use it, and fetch it anew.
MISS: Final = 0
FRESH: Final = 1
REFRESH: Final = 2
STALE: Final = 3
NEGATIVE: Final = 4

BYTES_MAX: Final = 1 << 53
TTL_US_MAX: Final = 1 << 53
ENTRY_BYTES: Final = 320
EPOCH_SLOTS_MAX: Final = 1 << 24
BETA_MAX: Final = 1000.0
_RECLAIMED_MAX: Final = 2


def expiry_us(now_us: int, ttl_us: int, jitter: float, draw: float) -> int:
    """When an entry written now expires: up to `jitter` of its ttl early."""
    return now_us + ttl_us - int(ttl_us * jitter * draw)


def refresh_due(now_us: int, expires_us: int, fetch_us: int, beta: float, draw: float) -> bool:
    """Whether this reader should fetch anew: the likelier, the nearer and the dearer it is."""
    return now_us - fetch_us * beta * log(1.0 - draw) >= expires_us


@final
class _Entry(Generic[V]):
    """A value in two rings: by use (`older`, `newer`) and by writing (`earlier`, `later`)."""

    __slots__ = (
        "cost_bytes",
        "dead_us",
        "earlier",
        "expires_us",
        "fetch_us",
        "key",
        "later",
        "negative",
        "newer",
        "older",
        "value",
    )

    def __init__(self, key: Key, value: V | None, cost_bytes: int) -> None:
        self.key = key
        self.value = value
        self.cost_bytes = cost_bytes
        self.negative = False
        self.expires_us = 0
        self.dead_us = 0
        self.fetch_us = 0
        self.older: _Entry[V] = self
        self.newer: _Entry[V] = self
        self.earlier: _Entry[V] = self
        self.later: _Entry[V] = self


@final
class LruTtl(Generic[V]):
    """At most `bytes_max` of values, each served for `ttl_us` and, stale, `stale_us` more."""

    __slots__ = (
        "_by_use",
        "_entries",
        "_epochs",
        "_found",
        "_missing",
        "_now_us",
        "admission",
        "beta",
        "bytes_max",
        "bytes_used",
        "entry_bytes_max",
        "jitter",
        "negative_ttl_us",
        "overhead_bytes",
        "stale_us",
        "ttl_us",
    )

    def __init__(
        self,
        bytes_max: int,
        *,
        ttl_us: int,
        stale_us: int = 0,
        negative_ttl_us: int | None = None,
        jitter: float = 0.1,
        beta: float = 1.0,
        entry_bytes_max: int | None = None,
        overhead_bytes: int = ENTRY_BYTES,
        epoch_slots: int = 4096,
        admission: Callable[[Key], int] | None = None,
    ) -> None:
        entry_max = bytes_max if entry_bytes_max is None else entry_bytes_max
        negative_us = (ttl_us + 9) // 10 if negative_ttl_us is None else negative_ttl_us
        within("bytes_max", bytes_max, 1, BYTES_MAX)
        within("ttl_us", ttl_us, 1, TTL_US_MAX)
        within("stale_us", stale_us, 0, TTL_US_MAX)
        within("negative_ttl_us", negative_us, 1, ttl_us)
        within("entry_bytes_max", entry_max, 1, bytes_max)
        within("overhead_bytes", overhead_bytes, 0, BYTES_MAX)
        within("epoch_slots", epoch_slots, 1, EPOCH_SLOTS_MAX)
        if not 0.0 <= jitter <= 1.0:
            raise ValueError(f"jitter must be from 0 to 1, not {jitter}")
        if not 0.0 <= beta <= BETA_MAX:
            raise ValueError(f"beta must be from 0 to 1000, not {beta}")
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self.ttl_us = ttl_us
        self.stale_us = stale_us
        self.negative_ttl_us = negative_us
        self.jitter = jitter
        self.beta = beta
        self.entry_bytes_max = entry_max
        self.overhead_bytes = overhead_bytes
        self.admission = admission
        self._now_us = 0
        self._epochs = [0] * epoch_slots
        self._entries: dict[Key, _Entry[V]] = {}
        # Three rings, each closed by an entry that is none: after it stands the ring's first.
        self._by_use: _Entry[V] = _Entry("", None, 0)
        self._found: _Entry[V] = _Entry("", None, 0)
        self._missing: _Entry[V] = _Entry("", None, 0)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key, now_us: int, draw: float) -> tuple[int, V | None]:
        """What is known of `key`: one of the states above, and the value if there is one."""
        if not 0.0 <= draw < 1.0:
            raise ValueError(f"draw must be from 0 to below 1, not {draw}")
        if now_us < self._now_us:
            now_us = self._now_us
        else:
            self._now_us = now_us
        entry = self._entries.get(key)
        if entry is None:
            return MISS, None
        if now_us >= entry.dead_us:
            self._drop(entry)
            return MISS, None
        if entry is not self._by_use.older:
            entry.older.newer = entry.newer
            entry.newer.older = entry.older
            self._use(entry)
        if entry.negative:
            return NEGATIVE, None
        if now_us >= entry.expires_us:
            return STALE, entry.value
        fetch_us = entry.fetch_us
        if fetch_us and refresh_due(now_us, entry.expires_us, fetch_us, self.beta, draw):
            return REFRESH, entry.value
        return FRESH, entry.value

    def begin(self, key: Key) -> int:
        """The epoch of `key`, to be taken when a fetch begins and handed to its `put`."""
        return self._epochs[fingerprint(key) % len(self._epochs)]

    def invalidate(self, key: Key) -> bool:
        """Forget `key` after a write, and void every fetch of it that is under way."""
        self._epochs[fingerprint(key) % len(self._epochs)] += 1
        entry = self._entries.get(key)
        if entry is None:
            return False
        self._drop(entry)
        return True

    def put(
        self,
        key: Key,
        value: V,
        size_bytes: int,
        *,
        epoch: int,
        now_us: int,
        draw: float,
        fetch_us: int = 0,
    ) -> bool:
        """Keep what a fetch of `fetch_us` brought, if no write came in between and it has room."""
        within("fetch_us", fetch_us, 0, TTL_US_MAX)
        return self._put(key, value, size_bytes, epoch, now_us, draw, fetch_us, False)

    def put_negative(
        self, key: Key, size_bytes: int, *, epoch: int, now_us: int, draw: float
    ) -> bool:
        """Keep, for the shorter time, that `key` does not exist."""
        return self._put(key, None, size_bytes, epoch, now_us, draw, 0, True)

    def reclaim(self, now_us: int, most: int) -> int:
        """Remove up to `most` dead entries, earliest written first, and say how many it was."""
        if now_us < self._now_us:
            now_us = self._now_us
        removed = 0
        while removed < most:
            entry = self._missing.later
            if entry is self._missing or now_us < entry.dead_us:
                entry = self._found.later
                if entry is self._found or now_us < entry.dead_us:
                    break
            self._drop(entry)
            removed += 1
        return removed

    def _put(
        self,
        key: Key,
        value: V | None,
        size_bytes: int,
        epoch: int,
        now_us: int,
        draw: float,
        fetch_us: int,
        negative: bool,
    ) -> bool:
        within("size_bytes", size_bytes, 0, BYTES_MAX)
        if not 0.0 <= draw < 1.0:
            raise ValueError(f"draw must be from 0 to below 1, not {draw}")
        if self._epochs[fingerprint(key) % len(self._epochs)] != epoch:
            return False
        if now_us < self._now_us:
            now_us = self._now_us
        else:
            self._now_us = now_us
        self.reclaim(now_us, _RECLAIMED_MAX)
        replaced = self._entries.get(key)
        if replaced is not None:
            self._drop(replaced)
        cost_bytes = size_bytes + self.overhead_bytes
        if cost_bytes > self.entry_bytes_max:
            return False
        if not self._make_room(key, cost_bytes, replaced is not None, now_us):
            return False
        entry: _Entry[V] = _Entry(key, value, cost_bytes)
        entry.fetch_us = fetch_us
        ring = self._found
        if negative:
            ring = self._missing
            entry.negative = True
            entry.expires_us = expiry_us(now_us, self.negative_ttl_us, self.jitter, draw)
            entry.dead_us = entry.expires_us
        else:
            entry.expires_us = expiry_us(now_us, self.ttl_us, self.jitter, draw)
            entry.dead_us = entry.expires_us + self.stale_us
        entry.earlier = ring.earlier
        entry.later = ring
        ring.earlier.later = entry
        ring.earlier = entry
        self._use(entry)
        self._entries[key] = entry
        self.bytes_used += cost_bytes
        return True

    def _make_room(self, key: Key, cost_bytes: int, known: bool, now_us: int) -> bool:
        """Evict from the least recently used until it fits, unless those are read more often."""
        most = self.bytes_max - cost_bytes
        if self.admission is not None and not known and self.bytes_used > most:
            left = self.admission(key)
            used = self.bytes_used
            victim = self._by_use.newer  # the first: nothing is older
            while used > most:
                if now_us < victim.dead_us:
                    left -= self.admission(victim.key)
                    if left <= 0:
                        return False
                used -= victim.cost_bytes
                victim = victim.newer
        while self.bytes_used > most:
            self._drop(self._by_use.newer)
        return True

    def _use(self, entry: _Entry[V]) -> None:
        """Make an entry that is in no ring of use the newest."""
        ring = self._by_use
        newest = ring.older
        entry.older = newest
        entry.newer = ring
        newest.newer = entry
        ring.older = entry

    def _drop(self, entry: _Entry[V]) -> None:
        entry.older.newer = entry.newer
        entry.newer.older = entry.older
        entry.earlier.later = entry.later
        entry.later.earlier = entry.earlier
        del self._entries[entry.key]
        self.bytes_used -= entry.cost_bytes
