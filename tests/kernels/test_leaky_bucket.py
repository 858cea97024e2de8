from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.gcra import Gcra
from sluicegate.kernels.leaky_bucket import LeakyBucket
from sluicegate.kernels.verdict import NEVER

SECOND = 1_000_000

limits = st.tuples(
    st.integers(1, 10_000_000),
    st.sampled_from([1, 1_000, 333_333, SECOND, 60 * SECOND]),
    st.integers(1, 100),
)
steps = st.lists(st.tuples(st.integers(0, SECOND), st.integers(0, 40)), max_size=40)


class SlowQueue:
    """The oracle: the work in the bucket as an exact fraction, drained before every look."""

    def __init__(self, count: int, period_us: int, depth: int) -> None:
        self.rate = Fraction(count, period_us)
        self.depth = depth
        self.inside = Fraction(0)
        self.at_us = 0

    def take(self, cost: int, now_us: int) -> Fraction | None:
        """The delay of an admitted unit in microseconds, or None."""
        self.inside = max(Fraction(0), self.inside - (now_us - self.at_us) * self.rate)
        self.at_us = now_us
        if self.inside + cost > self.depth:
            return None
        delay = self.inside / self.rate
        self.inside += cost
        return delay


def test_a_burst_goes_in_at_once_and_comes_out_evenly() -> None:
    bucket = LeakyBucket(10, SECOND, depth=4)
    delays = []
    for _ in range(4):
        assert bucket.take(1, 0)
        delays.append(bucket.delay_us)
    assert delays == [0, 100_000, 200_000, 300_000]
    assert bucket.take(1, 0).retry_after_us == 100_000


def test_a_bucket_at_rest_lets_through_without_delay() -> None:
    bucket = LeakyBucket(10, SECOND, depth=4)
    bucket.take(4, 0)
    assert bucket.take(1, SECOND)
    assert bucket.delay_us == 0


def test_a_cost_above_the_depth_never_fits() -> None:
    assert LeakyBucket(10, SECOND, depth=4).take(5, 0).retry_after_us == NEVER


def test_a_clock_that_goes_back_only_lengthens_the_delay() -> None:
    bucket = LeakyBucket(1, SECOND, depth=100)
    bucket.take(1, 10 * SECOND)
    assert bucket.take(1, 9 * SECOND)
    assert bucket.delay_us == 2 * SECOND


def test_depths_near_two_to_the_53_stay_exact() -> None:
    bucket = LeakyBucket(1, 1, depth=1 << 53)
    assert bucket.take((1 << 53) - 1, 0).remaining == 1


@given(limits, steps)
def test_as_a_meter_it_admits_what_gcra_admits(
    limit: tuple[int, int, int], arrivals: list[tuple[int, int]]
) -> None:
    bucket, gcra = LeakyBucket(*limit), Gcra(*limit)
    now_us = 0
    for gap_us, cost in arrivals:
        now_us += gap_us
        assert repr(bucket.take(cost, now_us)) == repr(gcra.take(cost, now_us))


@given(limits, steps)
def test_delays_are_those_of_the_obvious_queue_rounded_up(
    limit: tuple[int, int, int], arrivals: list[tuple[int, int]]
) -> None:
    bucket, oracle = LeakyBucket(*limit), SlowQueue(*limit)
    now_us = 0
    for gap_us, cost in arrivals:
        now_us += gap_us
        verdict, delay = bucket.take(cost, now_us), oracle.take(cost, now_us)
        assert verdict.allowed == (delay is not None)
        assert bucket.delay_us == (0 if delay is None else -(-delay // 1))


@given(limits, steps, st.integers(1, 100))
def test_retry_after_is_exact_to_the_microsecond(
    limit: tuple[int, int, int], arrivals: list[tuple[int, int]], cost: int
) -> None:
    def make() -> LeakyBucket:
        bucket, now_us = LeakyBucket(*limit), 0
        for gap_us, spent in arrivals:
            now_us += gap_us
            bucket.take(spent, now_us)
        return bucket

    end_us = sum(gap_us for gap_us, _ in arrivals)
    verdict = make().take(cost, end_us)
    if verdict.retry_after_us > 0:
        assert not make().take(cost, end_us + verdict.retry_after_us - 1)
        assert make().take(cost, end_us + verdict.retry_after_us)
    assert (verdict.retry_after_us == NEVER) == (cost > limit[2])


@pytest.mark.parametrize(
    ("count", "period_us", "depth", "field"),
    [(0, 1, 1, "count"), (1, 0, 1, "period_us"), (1, 1, 0, "depth")],
)
def test_a_bad_setting_is_named(count: int, period_us: int, depth: int, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        LeakyBucket(count, period_us, depth)


def test_a_negative_cost_is_refused() -> None:
    with pytest.raises(ValueError, match="cost must not be negative"):
        LeakyBucket(1, 1).take(-1, 0)
