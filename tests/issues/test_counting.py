"""Counting: arithmetic that loses units, rates that cannot be said, charges that are not due."""

from __future__ import annotations

import pytest

from sluicegate import BadValue, Claim, Limit, Limiter, Rule
from sluicegate.testing import hand_limiter

buckets = pytest.mark.parametrize("algorithm", ["gcra", "token_bucket"])


@buckets
def test_half_a_token_a_second_is_not_rounded_down_to_none(algorithm: str) -> None:
    # throttled-py floors to whole seconds at each admission: 315 admitted, and not 330.
    limiter, clock = hand_limiter("30/minute burst 30", algorithm=algorithm)
    admitted = int(limiter.take("ann").allowed)
    for _ in range(600):
        clock.advance(s=1)
        admitted += limiter.take("ann").allowed
    assert admitted == 30 + 300


@buckets
def test_a_rate_that_is_no_whole_number_of_microseconds_loses_nothing_in_an_hour(
    algorithm: str,
) -> None:
    limiter, clock = hand_limiter("7/s", algorithm=algorithm)
    began_us = clock.now_us()
    for _ in range(7 * 3_600):
        while not (decision := limiter.take("ann")):
            clock.advance(us=decision.retry_after_us)
    # Seven at once, and all others in the 3,599 seconds after.
    assert clock.now_us() - began_us == 3_599_000_000


@buckets
def test_a_bucket_that_was_idle_is_full_again(algorithm: str) -> None:
    limiter, clock = hand_limiter("10/s burst 10", algorithm=algorithm)
    admitted = 0
    for _ in range(3):
        admitted += sum(limiter.take("ann").allowed for _ in range(15))
        clock.advance(s=1)
    assert admitted == 30


@pytest.mark.parametrize("algorithm", ["gcra", "fixed_window", "sliding_window", "sliding_log"])
def test_half_a_second_is_a_period(algorithm: str) -> None:
    # throttled-py divides by zero, limits cannot read it.
    limiter, clock = hand_limiter("10/500ms", algorithm=algorithm)
    assert sum(limiter.take("ann").allowed for _ in range(20)) == 10
    clock.advance(s=1)
    assert sum(limiter.take("ann").allowed for _ in range(20)) == 10
    assert limiter.limits_of()[0].period_us == 500_000


def test_weeks_bursts_and_fractions_of_a_second_can_be_said() -> None:
    # limits raises ValueError for each of these.
    limiter = Limiter()
    assert limiter.limits_of("5/week") == [Limit(5, period_us=7 * 86_400_000_000)]
    assert limiter.limits_of("10/minute burst 20") == [Limit(10, period_us=60_000_000, burst=20)]
    assert limiter.limits_of("10/500ms") == [Limit(10, period_us=500_000)]
    assert limiter.limits_of("1/2s") == [Limit(1, period_us=2_000_000)]


def test_half_a_unit_a_second_is_refused_with_the_way_to_say_it() -> None:
    with pytest.raises(BadValue, match=r"for half a unit a second say 1/2s"):
        Limiter("0.5/second")


@pytest.mark.parametrize("algorithm", ["gcra", "fixed_window", "sliding_window", "sliding_log"])
def test_what_one_limit_refuses_is_not_charged_to_another(algorithm: str) -> None:
    # limits: five requests of which one was admitted had burnt five of the hour.
    limiter, _ = hand_limiter(
        rules={"minute": "1/minute", "hour": "10/hour", "both": "10/hour; 1/minute"},
        algorithm=algorithm,
    )
    claims = Claim("ann", "hour"), Claim("ann", "minute")
    assert [limiter.take_all(*claims).allowed for _ in range(5)] == [True] + [False] * 4
    assert limiter.peek("ann", 0, "hour").remaining == 9
    assert [limiter.take("ann", rule="both").allowed for _ in range(5)] == [True] + [False] * 4
    counted = limiter.judge(Claim("ann", "both", 0)).decisions
    assert {one.limit.count: one.decision.remaining for one in counted} == {10: 9, 1: 0}


@pytest.mark.parametrize("algorithm", ["gcra", "fixed_window", "sliding_window", "sliding_log"])
def test_what_is_refused_is_not_charged(algorithm: str) -> None:
    # limits, fixed-window: after a refused 8 of 10, the 2 that are left are refused as well.
    limiter, _ = hand_limiter("10/hour", algorithm=algorithm)
    assert [limiter.take("ann", cost).allowed for cost in (8, 8, 2)] == [True, False, True]


def test_what_is_refused_is_charged_where_a_rule_says_so() -> None:
    limiter, _ = hand_limiter(Rule("10/hour", count_refused=True), algorithm="fixed_window")
    assert [limiter.take("ann", cost).allowed for cost in (8, 8, 2)] == [True, False, False]
