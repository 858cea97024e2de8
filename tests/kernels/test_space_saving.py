from __future__ import annotations

import tracemalloc
from collections import Counter
from fractions import Fraction
from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.space_saving import Heavy, SpaceSaving

MIB = 1 << 20


class SlowSummary:
    """The oracle: Metwally's rule over a plain dict, looking at every counter each time.

    The paper leaves open which of several least counters goes; the oracle is told which one went,
    and insists that it was one of them.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.counters: dict[str, tuple[int, int]] = {}

    def update(self, key: str, weight: int, victims: set[str]) -> None:
        if key in self.counters:
            assert not victims
            count, error = self.counters[key]
        elif len(self.counters) < self.capacity:
            assert not victims
            count, error = 0, 0
        else:
            (victim,) = victims
            least = min(count for count, _ in self.counters.values())
            assert self.counters.pop(victim)[0] == least
            count, error = least, least
        self.counters[key] = (count + weight, error)

    def halve(self) -> None:
        for key, (count, error) in self.counters.items():
            above = -(-count // 2)
            self.counters[key] = (above, above - (count - error) // 2)


def counts_of(summary: SpaceSaving) -> dict[str, tuple[int, int]]:
    return {str(heavy.key): (heavy.count, heavy.error) for heavy in summary.top(summary.capacity)}


def zipf(skew: float, keys: int, draws: int, seed: int) -> list[str]:
    weights = list(accumulate(1 / (rank + 1) ** skew for rank in range(keys)))
    ranks = Random(seed).choices(range(keys), cum_weights=weights, k=draws)
    return [f"key:{rank}" for rank in ranks]


HALVE = "halve"
keys = st.sampled_from([f"k{number}" for number in range(12)])
weights = st.one_of(st.integers(1, 3), st.integers(1, 1_000), st.just(1 << 53))
histories = st.lists(st.one_of(st.tuples(keys, weights), st.just(HALVE)), max_size=120)
plain_histories = st.lists(st.tuples(keys, weights), max_size=120)
capacities = st.integers(1, 8)


def test_while_there_is_room_every_count_is_exact() -> None:
    summary = SpaceSaving(3)
    for key in ("a", "b", "a", "c", "a"):
        summary.update(key)
    assert counts_of(summary) == {"a": (3, 0), "b": (1, 0), "c": (1, 0)}
    assert (summary.total, len(summary), summary.unheld_max()) == (5, 3, 1)


def test_a_new_key_takes_the_least_counter_and_owns_up_to_what_it_inherits() -> None:
    summary = SpaceSaving(2)
    summary.update("heavy", 10)
    summary.update("light", 4)
    assert summary.update("fresh", 3) == 3
    assert counts_of(summary) == {"heavy": (10, 0), "fresh": (7, 4)}
    assert "light" not in summary
    assert "fresh" in summary


def test_an_update_answers_with_the_guaranteed_weight_and_not_with_the_count() -> None:
    summary = SpaceSaving(1)
    assert [summary.update("a", 5), summary.update("b"), summary.update("b")] == [5, 1, 2]
    heavy = summary.estimate("b")
    assert (heavy.count, heavy.error, heavy.guaranteed) == (7, 5, 2)


def test_cycling_through_endless_fresh_keys_raises_no_guarantee() -> None:
    summary = SpaceSaving(100)
    for number in range(10_000):
        assert summary.update(f"attack{number}") == 1
    for _ in range(50):
        guaranteed = summary.update("victim")
    assert guaranteed == 50


def test_the_top_is_in_order_of_count_and_a_tie_goes_to_the_surer() -> None:
    summary = SpaceSaving(3)
    for key, weight in (("a", 1), ("b", 5), ("c", 9), ("late", 4)):
        summary.update(key, weight)
    assert [heavy.key for heavy in summary.top(3)] == ["c", "b", "late"]
    assert [heavy.key for heavy in summary.top(1)] == ["c"]
    assert summary.top(0) == []


def test_an_unheld_key_may_have_had_the_least_count_and_is_sure_of_nothing() -> None:
    summary = SpaceSaving(2)
    assert summary.estimate("nobody").count == 0
    summary.update("a", 7)
    assert summary.unheld_max() == 0
    summary.update("b", 5)
    unheld = summary.estimate("nobody")
    assert (unheld.count, unheld.error, unheld.guaranteed) == (5, 5, 0)


def test_halving_rounds_counts_up_and_guarantees_down() -> None:
    summary = SpaceSaving(2)
    for key, weight in (("a", 9), ("b", 4), ("c", 3)):
        summary.update(key, weight)
    summary.halve()
    assert counts_of(summary) == {"a": (5, 1), "c": (4, 3)}
    assert summary.total == 8
    summary.update("d")
    assert counts_of(summary) == {"a": (5, 1), "d": (5, 4)}


def test_a_key_that_has_cooled_makes_room() -> None:
    summary = SpaceSaving(2)
    summary.update("yesterday", 1_000)
    for second in range(20):
        summary.update("today", 10)
        summary.update(f"passer-by {second}")
        summary.halve()
    assert "yesterday" not in summary
    assert summary.top(1)[0].key == "today"


def test_however_often_it_is_halved_a_counter_waits_in_one_place() -> None:
    summary = SpaceSaving(50)
    for number, key in enumerate(zipf(0.8, keys=200, draws=2_000, seed=5)):
        summary.update(key, 1 + number % 100)
        if number % 40 == 0:
            summary.halve()
    waiting = [counter for level in summary._levels for counter in level]
    assert len(waiting) == len(set(waiting)) == 50


def test_a_summary_of_one_counter_works() -> None:
    summary = SpaceSaving(1)
    for key in ("a", "b", "b"):
        summary.update(key)
    assert counts_of(summary) == {"b": (3, 1)}


def test_counts_past_two_to_the_53_stay_exact() -> None:
    summary = SpaceSaving(2)
    for _ in range(2_000):
        summary.update("a", 1 << 53)
    summary.update("b", 1)
    summary.update("c", (1 << 53) - 1)
    assert counts_of(summary) == {"a": (2_000 << 53, 0), "c": (1 << 53, 1)}


def test_bytes_and_strings_are_both_keys_and_never_the_same() -> None:
    summary = SpaceSaving(4)
    summary.update("key")
    assert summary.update(b"key") == 1
    assert len(summary) == 2


def test_a_key_of_ten_megabytes_is_refused_and_leaves_no_trace() -> None:
    summary = SpaceSaving(2, key_length_max=16)
    with pytest.raises(ValueError, match=r"at most 16 long \(key_length_max\), not 10000000"):
        summary.update("x" * 10_000_000)
    with pytest.raises(ValueError, match="key_length_max"):
        summary.update(b"x" * 17)
    assert (len(summary), summary.total) == (0, 0)
    assert summary.update("x" * 16) == 1


@pytest.mark.parametrize("weight", [0, -1, (1 << 53) + 1])
def test_a_weight_out_of_range_is_refused(weight: int) -> None:
    summary = SpaceSaving(2)
    with pytest.raises(ValueError, match=f"weight must be from 1 to 2.53, not {weight}"):
        summary.update("a", weight)
    assert summary.total == 0


@pytest.mark.parametrize("capacity", [0, -1, (1 << 24) + 1])
def test_a_capacity_out_of_range_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match=f"capacity must be from 1 to 2.24, not {capacity}"):
        SpaceSaving(capacity)


def test_a_key_length_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="key_length_max must be at least 1, not 0"):
        SpaceSaving(1, key_length_max=0)


def test_a_report_prints_what_it_says() -> None:
    assert repr(Heavy("a", 3, 1)) == "Heavy(key='a', count=3, error=1)"


@given(capacities, histories)
def test_it_does_what_the_obvious_summary_does(
    capacity: int, history: list[tuple[str, int] | str]
) -> None:
    summary, oracle = SpaceSaving(capacity), SlowSummary(capacity)
    for event in history:
        if isinstance(event, str):
            summary.halve()
            oracle.halve()
        else:
            key, weight = event
            before = set(counts_of(summary))
            guaranteed = summary.update(key, weight)
            oracle.update(key, weight, before - set(counts_of(summary)))
            count, error = oracle.counters[key]
            assert guaranteed == count - error
        assert counts_of(summary) == oracle.counters
        if len(oracle.counters) == capacity:
            assert summary.unheld_max() == min(count for count, _ in oracle.counters.values())


@given(capacities, histories)
def test_the_truth_lies_within_the_bounds_of_every_key_through_any_ageing(
    capacity: int, history: list[tuple[str, int] | str]
) -> None:
    summary = SpaceSaving(capacity)
    truth: dict[str, Fraction] = {}
    total = Fraction(0)
    for event in history:
        if isinstance(event, str):
            summary.halve()
            truth = {key: weight / 2 for key, weight in truth.items()}
            total /= 2
        else:
            summary.update(*event)
            truth[event[0]] = truth.get(event[0], Fraction(0)) + event[1]
            total += event[1]
    for key, weight in truth.items():
        bounds = summary.estimate(key)
        assert bounds.guaranteed <= weight <= bounds.count
        assert bounds.guaranteed >= 0
        if weight > total / capacity + 1:
            assert key in summary
    assert total <= summary.total < total + 1
    assert summary.unheld_max() <= total / capacity + 1


@given(capacities, plain_histories)
def test_without_ageing_the_counts_add_up_and_what_passes_its_share_is_held(
    capacity: int, history: list[tuple[str, int]]
) -> None:
    summary = SpaceSaving(capacity)
    truth: Counter[str] = Counter()
    for key, weight in history:
        summary.update(key, weight)
        truth[key] += weight
    assert (
        summary.total
        == sum(truth.values())
        == sum(count for count, _ in counts_of(summary).values())
    )
    assert summary.unheld_max() * capacity <= summary.total
    for key, weight in truth.items():
        if weight * capacity > summary.total:
            assert key in summary


@pytest.mark.parametrize("skew", [0.8, 0.99, 1.2])
def test_the_hundred_heaviest_of_ten_thousand_keys_are_found(skew: float) -> None:
    stream = zipf(skew, keys=10_000, draws=100_000, seed=7)
    truth = Counter(stream)
    summary = SpaceSaving(2_000)
    for key in stream:
        summary.update(key)
    hundredth = truth.most_common(100)[-1][1]
    hits = sum(truth[str(heavy.key)] >= hundredth for heavy in summary.top(100))
    assert hits >= 98


def test_a_long_weighted_stream_agrees_with_the_obvious_summary() -> None:
    random = Random(3)
    summary, oracle = SpaceSaving(40), SlowSummary(40)
    for number, key in enumerate(zipf(0.8, keys=300, draws=6_000, seed=4)):
        weight = random.choice([1, random.randint(1, 10_000), 1 << random.randint(0, 53)])
        victims: set[str] = set()
        if key not in summary and len(summary) == 40:
            before = set(oracle.counters)
            summary.update(key, weight)
            victims = {old for old in before if old not in summary}
        else:
            summary.update(key, weight)
        oracle.update(key, weight, victims)
        if number % 1_000 == 999:
            summary.halve()
            oracle.halve()
        if number % 100 == 0:
            assert counts_of(summary) == oracle.counters
    assert counts_of(summary) == oracle.counters


def test_the_memory_of_two_thousand_counters_is_constant_and_under_four_megabytes() -> None:
    summary = SpaceSaving(2_000)
    tracemalloc.start()
    try:
        sizes = []
        for number in range(60_000):
            summary.update(f"tenant/table/row-{number:032}")  # every key is a new string
            if number % 20_000 == 19_999:
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(sizes) < 4 * MIB
    assert sizes[-1] < sizes[0] * 1.1


def test_guaranteed_weight_of_unheld_key_is_zero() -> None:
    counted = SpaceSaving(2)
    for key, weight in (("a", 5), ("b", 3), ("c", 2)):
        counted.update(key, weight)
    assert [counted.guaranteed(key) for key in "abc"] == [5, 0, 2]
