"""Hot key: noticed quickly, kept for a moment, and never older than a write."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.policies.hot_key import (
    COLD,
    FRESH,
    MISS,
    NEGATIVE,
    REFRESH,
    STALE,
    HotKey,
    HotKeySettings,
)

START = 1_000_000_000_000_000
SECOND = 1_000_000
MS = 1_000


def shield(**some: object) -> HotKey[str]:
    plain: dict[str, object] = {"hot_min": 5, "hot_permille": 0, "jitter": 0.0}
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
    hot = heated(ttl_us=3 * SECOND, stale_us=2 * SECOND, window_us=100 * SECOND)
    fill(hot, "answer", START)
    assert hot.look("hot", START + 3 * SECOND - 1, 0.0)[0] == FRESH
    assert hot.look("hot", START + 3 * SECOND, 0.0) == (STALE, "answer")
    assert hot.look("hot", START + 5 * SECOND - 1, 0.0) == (STALE, "answer")
    assert hot.look("hot", START + 5 * SECOND, 0.0) == (MISS, None)
    assert hot.staleness_us_max == 5 * SECOND


def test_one_reader_of_many_is_sent_ahead_before_it_expires() -> None:
    hot = heated(ttl_us=3 * SECOND, window_us=100 * SECOND)
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
    hot = heated(negative_ttl_us=300 * MS, window_us=100 * SECOND)
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


def test_a_key_that_cools_is_cold_again() -> None:
    hot = heated(window_us=SECOND)
    fill(hot, "answer", START)
    assert hot.look("hot", START + 2 * SECOND, 0.5) == (COLD, None)
    assert hot.look("hot", START + 60 * SECOND, 0.5) == (COLD, None)


def test_a_clock_that_goes_back_halves_nothing() -> None:
    hot = heated(window_us=SECOND)
    for step in range(3):
        assert hot.look("hot", START - step * SECOND, 0.5) == (MISS, None)
    assert hot.look("hot", START, 0.5) == (MISS, None)


def test_the_threshold_grows_with_the_load_of_the_node() -> None:
    hot = shield(hot_min=5, hot_permille=200, counters=500)
    for step in range(1_000):
        hot.look(f"k{step % 200}", START, 0.5)
    states = [hot.look("k1", START, 0.5)[0] for _ in range(130)]
    assert states[90] == COLD
    assert states[-1] == MISS


def test_the_threshold_is_a_part_of_what_comes_in_one_window() -> None:
    hot = shield(hot_min=5, hot_permille=100, window_us=SECOND)
    # A steady load: what is remembered swings between one window's weight and two.
    states = [hot.look(f"k{step % 8}", START + step * MS, 0.5)[0] for step in range(10_000)]
    assert states[-8:] == [MISS] * 8, "an eighth of all is more than a tenth"
    assert all(hot.look(f"n{step}", START + 10 * SECOND, 0.5)[0] == COLD for step in range(100))


def test_what_a_halving_rounds_does_not_decide_who_is_first() -> None:
    hot = shield(window_us=SECOND, hot_min=1)
    for step in range(30):
        for key, times in (("more", 3), ("less", 2)):
            for _ in range(times):
                hot.look(key, START + step * SECOND, 0.5)
    assert [key for key, _ in hot.top(2)] == ["more", "less"]
    assert dict(hot.top(2)) == {"more": 5, "less": 3}, "told in whole ones, of 6 and 4"


def test_a_large_value_asked_for_seldom_is_found_by_its_weight() -> None:
    hot = shield(hot_min=1_000)
    assert hot.look("small", START, 0.5, weight=1) == (COLD, None)
    assert hot.look("large", START, 0.5, weight=1_000) == (MISS, None)


def test_who_cycles_through_endless_keys_heats_none_and_hides_none() -> None:
    hot = shield(counters=100, hot_min=100)
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


def test_the_cache_is_bounded_in_bytes_and_so_is_an_entry() -> None:
    hot = shield(hot_min=1, cache_bytes_max=5_000, entry_bytes_max=2_000)
    for step in range(50):
        assert hot.look(f"k{step}", START, 0.5) == (MISS, None)
        hot.begin(f"k{step}", START).put("v", 600, now_us=START, draw=0.5)
        assert hot.stats().cached_bytes <= 5_000
    assert hot.stats().cached >= 4
    assert not hot.begin("large", START).put("v", 3_000, now_us=START, draw=0.5)


def test_what_is_hot_elsewhere_is_heeded_for_a_while() -> None:
    here, there = shield(heeded_max=2, heed_us=SECOND), heated()
    assert there.top(5) == [("hot", 5)]
    assert here.heed([key for key, _ in there.top(5)], START) == 1
    assert here.look("hot", START, 0.5) == (MISS, None)
    assert here.look("hot", START + SECOND, 0.5) == (COLD, None)
    assert here.heed(["a", "b", "c"], START + SECOND) == 2
    assert here.heed(["a"], START + SECOND) == 1, "known already"
    assert here.heed(["d", "e"], START + 2 * SECOND) == 2
    assert here.stats().heeded == 2


def funnel(keys: int, seconds: int) -> float:
    """What is fetched of 20,000 asked a second for a few keys, among 2,000 others."""
    dice = random.Random(8)
    hot: HotKey[str] = HotKey(HotKeySettings(hot_permille=0))
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


def test_a_flood_on_a_few_keys_becomes_a_trickle() -> None:
    # All but the first hundred of each, and then one fetch every three seconds.
    assert funnel(5, 2) <= 0.018


@given(st.lists(st.tuples(st.sampled_from("rfwm"), st.integers(0, 2)), max_size=60))
def test_on_the_node_that_writes_no_read_is_older_than_the_last_write(
    steps: list[tuple[str, int]],
) -> None:
    hot = shield(hot_min=1, counters=10)
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
        ("hot_min", 0),
        ("hot_permille", 1_001),
        ("cache_bytes_max", 0),
        ("entry_bytes_max", 1 << 30),
        ("ttl_us", 0),
        ("negative_ttl_us", 4_000_000),
        ("stale_us", -1),
        ("jitter", 1.5),
        ("beta", float("nan")),
        ("heeded_max", -1),
        ("heed_us", 0),
    ],
)
def test_a_bad_setting_is_named(field: str, value: object) -> None:
    with pytest.raises(BadValue) as caught:
        shield(**{field: value})
    assert caught.value.field == f"hot_key.{field}"
