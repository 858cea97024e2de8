from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.backoff import (
    DECORRELATED,
    EQUAL,
    FULL,
    JITTERS,
    NONE,
    WAIT_US_MAX,
    Backoff,
    BackoffSettings,
    between_us,
    ceiling_us,
)
from sluicegate.kernels.verdict import NEVER

SECOND = 1_000_000
LAST_DRAW = 1.0 - 2.0**-53  # the largest float below 1

draws = st.floats(0.0, 1.0, exclude_max=True)
spans = st.tuples(st.integers(1, WAIT_US_MAX), st.integers(1, WAIT_US_MAX)).map(sorted)


def backoff_of(base_us: int = 100_000, wait_us_max: int = 20_000_000, **others: Any) -> Backoff:
    return Backoff(BackoffSettings(base_us=base_us, wait_us_max=wait_us_max, **others))


def slow_wait_us(
    jitter: str,
    base_us: int,
    wait_us_max: int,
    attempt: int,
    draw: float,
    hint_us: int,
    previous_us: int,
) -> int:
    """The oracle: the table of the essay, doubling one step at a time, in exact fractions."""
    ceiling = base_us
    for _ in range(attempt):
        ceiling = min(wait_us_max, 2 * ceiling)
    low, high = {
        NONE: (ceiling, ceiling),
        FULL: (0, ceiling),
        EQUAL: (ceiling // 2, ceiling),
        DECORRELATED: (base_us, min(wait_us_max, 3 * max(base_us, previous_us))),
    }[jitter]
    width = high - low
    return max(low, hint_us) + int(Fraction(draw) * (width + 1))


def test_the_ceiling_doubles_until_the_cap() -> None:
    assert [ceiling_us(n, 100, 1_000) for n in range(6)] == [100, 200, 400, 800, 1_000, 1_000]


def test_full_jitter_is_the_default_and_reaches_from_nothing_to_the_ceiling() -> None:
    backoff = backoff_of(100, 1_000)
    assert backoff.wait_us(1, 0.0) == 0
    assert backoff.wait_us(1, 0.5) == 100
    assert backoff.wait_us(1, LAST_DRAW) == 200


def test_equal_jitter_never_waits_less_than_half_the_ceiling() -> None:
    backoff = backoff_of(100, 1_000, jitter=EQUAL)
    assert (backoff.wait_us(2, 0.0), backoff.wait_us(2, LAST_DRAW)) == (200, 400)


def test_no_jitter_keeps_the_crowd_together() -> None:
    backoff = backoff_of(100, 1_000, jitter=NONE)
    assert {backoff.wait_us(2, draw) for draw in (0.0, 0.3, LAST_DRAW)} == {400}


def test_decorrelated_jitter_grows_from_the_wait_before() -> None:
    backoff = backoff_of(100, 1_000, jitter=DECORRELATED)
    assert (backoff.wait_us(0, 0.0), backoff.wait_us(0, LAST_DRAW)) == (100, 300)
    assert backoff.wait_us(1, LAST_DRAW, previous_us=200) == 600
    assert backoff.wait_us(2, LAST_DRAW, previous_us=600) == 1_000


def test_a_servers_hint_lifts_the_low_end_and_keeps_the_spread() -> None:
    full, equal = backoff_of(100, 1_000), backoff_of(100, 1_000, jitter=EQUAL)
    assert full.wait_us(1, 0.0, hint_us=SECOND) == SECOND
    assert full.wait_us(1, LAST_DRAW, hint_us=SECOND) == SECOND + 200
    assert equal.wait_us(1, LAST_DRAW, hint_us=SECOND) == SECOND + 100


def test_a_hint_below_the_own_wait_changes_nothing() -> None:
    backoff = backoff_of(100, 1_000, jitter=EQUAL)
    assert backoff.wait_us(2, 0.25, hint_us=150) == backoff.wait_us(2, 0.25)


def test_a_hint_too_long_or_negative_says_give_up() -> None:
    backoff = backoff_of(100, 1_000, hint_us_max=5 * SECOND)
    assert backoff.wait_us(0, 0.0, hint_us=5 * SECOND) == 5 * SECOND
    assert backoff.wait_us(0, 0.0, hint_us=5 * SECOND + 1) == NEVER
    assert backoff.wait_us(0, 0.0, hint_us=-1) == NEVER


@pytest.mark.parametrize("jitter", JITTERS)
def test_a_million_attempts_neither_overflow_nor_pass_the_cap(jitter: str) -> None:
    backoff = backoff_of(WAIT_US_MAX - 1, WAIT_US_MAX, jitter=jitter)
    assert backoff.wait_us(10**6, LAST_DRAW, previous_us=WAIT_US_MAX) == WAIT_US_MAX


def test_the_shift_is_never_made_when_it_could_only_reach_the_cap() -> None:
    # 10^18 doublings would be a number of 10^18 bits.
    assert ceiling_us(10**18, 1, WAIT_US_MAX) == WAIT_US_MAX


def test_the_defaults_are_a_tenth_of_a_second_twenty_seconds_and_five_minutes() -> None:
    backoff = Backoff(BackoffSettings())
    assert [backoff.wait_us(n, LAST_DRAW) for n in (0, 99)] == [SECOND // 10, 20 * SECOND]
    assert backoff.wait_us(0, 0.0, hint_us=300 * SECOND) == 300 * SECOND
    assert backoff.wait_us(0, 0.0, hint_us=300 * SECOND + 1) == NEVER


def test_the_smallest_settings_are_allowed() -> None:
    assert backoff_of(1, 1, hint_us_max=1).wait_us(5, LAST_DRAW, hint_us=1) == 2


@pytest.mark.parametrize(
    ("base_us", "wait_us_max", "jitter", "hint_us_max", "field"),
    [
        (0, 1, FULL, 1, "base_us"),
        (WAIT_US_MAX + 1, WAIT_US_MAX + 1, FULL, 1, "base_us"),
        (10, 9, FULL, 1, "wait_us_max"),
        (1, WAIT_US_MAX + 1, FULL, 1, "wait_us_max"),
        (1, 1, "some", 1, "jitter"),
        (1, 1, FULL, 0, "hint_us_max"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(
    base_us: int, wait_us_max: int, jitter: str, hint_us_max: int, field: str
) -> None:
    with pytest.raises(ValueError, match=field):
        backoff_of(base_us, wait_us_max, jitter=jitter, hint_us_max=hint_us_max)


@pytest.mark.parametrize("draw", [-0.1, 1.0, float("nan"), float("inf")])
def test_a_draw_outside_its_range_is_refused(draw: float) -> None:
    with pytest.raises(ValueError, match="draw"):
        backoff_of().wait_us(0, draw)


@pytest.mark.parametrize("jitter", JITTERS)
def test_a_negative_attempt_is_refused(jitter: str) -> None:
    with pytest.raises(ValueError, match="attempt"):
        backoff_of(jitter=jitter).wait_us(-1, 0.0)


@given(
    st.sampled_from(JITTERS),
    spans,
    st.integers(0, 60),
    draws,
    st.integers(0, 1 << 40),
    st.integers(0, WAIT_US_MAX),
)
def test_it_waits_what_the_table_says(
    jitter: str, span: list[int], attempt: int, draw: float, hint_us: int, previous_us: int
) -> None:
    base_us, wait_us_max = span
    backoff = backoff_of(base_us, wait_us_max, jitter=jitter, hint_us_max=1 << 40)
    wait_us = backoff.wait_us(attempt, draw, hint_us=hint_us, previous_us=previous_us)
    exact = slow_wait_us(jitter, base_us, wait_us_max, attempt, draw, hint_us, previous_us)
    # A float product may round up across a whole number; only beyond 2^52 could it miss more.
    assert abs(wait_us - exact) <= 1
    assert hint_us <= wait_us <= max(hint_us, wait_us_max) + wait_us_max


@given(st.integers(0, WAIT_US_MAX), draws)
def test_no_draw_leaves_its_range(width_us: int, draw: float) -> None:
    assert 7 <= between_us(7, 7 + width_us, draw) <= 7 + width_us
    assert between_us(0, width_us, LAST_DRAW) == width_us


def test_draws_fall_evenly_on_every_value() -> None:
    counts = [0] * 4
    for n in range(4_000):
        counts[between_us(0, 3, n / 4_000)] += 1
    assert counts == [1_000] * 4
