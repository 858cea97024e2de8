from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.speed_profile import STEADY, SpeedProfile

BROWN_OUT = SpeedProfile(((1_000, 0.5), (3_000, 1.0)))
PAUSE = SpeedProfile(((1_000, 0.0), (5_000, 1.0)))


def test_work_takes_what_it_takes_where_nothing_changes() -> None:
    assert STEADY.end_us(7, 100) == 107


def test_work_that_a_change_finds_half_done_goes_on_at_the_new_speed() -> None:
    # 500 at full speed, 1000 in 2000, and the last 500 at full speed again.
    assert BROWN_OUT.end_us(500, 2_000) == 3_500
    assert BROWN_OUT.end_us(1_500, 100) == 1_700


def test_a_pause_lasts_until_it_is_over() -> None:
    assert PAUSE.end_us(900, 300) == 5_200
    assert PAUSE.end_us(2_000, 10) == 5_010
    assert PAUSE.speed(999) == 1.0
    assert PAUSE.speed(1_000) == 0.0


def slowly(speed_profile: SpeedProfile, begin_us: int, work_us: int) -> int:
    at_us, left = begin_us, float(work_us)
    while left > 1e-9:
        left -= speed_profile.speed(at_us)
        at_us += 1
    return at_us


COURSES = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from([0.0, 0.25, 0.5, 2.0])),
    max_size=4,
    unique_by=lambda change: change[0],
).map(lambda changes: SpeedProfile((*sorted(changes), (300, 1.0))))


@given(COURSES, st.integers(0, 250), st.integers(1, 200))
def test_it_ends_when_a_microsecond_after_the_other_says_so(
    speed_profile: SpeedProfile, begin_us: int, work_us: int
) -> None:
    end_us = speed_profile.end_us(begin_us, work_us)
    assert end_us == slowly(speed_profile, begin_us, work_us)
    assert speed_profile.work_us(begin_us, end_us) >= work_us - 1e-6
    assert speed_profile.work_us(begin_us, end_us - 1) < work_us


@pytest.mark.parametrize(
    "changes",
    [((5, 1.0), (5, 2.0)), ((9, 1.0), (5, 1.0)), ((-1, 1.0),), ((0, -1.0),), ((0, 0.0),)],
)
def test_courses_that_make_no_sense_are_refused(changes: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(BadValue):
        SpeedProfile(changes)


def test_work_of_no_length_is_done_at_once_even_in_a_pause() -> None:
    assert SpeedProfile(((0, 0.0), (10, 1.0))).end_us(5, 0) == 5
