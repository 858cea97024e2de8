"""The score is a product of parts, and each part goes the way it says."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.shadow.analysis import analyse
from sluicegate.shadow.confidence import (
    agreement,
    completeness,
    confidence_of,
    coverage,
    critical,
    length,
    wilson,
)
from sluicegate.shadow.replay import replay
from sluicegate.shadow.traffic import ADMITTED, ALL
from tests.shadow.replay.captures import captured, limit, native, rules, vips
from tests.shadow.replay.captures import critical as asked

counts = st.integers(0, 100_000)
shares = st.floats(0.001, 1.0)


def test_the_interval_is_wilsons() -> None:
    # Newcombe (1998), Statistics in Medicine 17: 81 of 263, and 0 of 20.
    assert [round(end, 4) for end in wilson(81, 263)] == [0.2553, 0.3662]
    assert [round(end, 4) for end in wilson(0, 20)] == [0.0, 0.1611]
    assert wilson(0, 0) == (0.0, 1.0)


@given(st.integers(1, 10_000), st.data())
def test_a_share_is_within_its_interval(whole: int, data: st.DataObject) -> None:
    part = data.draw(st.integers(0, whole))
    low, high = wilson(part, whole)
    assert 0 <= low <= part / whole + 1e-12
    assert part / whole - 1e-12 <= high <= 1


@given(st.integers(1, 10_000), shares, st.data())
def test_each_newly_refused_request_lowers_critical(
    requests: int, most: float, data: st.DataObject
) -> None:
    newly = data.draw(st.integers(0, requests - 1))
    fewer, more = critical(newly, requests, most), critical(newly + 1, requests, most)
    assert 0 <= more <= fewer <= 1
    assert more < fewer or fewer == 0


@given(st.integers(0, 50), st.integers(1, 1_000), st.integers(2, 20), shares)
def test_more_requests_of_the_same_share_raise_critical(
    newly: int, others: int, times: int, most: float
) -> None:
    few = critical(newly, newly + others, most)
    many = critical(newly * times, (newly + others) * times, most)
    assert many >= few


@given(st.integers(0, 1_000), st.integers(1, 1_000), st.floats(0.001, 0.5))
def test_a_stricter_bound_lowers_critical(newly: int, others: int, most: float) -> None:
    assert critical(newly, newly + others, most) <= critical(newly, newly + others, most * 2)


def test_a_share_at_its_bound_is_worth_one_half_and_twice_that_nothing() -> None:
    assert math.isclose(critical(5_000_000, 100_000_000, 0.05), 0.5, rel_tol=1e-3)
    assert critical(10_000_000, 100_000_000, 0.05) == 0
    assert critical(0, 0, 0.05) == 0
    assert critical(0, 1_000_000, 0.0) > 0.99


@given(counts, counts)
def test_agreement_rises_with_what_agrees_and_falls_with_what_does_not(
    agreeing: int, others: int
) -> None:
    value = agreement(agreeing, agreeing + others)
    assert 0 < value < 1
    assert agreement(agreeing + 1, agreeing + 1 + others) > value
    assert agreement(agreeing, agreeing + others + 1) < value
    assert agreement(0, 0) == 0.5


@given(st.integers(1, 1_000), st.data())
def test_coverage_rises_with_the_rules_that_were_seen(changed: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, changed - 1))
    assert 0 <= coverage(count, changed) < coverage(count + 1, changed) <= 1
    assert coverage(0, 0) == 1


@given(st.integers(1, 100_000), counts, st.integers(0, ALL), st.data())
def test_completeness_falls_with_what_is_lost_or_counted_too_little(
    requests: int, lost: int, share: int, data: st.DataObject
) -> None:
    under = data.draw(st.integers(0, requests))
    value = completeness(requests, lost, under, share)
    assert 0 <= value <= 1
    assert completeness(requests, lost + 1, under, share) <= value
    if under < requests:
        assert completeness(requests, lost, under + 1, share) <= value
    if share < ALL:
        assert completeness(requests, lost, under, share + 1) >= value
    assert completeness(requests, 0, under, ALL) == completeness(requests, 0, 0, share) == 1
    assert completeness(0, lost, 0, share) == 0


@given(st.integers(0, 10**12), st.integers(1, 10**12))
def test_length_rises_with_the_time_and_falls_with_the_history(span: int, history: int) -> None:
    value = length(span, history)
    assert 0 <= value <= 1
    assert length(span + 1_000, history) >= value >= length(span, history + 1_000)
    assert length(2 * history, history) == length(span, 0) == 1


def test_the_score_is_the_product_of_its_parts_and_each_is_told() -> None:
    made = captured(
        [(0.1 * at, asked("ann")) for at in range(150)],
        lost=50,
        outcomes=[ADMITTED] * 150,
    )
    one = native(limit("play", 50), callers=vips("ann"))
    other = native(limit("play", 60), limit("never", 1, resource_path="/x"), callers=vips("ann"))
    analysis = analyse(replay(made, rules(one), rules(other)))
    confidence = confidence_of(analysis, newly=3, requests=150, refused_max=0.05)
    values = {part.name: part.value for part in confidence.parts}
    assert values["critical"] == critical(3, 150, 0.05)
    # After the first window 50 of 50 are admitted, as they were.
    assert values["agreement"] == 51 / 52
    assert values["coverage"] == 0.5
    assert values["completeness"] == 150 / 200
    assert values["length"] == pytest.approx(14.9 / 20)
    assert confidence.score == pytest.approx(math.prod(values.values()))
    assert all(part.words for part in confidence.parts)
