"""Places of a lane found by what quick work takes beside it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.lane_search import LEAST, LaneSearch

pytestmark = pytest.mark.prove

MS = 1_000
SECOND = 1_000_000
MOST = 32


class Lane:
    """A search, and the clock; quick work ends each 3 ms, and takes `times` beside heavy work."""

    def __init__(self, most: int = MOST, seed: int = 1) -> None:
        self.search = LaneSearch(most)
        self.random = Random(seed)
        self.now_us = SECOND

    def quick(self, ends: int, heavy: int, times: float = 1.0, *, even: bool = True) -> int:
        """So many ends, each beside so much heavy work; return the places after them."""
        for _ in range(ends):
            self.now_us += 3 * MS
            took = times if even else times * self.random.expovariate(1.0)
            self.search.record_quick(took, heavy, self.now_us)
        return self.search.places

    def full(self, seconds: float) -> int:
        """The lane is full for so long; return the places after it."""
        end_us = self.now_us + round(seconds * SECOND)
        while self.now_us < end_us:
            self.now_us += 10 * MS
            self.search.record_heavy(self.search.places, self.now_us)
        return self.search.places

    def idle(self) -> None:
        self.search.record_heavy(0, self.now_us)


def harmed() -> Lane:
    """Twelve at work made quick work take twice as long."""
    lane = Lane()
    lane.quick(50, heavy=1)
    lane.quick(10, heavy=12, times=2.0)
    return lane


def test_it_begins_with_all_that_it_may_have() -> None:
    assert LaneSearch(MOST).places == MOST


def test_heavy_work_beside_which_quick_work_takes_longer_gets_half_of_its_places() -> None:
    assert harmed().search.places == 6


def test_what_little_heavy_work_needs_is_never_taken() -> None:
    lane = harmed()
    lane.quick(20, heavy=5, times=3.0)
    assert lane.search.places == LEAST
    assert lane.quick(500, heavy=5, times=3.0) == LEAST


def test_an_engine_that_becomes_slow_takes_no_place() -> None:
    lane = Lane()
    for times in (1.0, 4.0):
        for _ in range(50):
            lane.quick(20, heavy=1, times=times)
            lane.quick(20, heavy=12, times=times)
    assert lane.search.places == MOST


def test_where_nothing_was_quick_without_heavy_work_nothing_is_known() -> None:
    lane = Lane()
    assert lane.quick(500, heavy=12, times=9.0) == MOST


def test_what_was_usual_long_ago_is_forgotten() -> None:
    lane = Lane()
    lane.quick(50, heavy=1)
    lane.now_us += 11 * SECOND
    assert lane.quick(500, heavy=12, times=9.0) == MOST
    lane.quick(50, heavy=1, times=9.0)
    assert lane.quick(500, heavy=12, times=9.0) == MOST


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_harm(seed: int) -> None:
    lane = Lane(seed=seed)
    for _ in range(100):
        lane.quick(20, heavy=1, even=False)
        lane.quick(20, heavy=12, even=False)
    assert lane.search.places == MOST


@pytest.mark.parametrize("seed", range(20))
def test_harm_shows_through_noise(seed: int) -> None:
    lane = Lane(seed=seed)
    for _ in range(20):
        lane.quick(20, heavy=1, even=False)
        lane.quick(20, heavy=12, times=2.5, even=False)
    assert lane.search.places < MOST


def test_a_lane_that_is_full_for_bursts_stays_as_it_is() -> None:
    lane = harmed()
    for _ in range(40):
        lane.full(0.3)
        lane.idle()
        lane.now_us += 700 * MS
    assert lane.search.places == 6


def test_one_that_stays_full_gets_more_and_beyond_what_did_harm_one_at_a_time() -> None:
    lane = harmed()
    assert lane.full(1.9) == 6
    assert 10 <= lane.full(2.1) <= 13
    before = lane.search.places
    assert lane.full(2.1) <= before + 2
    assert lane.full(60.0) == MOST


def test_each_harm_makes_it_wait_longer() -> None:
    lane = harmed()
    waits: list[int] = []
    for _ in range(4):
        began_us, places = lane.now_us, lane.search.places
        while lane.full(0.01) == places:
            pass
        waits.append(lane.now_us - began_us)
        lane.quick(50, heavy=1)
        lane.quick(200, heavy=LEAST + 1, times=3.0)
        assert lane.search.places == LEAST
    assert waits == sorted(waits)
    assert waits[-1] >= 4 * waits[0]


def test_after_a_minute_without_harm_bursts_are_enough() -> None:
    lane = harmed()
    lane.now_us += 61 * SECOND
    for _ in range(10):
        lane.full(0.3)
        lane.idle()
    assert lane.search.places > 6


def test_it_follows_what_it_may_have_at_most_unless_it_has_less() -> None:
    lane = Lane()
    assert lane.search.limit(8)
    assert lane.search.places == 8
    assert lane.search.limit(MOST)
    assert lane.search.places == MOST
    less = harmed().search
    assert not less.limit(16)
    assert less.places == 6
    assert less.limit(3)
    assert less.places == 3


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("quick", "heavy", "limit")),
            st.floats(0, 1e6),
            st.integers(0, 64),
            st.integers(-SECOND, 20 * SECOND),
        ),
        max_size=200,
    )
)
def test_there_is_always_a_place_and_never_more_than_it_may_have(
    steps: list[tuple[str, float, int, int]],
) -> None:
    search, now_us = LaneSearch(MOST), 0
    for what, time, heavy, passed_us in steps:
        now_us = max(0, now_us + passed_us)
        before = search.places
        if what == "quick":
            changed = search.record_quick(time, heavy, now_us)
        elif what == "heavy":
            changed = search.record_heavy(heavy, now_us)
        else:
            changed = search.limit(max(1, heavy))
        assert 1 <= search.places <= search.most
        assert changed == (search.places != before)
