"""The oracle itself, against examples that can be counted on fingers, and a slow twin."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluicegate import Algorithm, Limit
from tests.failures.bounds import (
    Admission,
    admitted_max,
    over_bucket,
    over_span,
    over_window,
    shared_max,
)

SECOND = 1_000_000
FIXED = Limit(3, period_us=SECOND, algorithm=Algorithm.FIXED_WINDOW)
BUCKET = Limit(3, period_us=SECOND)
LOG = Limit(3, period_us=SECOND, algorithm=Algorithm.SLIDING_LOG)


def at(*instants_us: int) -> list[Admission]:
    return [Admission(us, us) for us in instants_us]


def test_a_loss_gives_one_limit_more() -> None:
    for limit in (FIXED, BUCKET, LOG):
        assert admitted_max(limit, 0, 10) == 3
        assert admitted_max(limit, 0, 10, losses=1) == 6
        assert admitted_max(limit, 0, 10, losses=4) == 15
    assert admitted_max(FIXED, SECOND - 1, SECOND) == 6
    assert admitted_max(BUCKET, 0, SECOND, losses=1) == 9
    assert admitted_max(LOG, 0, SECOND - 1) == 3


def test_each_process_has_its_share() -> None:
    limit = Limit(100, period_us=3_600 * SECOND)
    assert shared_max(limit, 0.5, 0, 10, processes=3) == 150
    assert shared_max(FIXED, 0.1, 0, 10, processes=2) == 2


def test_a_full_window_is_not_over_and_one_more_is() -> None:
    assert over_window(FIXED, at(0, 1, 2, SECOND, SECOND + 1, SECOND + 2)) == 0
    assert over_window(FIXED, at(0, 1, 2, 3)) == 1
    assert over_window(FIXED, [Admission(SECOND - 1, SECOND)] * 9) == 0
    assert over_span(LOG, at(0, 1, 2, SECOND, SECOND + 1, SECOND + 2)) == 0
    assert over_span(LOG, at(0, 1, 2, SECOND - 1)) == 1


def test_a_full_bucket_is_not_over_and_one_more_is() -> None:
    third = SECOND // 3 + 1
    assert over_bucket(BUCKET, at(5, 5, 5, 5 + third, 5 + 2 * third, 5 + 3 * third)) == 0
    assert over_bucket(BUCKET, at(5, 5, 5, 5)) == 1
    assert over_bucket(BUCKET, at(*[5] * 10)) == 7
    assert over_bucket(BUCKET, at(0, 5 * SECOND, 5 * SECOND, 5 * SECOND, 5 * SECOND)) == 1
    assert over_bucket(BUCKET, []) == over_span(LOG, []) == over_window(FIXED, []) == 0


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8)), max_size=25))
def test_the_passes_find_what_trying_every_span_finds(timings: list[tuple[int, int]]) -> None:
    admissions = [Admission(sent, sent + took) for sent, took in timings]
    bucket = Limit(2, period_us=7, burst=3)
    log = Limit(4, period_us=9, algorithm=Algorithm.SLIDING_LOG)

    def surely(a_us: int, b_us: int) -> int:
        done = sum(one.answered_us <= b_us for one in admissions)
        return done - sum(one.sent_us < a_us for one in admissions)

    spans = [(a, b) for b in range(50) for a in range(b + 1)]
    slow = max(surely(a, b) - 3 - (b - a) * 2 / 7 for a, b in spans)
    assert over_bucket(bucket, admissions) == max(0, -int(-slow // 1))
    slow_log = max(surely(a, b) - 4 for a, b in spans if b - a < 9)
    assert over_span(log, admissions) == max(0, slow_log)
