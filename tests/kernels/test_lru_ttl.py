from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from math import exp, inf, nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.count_min import CountMin, fingerprint
from sluicegate.kernels.lru_ttl import (
    FRESH,
    MISS,
    NEGATIVE,
    REFRESH,
    STALE,
    LruTtl,
    expiry_us,
    refresh_due,
)

SECOND = 1_000_000
KEYS = [f"key{number}" for number in range(8)]


def cache_of(
    entries: int, stale_us: int = 0, entry_bytes_max: int | None = None, epoch_slots: int = 4096
) -> LruTtl[str]:
    """A cache with room for so many entries of 10 bytes, without jitter."""
    return LruTtl(
        10 * entries,
        ttl_us=3 * SECOND,
        stale_us=stale_us,
        jitter=0.0,
        entry_bytes_max=entry_bytes_max,
        overhead_bytes=0,
        epoch_slots=epoch_slots,
    )


def put(cache: LruTtl[str], key: str, value: str = "v", now_us: int = 0, size: int = 10) -> bool:
    return cache.put(key, value, size, epoch=cache.begin(key), now_us=now_us, draw=0.0)


def keys_by_use(cache: LruTtl[str]) -> list[str]:
    """The least recently used first, read off the links."""
    keys, entry = [], cache._by_use.newer
    while entry is not cache._by_use:
        keys.append(str(entry.key))
        entry = entry.newer
    return keys


# What is served, and for how long.


def test_a_value_is_fresh_for_its_ttl_and_not_a_microsecond_longer() -> None:
    cache = cache_of(4)
    assert cache.get("a", 0, 0.5) == (MISS, None)
    assert put(cache, "a", "value", now_us=100)
    assert cache.get("a", 100, 0.5) == (FRESH, "value")
    assert cache.get("a", 3 * SECOND + 99, 0.5) == (FRESH, "value")
    assert cache.get("a", 3 * SECOND + 100, 0.5) == (MISS, None)
    assert (len(cache), cache.bytes_used) == (0, 0)


def test_past_its_ttl_it_is_served_stale_within_the_bound_and_then_not_at_all() -> None:
    cache = cache_of(4, stale_us=SECOND)
    put(cache, "a", "old")
    assert cache.get("a", 3 * SECOND, 0.5) == (STALE, "old")
    assert cache.get("a", 4 * SECOND - 1, 0.5) == (STALE, "old")
    assert cache.get("a", 4 * SECOND, 0.5) == (MISS, None)


def test_what_does_not_exist_is_known_for_a_tenth_of_the_time_and_never_stale() -> None:
    cache = cache_of(4, stale_us=SECOND)
    assert cache.negative_ttl_us == 300_000
    assert cache.put_negative("a", 10, epoch=cache.begin("a"), now_us=0, draw=0.0)
    assert cache.get("a", 299_999, 0.999) == (NEGATIVE, None)
    assert cache.get("a", 300_000, 0.5) == (MISS, None)


def test_a_value_of_none_is_not_the_same_as_not_existing() -> None:
    cache: LruTtl[None] = LruTtl(1_000, ttl_us=SECOND, overhead_bytes=0)
    cache.put("a", None, 10, epoch=0, now_us=0, draw=0.0)
    assert cache.get("a", 0, 0.5) == (FRESH, None)


def test_a_found_value_replaces_a_negative_one() -> None:
    cache = cache_of(4)
    cache.put_negative("a", 10, epoch=0, now_us=0, draw=0.0)
    put(cache, "a", "found", now_us=1)
    assert cache.get("a", SECOND, 0.5) == (FRESH, "found")
    assert len(cache) == 1


def test_jitter_only_ever_shortens_a_life() -> None:
    assert expiry_us(1_000, 100, 0.2, 0.0) == 1_100
    assert expiry_us(1_000, 100, 0.2, 0.5) == 1_090
    assert expiry_us(1_000, 100, 0.2, 0.999) == 1_081
    assert expiry_us(0, 1 << 53, 1.0, 0.999_999_999_999) > 0
    cache: LruTtl[str] = LruTtl(1_000, ttl_us=100, negative_ttl_us=50, jitter=0.2)
    cache.put("a", "v", 10, epoch=0, now_us=0, draw=0.5)
    cache.put_negative("b", 10, epoch=0, now_us=0, draw=0.5)
    assert cache.get("b", 44, 0.0)[0] == NEGATIVE
    assert cache.get("b", 45, 0.0)[0] == MISS
    assert cache.get("a", 89, 0.0)[0] == FRESH
    assert cache.get("a", 90, 0.0)[0] == MISS


def test_a_refresh_is_due_the_likelier_the_nearer_the_expiry_and_the_dearer_the_fetch() -> None:
    draws = [number / 10_000 for number in range(10_000)]
    for remaining_us, fetch_us, beta in ((1_000, 1_000, 1.0), (3_000, 1_000, 1.0), (500, 250, 4.0)):
        refreshes = sum(refresh_due(0, remaining_us, fetch_us, beta, draw) for draw in draws)
        assert refreshes / 10_000 == pytest.approx(exp(-remaining_us / (fetch_us * beta)), abs=2e-4)
    assert refresh_due(5, 5, 0, 1.0, 0.0)
    assert not refresh_due(4, 5, 0, 1.0, 0.999)


def test_a_reader_is_told_to_refresh_early_and_served_all_the_same() -> None:
    cache = cache_of(4)
    cache.put("a", "v", 10, epoch=0, now_us=0, draw=0.0, fetch_us=100_000)
    near_us = 3 * SECOND - 100_000
    assert cache.get("a", 0, 0.999) == (FRESH, "v")
    assert cache.get("a", near_us, 0.60) == (FRESH, "v")  # -ln(0.4) = 0.92
    assert cache.get("a", near_us, 0.64) == (REFRESH, "v")  # -ln(0.36) = 1.02
    eager: LruTtl[str] = LruTtl(1_000, ttl_us=3 * SECOND, beta=2.0, jitter=0.0)
    eager.put("a", "v", 10, epoch=0, now_us=0, draw=0.0, fetch_us=100_000)
    assert eager.get("a", near_us, 0.60) == (REFRESH, "v")


# Room, and who has to go.


def test_the_least_recently_used_goes_first() -> None:
    cache = cache_of(3)
    for key in "abc":
        put(cache, key)
    cache.get("a", 1, 0.5)
    put(cache, "d", now_us=2)
    assert keys_by_use(cache) == ["c", "a", "d"]
    cache.get("d", 3, 0.5)
    cache.get("c", 3, 0.5)
    put(cache, "e", now_us=3)
    assert keys_by_use(cache) == ["d", "c", "e"]


def test_a_large_entry_pushes_out_as_many_as_it_needs_and_no_more() -> None:
    cache = cache_of(4)
    for key in "abcd":
        put(cache, key)
    put(cache, "large", size=20)
    assert keys_by_use(cache) == ["c", "d", "large"]
    assert cache.bytes_used == 40


def test_every_entry_is_charged_for_its_upkeep() -> None:
    cache: LruTtl[str] = LruTtl(1_000, ttl_us=SECOND, overhead_bytes=90)
    for number in range(20):
        put(cache, f"k{number}", size=10)
    assert (len(cache), cache.bytes_used) == (10, 1_000)


def test_an_entry_too_large_is_not_kept_and_its_predecessor_is_not_left_behind() -> None:
    cache = cache_of(4, entry_bytes_max=15)
    assert put(cache, "a", "old", size=15)
    put(cache, "b")
    assert not put(cache, "a", "new", size=16)
    assert keys_by_use(cache) == ["b"]
    assert not put(cache, "huge", size=1 << 53)
    assert keys_by_use(cache) == ["b"]


def test_a_replacement_is_charged_once() -> None:
    cache = cache_of(4)
    put(cache, "a", "old", size=30)
    put(cache, "a", "new", size=40)
    assert (len(cache), cache.bytes_used) == (1, 40)
    assert cache.get("a", 0, 0.5) == (FRESH, "new")


def test_a_cache_with_room_for_one_holds_one() -> None:
    cache = cache_of(1)
    put(cache, "a")
    put(cache, "b")
    assert keys_by_use(cache) == ["b"]


def test_the_dead_leave_two_at_a_put_and_never_all_at_once() -> None:
    cache = cache_of(1_000)
    for number in range(100):
        put(cache, f"old{number}", now_us=number)
    late_us = 10 * SECOND
    sizes = []
    for number in range(101):
        put(cache, f"new{number}", now_us=late_us)
        sizes.append(len(cache))
    assert sizes[:50] == list(range(99, 49, -1))
    assert sizes[50:] == list(range(51, 102))


def test_negative_entries_die_first_and_do_not_wait_behind_the_others() -> None:
    cache = cache_of(100)
    put(cache, "found")
    for number in range(4):
        cache.put_negative(f"missing{number}", 10, epoch=0, now_us=1, draw=0.0)
    put(cache, "later", now_us=SECOND)
    assert keys_by_use(cache) == ["found", "missing2", "missing3", "later"]
    assert cache.reclaim(SECOND, 10) == 2
    assert cache.reclaim(3 * SECOND, 10) == 1
    assert cache.reclaim(3 * SECOND, 10) == 0
    assert keys_by_use(cache) == ["later"]


# Never a stale answer after a write.


def test_a_fetch_that_began_before_a_write_does_not_fill() -> None:
    cache = cache_of(4)
    epoch = cache.begin("a")
    assert not cache.invalidate("a")
    assert not cache.put("a", "before the write", 10, epoch=epoch, now_us=0, draw=0.0)
    assert not cache.put_negative("a", 10, epoch=epoch, now_us=0, draw=0.0)
    assert cache.get("a", 0, 0.5) == (MISS, None)
    assert put(cache, "a", "after the write")
    assert cache.invalidate("a")
    assert cache.get("a", 0, 0.5) == (MISS, None)
    assert cache.bytes_used == 0


def test_a_write_voids_only_fetches_of_its_own_key() -> None:
    cache = cache_of(4)
    epoch = cache.begin("a")
    cache.invalidate("b")
    assert cache.put("a", "v", 10, epoch=epoch, now_us=0, draw=0.0)


def test_keys_that_share_an_epoch_lose_a_fetch_and_never_serve_a_stale_answer() -> None:
    cache = cache_of(4, epoch_slots=1)
    put(cache, "a")
    epoch = cache.begin("a")
    cache.invalidate("b")
    assert not cache.put("a", "v", 10, epoch=epoch, now_us=0, draw=0.0)
    assert cache.get("a", 0, 0.5) == (FRESH, "v")


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 4096]))
def test_no_interleaving_of_readers_and_writers_serves_what_a_finished_write_replaced(
    seed: int, slots: int
) -> None:
    random = Random(seed)
    cache: LruTtl[int] = LruTtl(10_000, ttl_us=SECOND, epoch_slots=slots)
    stored: Counter[str] = Counter()  # the backend: the version of each key
    finished: Counter[str] = Counter()  # the version whose write has been acknowledged
    fetches: list[tuple[str, int, int | None]] = []
    writes: list[tuple[str, int]] = []
    for now_us in range(60):
        key = random.choice("ab")
        match random.randrange(6):
            case 0:
                fetches.append((key, cache.begin(key), None))
            case 1 if fetches:
                read, epoch, _ = fetches.pop(random.randrange(len(fetches)))
                fetches.append((read, epoch, stored[read]))
            case 2 if fetches:
                read, epoch, version = fetches.pop(random.randrange(len(fetches)))
                if version is not None:
                    cache.put(read, version, 1, epoch=epoch, now_us=now_us, draw=0.0)
            case 3:
                stored[key] += 1
                writes.append((key, stored[key]))
            case 4 if writes:
                written, version = writes.pop(0)
                cache.invalidate(written)
                finished[written] = max(finished[written], version)
            case _:
                state, served = cache.get(key, now_us, 0.5)
                if state != MISS:
                    assert served is not None
                    assert served >= finished[key]


# The doorman.


def test_new_key_must_be_read_more_than_all_it_pushes_out() -> None:
    reads: Counter[str | bytes] = Counter({"warm": 2, "hot": 3, "new": 2, "large": 6})
    cache: LruTtl[str] = LruTtl(
        20, ttl_us=SECOND, overhead_bytes=0, jitter=0.0, admission=reads.__getitem__
    )
    put(cache, "warm")
    put(cache, "hot")
    assert not put(cache, "new")
    assert keys_by_use(cache) == ["warm", "hot"], "nothing was pushed out for it"
    reads["new"] += 1
    assert put(cache, "new")
    assert keys_by_use(cache) == ["hot", "new"]
    assert not put(cache, "large", size=20)  # 6 reads, no more than both together
    assert keys_by_use(cache) == ["hot", "new"]
    assert put(cache, "new", "bigger", size=20)  # a known key is not judged again


def test_dead_entries_do_not_count_against_a_new_key() -> None:
    reads: Counter[str | bytes] = Counter("abcd")
    reads["new"] = 1
    cache: LruTtl[str] = LruTtl(
        40, ttl_us=SECOND, overhead_bytes=0, jitter=0.0, admission=reads.__getitem__
    )
    for key in "abcd":
        put(cache, key)
    assert not put(cache, "new", now_us=SECOND - 1, size=40)
    assert put(cache, "new", now_us=SECOND, size=40)
    assert keys_by_use(cache) == ["new"]


def test_scan_does_not_wash_out_cache_with_admission() -> None:
    def hit_ratio(sketch: CountMin | None) -> float:
        random = Random(11)
        admission = None if sketch is None else lambda key: sketch.estimate(fingerprint(key))
        cache: LruTtl[str] = LruTtl(
            200, ttl_us=3_600 * SECOND, overhead_bytes=0, jitter=0.0, admission=admission
        )
        odds = list(accumulate(1 / (rank + 1) for rank in range(2_000)))
        reads = hits = 0
        for number in range(20_000):
            if number % 2:
                key = f"scan{number}"
            else:
                key = f"page{random.choices(range(2_000), cum_weights=odds)[0]}"
                reads += 1
            if sketch is not None:
                sketch.add(fingerprint(key))
            state, _ = cache.get(key, number, 0.5)
            hits += state == FRESH
            if state == MISS:
                put(cache, key, now_us=number, size=1)
        return hits / reads

    # Half of all requests scan. The 200 most wanted pages, known beforehand, would give 0.72.
    assert hit_ratio(None) < 0.48
    assert hit_ratio(CountMin(1024)) > 0.64


# Clocks and bad input.


def test_a_clock_that_goes_back_stands_still_until_it_has_caught_up() -> None:
    cache = cache_of(4, stale_us=SECOND)
    put(cache, "a", now_us=10 * SECOND)
    assert cache.get("a", 13 * SECOND, 0.5)[0] == STALE
    assert cache.get("a", 2 * SECOND, 0.5)[0] == STALE
    put(cache, "b", now_us=0)
    assert cache.get("b", 15 * SECOND, 0.5)[0] == FRESH
    assert cache.reclaim(0, 9) == 1
    assert cache.get("b", 16 * SECOND, 0.5)[0] == STALE


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"bytes_max": 0}, "bytes_max must be from 1 to 2\\^53, not 0"),
        ({"ttl_us": 0}, "ttl_us must be from 1 to 2\\^53, not 0"),
        ({"stale_us": -1}, "stale_us must be from 0"),
        ({"negative_ttl_us": 0}, "negative_ttl_us must be from 1 to 100, not 0"),
        ({"negative_ttl_us": 101}, "negative_ttl_us must be from 1 to 100, not 101"),
        ({"entry_bytes_max": 0}, "entry_bytes_max must be from 1 to 1000, not 0"),
        ({"entry_bytes_max": 1_001}, "entry_bytes_max must be from 1 to 1000, not 1001"),
        ({"overhead_bytes": -1}, "overhead_bytes must be from 0"),
        ({"epoch_slots": 0}, "epoch_slots must be from 1 to 2\\^24, not 0"),
        ({"jitter": 1.1}, "jitter must be from 0 to 1, not 1.1"),
        ({"jitter": nan}, "jitter must be from 0 to 1, not nan"),
        ({"beta": -0.1}, "beta must be from 0 to 1000, not -0.1"),
        ({"beta": inf}, "beta must be from 0 to 1000, not inf"),
    ],
)
def test_a_setting_out_of_range_is_refused(settings: dict[str, float], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        LruTtl(**{"bytes_max": 1_000, "ttl_us": 100, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize("draw", [-0.1, 1.0, nan])
def test_a_draw_out_of_range_is_refused(draw: float) -> None:
    cache = cache_of(4)
    with pytest.raises(ValueError, match="draw must be from 0 to below 1"):
        cache.get("a", 0, draw)
    with pytest.raises(ValueError, match="draw must be from 0 to below 1"):
        cache.put("a", "v", 10, epoch=0, now_us=0, draw=draw)


def test_a_negative_size_or_fetch_time_is_refused() -> None:
    cache = cache_of(4)
    with pytest.raises(ValueError, match="size_bytes must be from 0 to 2\\^53, not -1"):
        put(cache, "a", size=-1)
    with pytest.raises(ValueError, match="fetch_us must be from 0 to 2\\^53, not -1"):
        cache.put("a", "v", 1, epoch=0, now_us=0, draw=0.0, fetch_us=-1)


# The oracle.


@dataclass
class OracleEntry:
    key: str
    value: str | None
    size: int
    expires_us: int
    dead_us: int
    fetch_us: int

    @property
    def negative(self) -> bool:
        return self.value is None


class SlowCache:
    """The oracle: two lists, one by use and one by writing, and everything is searched for."""

    def __init__(self, bytes_max: int, entry_max: int, ttl_us: int, stale_us: int) -> None:
        self.bytes_max, self.entry_max = bytes_max, entry_max
        self.ttl_us, self.stale_us = ttl_us, stale_us
        self.now_us = 0
        self.by_use: list[OracleEntry] = []
        self.written: list[OracleEntry] = []
        self.epochs: Counter[str] = Counter()
        self.requests: Counter[str | bytes] = Counter()
        self.doorman = False

    def used(self) -> int:
        return sum(entry.size for entry in self.by_use)

    def find(self, key: str) -> OracleEntry | None:
        return next((entry for entry in self.by_use if entry.key == key), None)

    def drop(self, entry: OracleEntry) -> None:
        self.by_use = [other for other in self.by_use if other is not entry]
        self.written = [other for other in self.written if other is not entry]

    def get(self, key: str, now_us: int, draw: float) -> tuple[int, str | None]:
        self.requests[key] += 1
        self.now_us = max(self.now_us, now_us)
        entry = self.find(key)
        if entry is None:
            return MISS, None
        if self.now_us >= entry.dead_us:
            self.drop(entry)
            return MISS, None
        self.by_use = [other for other in self.by_use if other is not entry] + [entry]
        if entry.negative:
            return NEGATIVE, None
        if self.now_us >= entry.expires_us:
            return STALE, entry.value
        due = refresh_due(self.now_us, entry.expires_us, entry.fetch_us, 1.0, draw)
        return (REFRESH if due else FRESH), entry.value

    def reclaim(self, most: int) -> None:
        for _ in range(most):
            oldest = [
                [entry for entry in self.written if entry.negative == negative][:1]
                for negative in (True, False)
            ]
            dead = [entry for entry in oldest[0] + oldest[1] if self.now_us >= entry.dead_us]
            if dead:
                self.drop(dead[0])

    def put(
        self,
        key: str,
        value: str | None,
        size: int,
        epoch: int,
        now_us: int,
        draw: float,
        fetch_us: int,
    ) -> bool:
        if self.epochs[key] != epoch:
            return False
        self.now_us = max(self.now_us, now_us)
        self.reclaim(2)
        previous = self.find(key)
        if previous is not None:
            self.drop(previous)
        if size > self.entry_max:
            return False
        victims: list[OracleEntry] = []
        while self.used() - sum(one.size for one in victims) + size > self.bytes_max:
            victims.append(self.by_use[len(victims)])
        live = [one for one in victims if self.now_us < one.dead_us]
        wanted = sum(self.requests[one.key] for one in live)
        if self.doorman and previous is None and live and self.requests[key] <= wanted:
            return False
        for victim in victims:
            self.drop(victim)
        ttl_us = -(-self.ttl_us // 10) if value is None else self.ttl_us
        expires_us = expiry_us(self.now_us, ttl_us, 0.25, draw)
        dead_us = expires_us + (0 if value is None else self.stale_us)
        entry = OracleEntry(key, value, size, expires_us, dead_us, fetch_us)
        self.by_use.append(entry)
        self.written.append(entry)
        return True

    def invalidate(self, key: str) -> bool:
        self.epochs[key] += 1
        entry = self.find(key)
        if entry is not None:
            self.drop(entry)
        return entry is not None


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 60), st.booleans())
def test_it_does_what_the_obvious_cache_does(
    seed: int, bytes_max: int, ttl_us: int, doorman: bool
) -> None:
    assert len({fingerprint(key) % 4096 for key in KEYS}) == len(KEYS)  # no epoch is shared
    random = Random(seed)
    entry_max = random.randint(1, bytes_max)
    stale_us = random.choice([0, 5])
    oracle = SlowCache(bytes_max, entry_max, ttl_us, stale_us)
    cache: LruTtl[str] = LruTtl(
        bytes_max,
        ttl_us=ttl_us,
        stale_us=stale_us,
        jitter=0.25,
        entry_bytes_max=entry_max,
        overhead_bytes=1,
        admission=oracle.requests.__getitem__ if doorman else None,
    )
    oracle.doorman = doorman
    begun: dict[str, int] = {}
    now_us = 0
    for number in range(80):
        key, draw = random.choice(KEYS), random.random()
        now_us += random.choice([0, 0, 1, 1, 2, 10, 40, -3])
        match random.randrange(8):
            case 0 | 1 | 2:
                assert cache.get(key, now_us, draw) == oracle.get(key, now_us, draw)
            case 3:
                begun[key] = cache.begin(key)
                assert begun[key] == oracle.epochs[key]
            case 4:
                assert cache.invalidate(key) == oracle.invalidate(key)
            case 5:
                epoch, size = begun.get(key, 0), random.randint(0, 4)
                assert cache.put_negative(
                    key, size, epoch=epoch, now_us=now_us, draw=draw
                ) == oracle.put(key, None, size + 1, epoch, now_us, draw, 0)
            case _:
                epoch, size, fetch_us = (
                    begun.get(key, 0),
                    random.randint(0, 12),
                    random.choice([0, 9]),
                )
                value = f"value {number}"
                assert cache.put(
                    key,
                    value,
                    size,
                    epoch=epoch,
                    now_us=now_us,
                    draw=draw,
                    fetch_us=fetch_us,
                ) == oracle.put(key, value, size + 1, epoch, now_us, draw, fetch_us)
        assert keys_by_use(cache) == [entry.key for entry in oracle.by_use]
        assert cache.bytes_used == oracle.used() <= bytes_max
        assert len(cache) == len(oracle.by_use)
