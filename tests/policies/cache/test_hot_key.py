"""Hot key: noticed quickly, kept for a moment, and never older than a write."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.policies.cache.hot_key import (
    COLD,
    FRESH,
    MISS,
    NEGATIVE,
    REFRESH,
    STALE,
    HotKey,
    HotKeySettings,
    OfferedLoad,
    OfferedLoads,
)

START = 1_000_000_000_000_000
# A window beyond the times of a test, and hot at the fifth read with a ttl of three seconds.
LONG: dict[str, Any] = {"window_us": 100_000_000, "saved_min": 0.12}
SECOND = 1_000_000
MS = 1_000
TTL = HotKeySettings().ttl_us


def shield(**some: object) -> HotKey[str]:
    plain: dict[str, object] = {"saved_min": 4.0, "window_us": TTL, "jitter": 0.0}
    return HotKey(HotKeySettings(**(plain | some)))  # type: ignore[arg-type]


def heated(key: str = "hot", now_us: int = START, **some: object) -> HotKey[str]:
    hot = shield(**some)
    for _ in range(4):
        assert hot.look(key, now_us, 0.5) == (COLD, None)
    assert hot.look(key, now_us, 0.5) == (MISS, None)
    return hot


def fill(hot: HotKey[str], value: str, now_us: int, took_us: int = 0, key: str = "hot") -> bool:
    return hot.begin(key, now_us - took_us).put(value, 10, now_us=now_us, draw=0.5)


def test_a_key_is_cold_until_it_is_hot_then_fetched_once_and_served() -> None:
    hot = heated()
    assert fill(hot, "answer", START)
    assert hot.look("hot", START + 1, 0.5) == (FRESH, "answer")
    assert hot.look("other", START + 1, 0.5) == (COLD, None)
    stats = hot.stats()
    assert (stats.cold, stats.missed, stats.served, stats.filled) == (5, 1, 1, 1)


def test_an_answer_is_kept_for_its_time_and_beyond_only_for_when_the_fetch_fails() -> None:
    hot = heated(ttl_us=3 * SECOND, stale_us=2 * SECOND, **LONG)
    fill(hot, "answer", START)
    assert hot.look("hot", START + 3 * SECOND - 1, 0.0)[0] == FRESH
    assert hot.look("hot", START + 3 * SECOND, 0.0) == (STALE, "answer")
    assert hot.look("hot", START + 5 * SECOND - 1, 0.0) == (STALE, "answer")
    assert hot.look("hot", START + 5 * SECOND, 0.0) == (MISS, None)
    assert hot.staleness_us_max == 5 * SECOND


def test_one_reader_of_many_is_sent_ahead_before_it_expires() -> None:
    hot = heated(ttl_us=3 * SECOND, **LONG)
    fill(hot, "answer", START, took_us=50 * MS)
    early = hot.look("hot", START + SECOND, 0.999)
    assert early == (FRESH, "answer")
    draws = random.Random(2)
    sent = [
        hot.look("hot", START + 2_900 * MS + step * 10, draws.random())[0] for step in range(1_000)
    ]
    assert 20 <= sent.count(REFRESH) <= 250
    assert sent.count(FRESH) + sent.count(REFRESH) == 1_000
    assert hot.stats().refreshed == sent.count(REFRESH)


def test_that_there_is_nothing_is_kept_for_a_shorter_time() -> None:
    hot = heated(negative_ttl_us=300 * MS, ttl_us=3 * SECOND, **LONG)
    assert hot.begin("hot", START).put_missing(now_us=START, draw=0.5)
    assert hot.look("hot", START + 299 * MS, 0.5) == (NEGATIVE, None)
    assert hot.look("hot", START + 300 * MS, 0.5) == (MISS, None)


def test_a_fill_that_began_before_a_write_is_void() -> None:
    hot = heated()
    fetch = hot.begin("hot", START)
    hot.invalidate("hot")
    assert not fetch.put("old", 10, now_us=START, draw=0.5)
    assert hot.look("hot", START, 0.5) == (MISS, None)
    missing = hot.begin("hot", START)
    hot.invalidate("hot")
    assert not missing.put_missing(now_us=START, draw=0.5)
    assert fill(hot, "new", START)
    assert hot.invalidate("hot")
    assert hot.look("hot", START, 0.5) == (MISS, None)
    assert hot.stats().void == 2


def test_a_fill_counts_once() -> None:
    hot = heated()
    fetch = hot.begin("hot", START)
    assert fetch.put("answer", 10, now_us=START, draw=0.5)
    assert not fetch.put("another", 10, now_us=START, draw=0.5)
    assert not fetch.put_missing(now_us=START, draw=0.5)
    assert hot.look("hot", START, 0.5) == (FRESH, "answer")


def test_a_strong_read_is_counted_and_told_nothing() -> None:
    hot = heated()
    fill(hot, "answer", START)
    assert hot.look("hot", START, 0.5, strong=True) == (COLD, None)
    strong = shield()
    for _ in range(5):
        assert strong.look("k", START, 0.5, strong=True) == (COLD, None)
    assert strong.look("k", START, 0.5) == (MISS, None)


def test_key_that_cools_is_cold_again() -> None:
    hot = heated()
    fill(hot, "answer", START)
    assert hot.look("hot", START + 2 * TTL, 0.5) == (COLD, None)
    assert hot.look("hot", START + 60 * TTL, 0.5) == (COLD, None)


def test_a_clock_that_goes_back_halves_nothing() -> None:
    hot = heated()
    for step in range(3):
        assert hot.look("hot", START - step * SECOND, 0.5) == (MISS, None)
    assert hot.look("hot", START, 0.5) == (MISS, None)


def loaded(*, offered: float) -> OfferedLoad:
    return OfferedLoad(offered)


@pytest.mark.parametrize(
    ("offered", "saved"), [(5.0, 1), (1.0, 1), (0.9, 1), (0.5, 8), (0.25, 128), (0.1, 5_000)]
)
def test_reads_that_make_key_hot_rise_as_load_falls(offered: float, saved: int) -> None:
    hot = shield(saved_min=0.5)
    load = loaded(offered=offered)
    for number in range(saved):
        load.offered, load.seen = offered, offered  # each forwarded read sees the same load
        assert hot.look("k", START, 0.5, load)[0] == COLD, number
    load.read_worth = loaded(offered=offered).read_worth
    assert hot.look("k", START, 0.5, load)[0] == MISS


def test_idle_engine_answers_every_read_itself() -> None:
    hot, load = shield(saved_min=0.5), OfferedLoad()
    fill(hot, "answer", START, key="k")
    assert {hot.look("k", START, 0.5, load)[0] for _ in range(10_000)} == {COLD}


def test_kept_answer_is_not_served_once_load_has_gone() -> None:
    hot, load = shield(saved_min=0.5), loaded(offered=1.0)
    hot.look("k", START, 0.5, load)
    load.read_worth = 1.0
    assert hot.look("k", START, 0.5, load)[0] == MISS
    fill(hot, "answer", START, key="k")
    assert hot.look("k", START, 0.5, load) == (FRESH, "answer")
    load.read_worth = 0.001
    assert hot.look("k", START, 0.5, load) == (COLD, None)


def test_saved_reads_are_those_within_a_ttl() -> None:
    short = shield(saved_min=1.0, window_us=SECOND, ttl_us=SECOND // 10, negative_ttl_us=1)
    states = [short.look("k", START, 0.5)[0] for _ in range(12)]
    assert states == [COLD] * 10 + [MISS] * 2, "ten reads a second are one in each ttl"


def test_offered_load_counts_reads_that_were_saved() -> None:
    """Nine of ten reads are answered from memory; the rest keep the engine busy for a fifth."""
    load = OfferedLoad()
    for _ in range(1_000):
        load.seen += 10 * 0.2
        load.forward()
    assert load.offered == pytest.approx(2.0, rel=0.01)
    assert load.read_worth == 1.0
    for _ in range(1_000):  # the crowd has left, and nothing is saved
        load.seen += 0.2
        load.forward()
    assert load.offered == pytest.approx(0.2, rel=0.01)
    assert load.read_worth == pytest.approx(0.2**4, rel=0.05)


def test_full_engine_is_noticed_within_120_reads_and_burst_is_not() -> None:
    load = OfferedLoad()
    worths = []
    for _ in range(120):
        load.seen += 1.0
        load.forward()
        worths.append(load.read_worth)
    assert worths[15] < 0.01, "a key must save 50 reads within a ttl"
    assert worths[-1] > 0.5, "its second read makes a key hot"


def test_loads_of_shards_are_apart() -> None:
    loads = OfferedLoads(lambda shard: 1.0 if shard == "slow" else 0.0)
    for _ in range(300):
        loads.see("slow").forward()
        loads.see("quick").forward()
    assert loads.of("slow").offered > 0.9
    assert loads.of("quick").offered == 0.0


def test_rounding_on_halving_does_not_change_the_order() -> None:
    hot = shield()
    for step in range(30):
        for key, times in (("more", 3), ("less", 2)):
            for _ in range(times):
                hot.look(key, START + step * TTL, 0.5)
    assert [key for key, _ in hot.top(2)] == ["more", "less"]
    assert dict(hot.top(2)) == {"more": 5, "less": 3}, "whole reads, of 6 and 4"


def test_top_names_keys_that_were_read_again_whatever_the_load() -> None:
    hot, load = shield(), OfferedLoad()
    for key in ("once", "twice", "twice", "often", "often", "often"):
        hot.look(key, START, 0.5, load)
    assert hot.top(5) == [("often", 3), ("twice", 2)]
    assert hot.reads == 6


def test_who_cycles_through_endless_keys_heats_none_and_hides_none() -> None:
    hot = shield(counters=100, saved_min=99.0)
    misses = 0
    for step in range(20_000):
        assert hot.look(f"fresh{step}", START, 0.5)[0] == COLD
        if step % 10 == 0:
            misses += hot.look("hot", START, 0.5)[0] == MISS
    assert misses > 1_500
    assert hot.stats().counted == 100


def test_a_key_too_long_to_count_is_cold() -> None:
    hot = shield(key_length_max=10)
    for _ in range(10):
        assert hot.look("x" * 11, START, 0.5) == (COLD, None)
    assert hot.stats().untracked == 10
    assert hot.stats().counted == 0


def test_cache_is_bounded_in_bytes_and_so_is_entry() -> None:
    hot = shield(saved_min=0.0, cache_bytes_max=5_000, entry_bytes_max=2_000)
    for step in range(50):
        assert hot.look(f"k{step}", START, 0.5) == (MISS, None)
        hot.begin(f"k{step}", START).put("v", 600, now_us=START, draw=0.5)
        assert hot.stats().cached_bytes <= 5_000
    assert hot.stats().cached >= 4
    assert not hot.begin("large", START).put("v", 3_000, now_us=START, draw=0.5)


def test_full_cache_keeps_what_saves_more_reads_per_byte() -> None:
    hot = shield(saved_min=0.0, cache_bytes_max=4_000, entry_bytes_max=4_000)

    def keep(key: str, reads: int, size: int) -> bool:
        for _ in range(reads):
            hot.look(key, START, 0.5)
        return hot.begin(key, START).put("v", size, now_us=START, draw=0.5)

    assert all(keep(f"small{n}", 3, 600) for n in range(4))
    assert not keep("large", 4, 3_000), "it would push out three that are read nine times"
    assert not keep("rare", 3, 600), "no more than the one it would push out"
    assert keep("popular", 4, 600)
    assert hot.stats().void == 2


def funnel(keys: int, seconds: int) -> float:
    """What is fetched of 20,000 asked a second for a few keys, among 2,000 others."""
    dice = random.Random(8)
    hot: HotKey[str] = HotKey(HotKeySettings())
    reads = fetched = 0
    for step in range(20_000 * seconds):
        now_us = START + step * 50
        if dice.random() < 0.8:
            key = f"hot{dice.randrange(keys)}"
            state, _ = hot.look(key, now_us, dice.random())
            reads += 1
            if state in (COLD, MISS, STALE, REFRESH):
                fetched += 1
                if state != COLD:
                    hot.begin(key, now_us).put("v", 100, now_us=now_us, draw=dice.random())
        else:
            hot.look(f"cold{dice.randrange(2_000)}", now_us, dice.random())
    return fetched / reads


def test_flood_on_a_few_keys_becomes_a_trickle() -> None:
    # The first read of each, and then one fetch every three seconds.
    assert funnel(5, 2) <= 0.001


@given(st.lists(st.tuples(st.sampled_from("rfwm"), st.integers(0, 2)), max_size=60))
def test_on_the_node_that_writes_no_read_is_older_than_the_last_write(
    steps: list[tuple[str, int]],
) -> None:
    hot = shield(saved_min=0.0, counters=10)
    version = [0, 0, 0]
    flying: list[tuple[int, str, object]] = []
    for step, (what, key) in enumerate(steps):
        now_us = START + step
        if what == "r":
            state, value = hot.look(str(key), now_us, 0.0)
            if state == FRESH:
                assert value == str(version[key])
        elif what == "f":
            fetch = hot.begin(str(key), now_us)
            flying.append((key, str(version[key]), fetch.put))
        elif what == "w":
            version[key] += 1
            hot.invalidate(str(key))
        elif flying:
            _, brought, put = flying.pop(key % len(flying))
            assert callable(put)
            put(brought, 1, now_us=now_us, draw=0.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("counters", 0),
        ("key_length_max", 0),
        ("window_us", 0),
        ("saved_min", -1.0),
        ("cache_bytes_max", 0),
        ("entry_bytes_max", 1 << 30),
        ("ttl_us", 0),
        ("negative_ttl_us", 4_000_000),
        ("stale_us", -1),
        ("jitter", 1.5),
        ("beta", float("nan")),
    ],
)
def test_a_bad_setting_is_named(field: str, value: object) -> None:
    with pytest.raises(BadValue) as caught:
        shield(**{field: value})
    assert caught.value.field == f"hot_key.{field}"
