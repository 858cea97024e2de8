"""Path timeout: what it learns from round trips, and within which bounds."""

from __future__ import annotations

import pytest

from sluicegate.policies.client.path_timeout import (
    CEILING_US,
    FLOOR_US,
    LOOK_US,
    MARGIN,
    SUB_WINDOW_US,
    WINDOWS,
    PathTimeout,
)

SECOND_US = 1_000_000


def test_timeout_without_round_trips_is_ceiling() -> None:
    assert PathTimeout().look(SECOND_US) == CEILING_US


def test_timeout_of_quick_path_is_floor() -> None:
    path = PathTimeout()
    for _ in range(5_000):
        path.observe(300, 0, SECOND_US)
    assert path.look(SECOND_US) == FLOOR_US


def test_timeout_of_slow_path_follows_its_p999() -> None:
    """One round trip of 1,000 is 40 ms; 40 of 10,000 are."""
    path = PathTimeout()
    for number in range(10_000):
        path.observe(40_000 if number % 250 == 0 else 2_000, 0, SECOND_US)
    assert path.look(SECOND_US) == pytest.approx(MARGIN * 40_000, rel=0.03)


def test_timeout_ignores_one_outlier_of_many() -> None:
    """One of 5,000 round trips is close to the time-out, and in time."""
    path = PathTimeout()
    for _ in range(5_000):
        path.observe(300, 0, SECOND_US)
    assert path.look(SECOND_US) == FLOOR_US
    path.observe(FLOOR_US - 1, 0, SECOND_US)
    assert path.look(SECOND_US + LOOK_US) == FLOOR_US


def test_timeout_of_few_round_trips_follows_highest() -> None:
    path = PathTimeout()
    for trip_us in (300, 300, 300, 30_000):
        path.observe(trip_us, 0, SECOND_US)
    assert path.look(SECOND_US) == pytest.approx(MARGIN * 30_000, rel=0.03)


def test_timeout_of_path_beyond_ceiling_is_ceiling() -> None:
    path = PathTimeout()
    path.observe(700_000, 1, SECOND_US)
    assert path.look(SECOND_US) == CEILING_US


def test_late_answer_raises_timeout_at_once_for_window() -> None:
    """Quick round trips before and afterwards do not outweigh it."""
    path = PathTimeout()
    for _ in range(5_000):
        path.observe(300, 0, SECOND_US)
    assert path.look(SECOND_US) == FLOOR_US
    path.observe(69_000, 3, SECOND_US + 1)
    for second in range(1, WINDOWS * SUB_WINDOW_US // SECOND_US + 1):
        assert path.look(second * SECOND_US + 1) == MARGIN * 69_000
        for _ in range(2_000):
            path.observe(300, 0, second * SECOND_US + 1)
    assert path.look(SECOND_US + 1 + WINDOWS * SUB_WINDOW_US) == FLOOR_US
    assert path.late == 3


def test_timeout_is_computed_once_a_second() -> None:
    path = PathTimeout()
    path.observe(300, 0, SECOND_US)
    assert path.look(SECOND_US) == FLOOR_US
    path.observe(FLOOR_US - 1, 0, SECOND_US + 1)
    assert path.look(SECOND_US + LOOK_US - 1) == FLOOR_US
    assert path.look(SECOND_US + LOOK_US) > FLOOR_US


def test_timeout_forgets_slow_round_trips_after_window() -> None:
    path = PathTimeout()
    path.observe(60_000, 0, SECOND_US)
    assert path.look(SECOND_US) > 100_000
    later_us = SECOND_US + WINDOWS * SUB_WINDOW_US
    path.observe(300, 0, later_us)
    assert path.look(later_us) == FLOOR_US


def test_fixed_timeout_never_changes() -> None:
    path = PathTimeout(25_000)
    for _ in range(10):
        path.observe(90_000, 1, SECOND_US)
        assert path.look(SECOND_US) == 25_000
    assert path.late == 10
