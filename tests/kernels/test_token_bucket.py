from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.gcra import Gcra
from sluicegate.kernels.token_bucket import TokenBucket, charge_ticks, settle
from sluicegate.kernels.verdict import NEVER, Verdict

SECOND = 1_000_000


class SlowBucket:
    """The oracle: tokens as exact fractions, filled before every look."""

    def __init__(self, count: int, period_us: int, burst: int, debt_max: int) -> None:
        self.rate = Fraction(count, period_us)
        self.burst = burst
        self.debt_max = debt_max
        self.tokens = Fraction(burst)
        self.at_us = 0

    def fill(self, now_us: int) -> None:
        self.tokens = min(Fraction(self.burst), self.tokens + (now_us - self.at_us) * self.rate)
        self.at_us = now_us

    def take(self, cost: Fraction, now_us: int) -> bool:
        self.fill(now_us)
        if cost - self.burst > self.debt_max or self.tokens < min(cost, Fraction(self.burst)):
            return False
        self.tokens -= cost
        return True

    def settle(self, correction: int, now_us: int) -> None:
        self.fill(now_us)
        self.tokens = max(self.tokens - correction, Fraction(-self.debt_max))
        self.tokens = min(self.tokens, Fraction(self.burst))


limits = st.tuples(
    st.integers(1, 10_000_000),
    st.sampled_from([1, 1_000, 333_333, SECOND, 60 * SECOND]),
    st.integers(1, 100),
    st.integers(0, 50),
)
arrivals = st.lists(
    st.tuples(st.integers(0, 2 * SECOND), st.integers(0, 160), st.integers(-40, 40)), max_size=40
)


def retried(make: Callable[[], TokenBucket], cost: int, now_us: int) -> Verdict:
    """The verdict at `now_us`, after checking that its retry is exact to the microsecond."""
    verdict = make().take(cost, now_us)
    if verdict.retry_after_us > 0:
        assert not make().take(cost, now_us + verdict.retry_after_us - 1)
        assert make().take(cost, now_us + verdict.retry_after_us)
    return verdict


def test_a_full_bucket_gives_its_burst_and_then_refills_by_the_rate() -> None:
    bucket = TokenBucket(30, 60 * SECOND, burst=30)
    admitted = sum(bool(bucket.take(1, second * SECOND)) for second in range(600))
    # 30 at once and half a token a second for 599 s; a bucket that floors to seconds loses fifteen.
    assert admitted == 30 + 299


def test_looking_often_loses_no_fraction_of_a_token() -> None:
    often, seldom = TokenBucket(7, 60 * SECOND), TokenBucket(7, 60 * SECOND)
    often.take(7, 0)
    seldom.take(7, 0)
    for now_us in range(0, 60 * SECOND, 9_973):
        often.take(0, now_us)
    assert often.take(7, 60 * SECOND)
    assert seldom.take(7, 60 * SECOND)


def test_a_higher_price_drains_the_bucket_faster_and_leaves_the_refill_alone() -> None:
    dear, plain = TokenBucket(10, SECOND), TokenBucket(10, SECOND)
    assert [dear.take(1, 0, 2_500).allowed for _ in range(5)] == [True] * 4 + [False]
    plain.take(10, 0)
    assert dear.take(0, SECOND).remaining == plain.take(0, SECOND).remaining == 10


def test_a_price_of_nothing_admits_from_an_empty_bucket() -> None:
    bucket = TokenBucket(1, SECOND)
    bucket.take(1, 0)
    assert bucket.take(1, 0, 0)


def test_a_fraction_of_a_tick_is_charged_whole() -> None:
    assert charge_ticks(1, 1, 1_001) == 2
    assert charge_ticks(3, 10, 1_000) == 30


def test_without_debt_a_cost_above_the_burst_never_passes() -> None:
    assert TokenBucket(10, SECOND).take(11, 0).retry_after_us == NEVER


def test_with_debt_a_large_unit_passes_a_full_bucket_and_the_next_waits_for_the_debt() -> None:
    bucket = TokenBucket(10, SECOND, burst=10, debt_max=20)
    assert bucket.take(30, 0)
    assert bucket.take(1, 0).retry_after_us == 2_100_000
    assert bucket.take(30, 2 * SECOND).retry_after_us == SECOND
    assert bucket.take(31, 60 * SECOND).retry_after_us == NEVER


def test_a_refund_never_overfills_and_a_charge_never_exceeds_the_debt() -> None:
    bucket = TokenBucket(10, SECOND, debt_max=5)
    bucket.take(3, 0)
    bucket.settle(-100, 0)
    assert bucket.take(0, 0).remaining == 10
    bucket.settle(100, 0)
    assert bucket.take(1, 0).retry_after_us == 600_000


def test_a_deep_debt_seen_by_an_earlier_clock_is_not_forgiven() -> None:
    assert settle(1_000, now=10, correction=5, capacity=100, debt_max=50) == 1_000


def test_a_clock_that_goes_back_makes_the_bucket_emptier() -> None:
    bucket = TokenBucket(1, SECOND, burst=3)
    bucket.take(1, 10 * SECOND)
    assert bucket.take(0, 9 * SECOND).remaining == 1
    assert bucket.take(0, 10 * SECOND).remaining == 2


def test_counts_near_two_to_the_53_stay_exact() -> None:
    count = 1 << 53
    bucket = TokenBucket(count, SECOND, debt_max=count)
    assert bucket.take(count - 1, 0).remaining == 1
    assert bucket.take(1, 0, 999).allowed
    assert not bucket.take(1, 0)


@given(limits, arrivals)
def test_without_debt_it_admits_what_gcra_admits(
    limit: tuple[int, int, int, int], history: list[tuple[int, int, int]]
) -> None:
    count, period_us, burst, _ = limit
    bucket, gcra = TokenBucket(count, period_us, burst), Gcra(count, period_us, burst)
    now_us = 0
    for gap_us, cost, _ in history:
        now_us += gap_us
        ours, theirs = bucket.take(cost, now_us), gcra.take(cost, now_us)
        assert repr(ours) == repr(theirs)


@given(limits, arrivals, st.sampled_from([0, 500, 1_000, 2_000, 10_000]))
def test_it_agrees_with_the_obvious_bucket_under_price_debt_and_settling(
    limit: tuple[int, int, int, int], history: list[tuple[int, int, int]], price_milli: int
) -> None:
    count, period_us, burst, debt_max = limit
    bucket = TokenBucket(count, period_us, burst, debt_max=debt_max)
    oracle = SlowBucket(count, period_us, burst, debt_max)
    interval = period_us // gcd(count, period_us)
    now_us = 0
    for gap_us, cost, correction in history:
        now_us += gap_us
        # The oracle is charged whole ticks too: rounding up is part of the promise.
        charged = Fraction(charge_ticks(cost, interval, price_milli), interval)
        assert bucket.take(cost, now_us, price_milli).allowed == oracle.take(charged, now_us)
        bucket.settle(correction, now_us)
        oracle.settle(correction, now_us)
        assert bucket.take(0, now_us).remaining == max(oracle.tokens // 1, 0)


@given(limits, arrivals, st.integers(1, 160))
def test_retry_after_is_exact_to_the_microsecond(
    limit: tuple[int, int, int, int], history: list[tuple[int, int, int]], cost: int
) -> None:
    count, period_us, burst, debt_max = limit
    end_us = sum(gap_us for gap_us, _, _ in history)

    def make() -> TokenBucket:
        bucket, now_us = TokenBucket(count, period_us, burst, debt_max=debt_max), 0
        for gap_us, spent, correction in history:
            now_us += gap_us
            bucket.take(spent, now_us)
            bucket.settle(correction, now_us)
        return bucket

    verdict = retried(make, cost, end_us)
    assert (verdict.retry_after_us == NEVER) == (cost > burst + debt_max)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"count": 0}, "count"),
        ({"burst": 0}, "burst"),
        ({"debt_max": -1}, "debt_max"),
        ({"burst": 1 << 54}, "burst"),
    ],
)
def test_a_bad_setting_is_named(settings: dict[str, int], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        TokenBucket(**{"count": 1, "period_us": 1, **settings})


@pytest.mark.parametrize(("cost", "price_milli"), [(-1, 1_000), (1, -1), (1, 1_000_001)])
def test_a_bad_charge_is_refused(cost: int, price_milli: int) -> None:
    with pytest.raises(ValueError, match="must"):
        TokenBucket(1, 1).take(cost, 0, price_milli)
