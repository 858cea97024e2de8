from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.gcra import Gcra
from sluicegate.kernels.verdict import NEVER

SECOND = 1_000_000
MINUTE = 60 * SECOND


class SlowBucket:
    """The oracle: a token bucket in exact fractions, which says out loud what GCRA encodes."""

    def __init__(self, count: int, period_us: int, burst: int) -> None:
        self.rate = Fraction(count, period_us)
        self.burst = burst
        self.tokens = Fraction(burst)
        self.at_us = 0

    def take(self, cost: int, now_us: int) -> bool:
        self.tokens = min(Fraction(self.burst), self.tokens + (now_us - self.at_us) * self.rate)
        self.at_us = now_us
        if cost > self.tokens:
            return False
        self.tokens -= cost
        return True


class LeakyBucket:
    """Another oracle: a queue of `burst` that leaves evenly, used as a meter."""

    def __init__(self, count: int, period_us: int, burst: int) -> None:
        self.interval = Fraction(period_us, count)
        self.burst = burst
        self.dry_us = Fraction(0)

    def take(self, cost: int, now_us: int) -> bool:
        end_us = max(self.dry_us, Fraction(now_us)) + cost * self.interval
        if end_us - now_us > self.burst * self.interval:
            return False
        self.dry_us = end_us
        return True


limits = st.tuples(
    st.integers(1, 10_000_000),  # count: up to ten units a microsecond
    st.sampled_from([1, 1_000, 333_333, SECOND, MINUTE, 86_400 * SECOND]),
    st.integers(1, 1_000),
)
steps = st.lists(st.tuples(st.integers(0, 2 * SECOND), st.integers(0, 50)), max_size=40)


def test_a_rested_bucket_admits_its_burst_at_once_and_then_one_an_interval() -> None:
    bucket = Gcra(count=10, period_us=SECOND, burst=3)
    assert [bool(bucket.take(1, 0)) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(1, 99_999)
    assert bucket.take(1, 100_000)
    assert not bucket.take(1, 100_000)


def test_a_verdict_counts_what_is_left_and_when_it_is_whole_again() -> None:
    bucket = Gcra(count=10, period_us=SECOND, burst=5)
    verdict = bucket.take(2, 0)
    assert (verdict.remaining, verdict.retry_after_us, verdict.reset_after_us) == (3, 0, 200_000)
    refused = bucket.take(4, 0)
    assert not refused
    assert (refused.remaining, refused.retry_after_us) == (3, 100_000)


def test_a_refused_unit_leaves_no_trace() -> None:
    bucket = Gcra(count=1, period_us=SECOND, burst=1)
    bucket.take(1, 0)
    waits = [bucket.take(1, 0).retry_after_us for _ in range(100)]
    assert set(waits) == {SECOND}


def test_a_cost_of_zero_looks_without_taking() -> None:
    bucket = Gcra(count=1, period_us=SECOND, burst=1)
    assert bucket.take(0, 0).remaining == 1
    bucket.take(1, 0)
    assert bucket.take(0, 0).remaining == 0


def test_a_cost_above_the_burst_is_never_admitted_and_says_so() -> None:
    bucket = Gcra(count=300_000, period_us=SECOND, burst=10)
    assert bucket.take(11, 0).retry_after_us == NEVER
    assert bucket.take(10, 0).allowed


@pytest.mark.parametrize("rate", [300_000, 5_000_000, 7, 999_983])
def test_rates_that_do_not_divide_a_microsecond_are_exact_over_ten_seconds(rate: int) -> None:
    bucket = Gcra(count=rate, period_us=SECOND, burst=rate)
    for second in range(10):
        assert bucket.take(rate, second * SECOND).allowed
        assert not bucket.take(1, second * SECOND)


def test_counts_near_two_to_the_53_stay_exact() -> None:
    count = (1 << 53) - 1
    bucket = Gcra(count=count, period_us=SECOND)
    assert bucket.take(count - 1, 0).remaining == 1
    assert bucket.take(1, 0).remaining == 0
    assert bucket.take(1, 0).retry_after_us == 1


def test_a_clock_that_goes_back_admits_nothing_extra() -> None:
    bucket = Gcra(count=1, period_us=SECOND, burst=2)
    bucket.take(2, 10 * SECOND)
    refused = bucket.take(1, 4 * SECOND)
    assert (refused.allowed, refused.remaining) == (False, 0)
    assert refused.retry_after_us == 7 * SECOND


@pytest.mark.parametrize(("count", "period_us", "burst"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_a_zero_in_a_limit_is_refused(count: int, period_us: int, burst: int) -> None:
    with pytest.raises(ValueError, match="from 1 to 2"):
        Gcra(count, period_us, burst)


def test_a_negative_cost_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        Gcra(1, 1).take(-1, 0)


@given(limits, steps)
def test_it_admits_what_the_obvious_bucket_admits(
    limit: tuple[int, int, int], arrivals: list[tuple[int, int]]
) -> None:
    bucket, oracle, leaky = Gcra(*limit), SlowBucket(*limit), LeakyBucket(*limit)
    now_us = 0
    for gap_us, cost in arrivals:
        now_us += gap_us
        verdict = bucket.take(cost, now_us)
        assert verdict.allowed == oracle.take(cost, now_us) == leaky.take(cost, now_us)
        assert verdict.remaining == oracle.tokens // 1


@given(limits, steps, st.integers(1, 1_000))
def test_retry_after_is_exact_to_the_microsecond(
    limit: tuple[int, int, int], arrivals: list[tuple[int, int]], cost: int
) -> None:
    def bucket_after() -> tuple[Gcra, int]:
        bucket, now_us = Gcra(*limit), 0
        for gap_us, spent in arrivals:
            now_us += gap_us
            bucket.take(spent, now_us)
        return bucket, now_us

    bucket, now_us = bucket_after()
    verdict = bucket.take(cost, now_us)
    if verdict.allowed:
        assert verdict.retry_after_us == 0
    elif cost > limit[2]:
        assert verdict.retry_after_us == NEVER
    else:
        early, late = bucket_after()[0], bucket_after()[0]
        assert not early.take(cost, now_us + verdict.retry_after_us - 1)
        assert late.take(cost, now_us + verdict.retry_after_us)
