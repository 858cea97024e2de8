"""Hot-key churn: noticed soon, named well, in little memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.lab.baselines.key_counters import ExactCounts, LruCounts
from sluicegate.lab.scenarios.hot_key_churn import (
    ZIPF,
    Churn,
    MakeKeyCounter,
    curves,
    deep_bytes,
    exact,
    few_counters,
    hot_key,
    lru,
    measure,
    play,
    without_ageing,
)

SECOND = 1_000_000
SHORT = Churn(sets=3, set_us=SECOND // 2, other_keys=5_000)
CYCLING = replace(SHORT, hot_share=0.5, cycled_share=0.5)
RANKED = replace(ZIPF, sets=1, set_us=2 * SECOND, skew=0.8, other_keys=20_000)


@pytest.mark.parametrize("rig", [SHORT, CYCLING])
def test_keys_of_new_set_are_noticed_in_little_memory(rig: Churn) -> None:
    figures = measure(rig, play(rig, hot_key, 1))
    assert figures["detect_ms"] <= 300
    assert 0.1 < figures["memory_mb"] <= 4
    # By Zipf's law some of the others are hot; a key that never comes again is not.
    assert (figures["others_hot"] > 0) == (rig.cycled_share == 0)


def test_the_first_hundred_are_named() -> None:
    assert measure(RANKED, play(RANKED, hot_key, 1))["recall_100"] >= 0.98


def test_the_first_hundred_are_those_of_late() -> None:
    sets = Churn(hot_keys=100, hot_share=0.9, sets=3, set_us=2 * SECOND, per_s=5_000.0, ranked=True)
    assert measure(sets, play(sets, hot_key, 1))["recall_100"] >= 0.98


@pytest.mark.parametrize("make_watcher", [few_counters, lru])
def test_too_few_counters_or_those_seen_last_do_not_name_them(make_watcher: MakeKeyCounter) -> None:
    assert measure(RANKED, play(RANKED, make_watcher, 1))["recall_100"] < 0.95


def test_recall_of_late_keys_without_ageing_is_poor() -> None:
    sets = Churn(hot_keys=100, hot_share=0.9, sets=3, set_us=2 * SECOND, per_s=5_000.0, ranked=True)
    assert measure(sets, play(sets, without_ageing, 1))["recall_100"] < 0.5


def test_a_counter_for_each_key_grows_with_the_keys() -> None:
    more, far_more = (replace(CYCLING, sets=1, per_s=per_s) for per_s in (20_000.0, 60_000.0))
    grown = [measure(rig, play(rig, exact, 1))["memory_mb"] for rig in (more, far_more)]
    assert grown[1] > 2 * grown[0]
    assert measure(far_more, play(far_more, hot_key, 1))["memory_mb"] < 2


def test_exact_counts_are_forgotten_with_the_second() -> None:
    counts = ExactCounts(least=2)
    assert [counts.notice("a", 5), counts.notice("b", 6), counts.notice("a", 7)] == [0, 0, 1]
    assert counts.top(1) == ["a"]
    assert not counts.notice("a", SECOND + 5)


def test_lru_counts_keep_those_that_were_seen_last_and_halve_them() -> None:
    counts = LruCounts(capacity=2, least=3)
    assert [counts.notice("a", at) for at in range(3)] == [False, False, True]
    counts.notice("b", 4)
    counts.notice("b", 5)
    counts.notice("c", 6)
    assert not counts.notice("a", 7), "it was pushed out"
    assert counts.notice("c", 8) is False
    assert counts.notice("c", 9)
    assert not counts.notice("c", SECOND), "one is left of three"
    assert counts.top(1) == ["c"]


def test_what_an_object_takes_is_counted_once_and_strings_are_seen() -> None:
    text = "x" * 10_000
    assert 10_000 < deep_bytes({text: [text, text]}) < 11_000


def test_the_curve_says_what_share_is_known_when() -> None:
    drawn = curves(SHORT, play(SHORT, hot_key, 1))["known"]
    assert drawn[-1][1] == 1.0
    assert drawn == sorted(drawn)


def test_a_run_is_a_function_of_its_seed() -> None:
    tiny = replace(SHORT, sets=1)
    first, again = play(tiny, hot_key, 1), play(tiny, hot_key, 1)
    assert (first.noticed_us, first.others) == (again.noticed_us, again.others)
    assert first.noticed_us != play(tiny, hot_key, 2).noticed_us
