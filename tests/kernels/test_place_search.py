"""Places found by trying, on a small engine with slots, event by event."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.place_search import PlaceSearch
from tests.prove.seeds import first

pytestmark = pytest.mark.prove

SECOND = 1_000_000
MOST = 64


@dataclass
class Engine:
    """Slots, a line inside the engine, places before it, and those who wait for a place.

    Who waits for longer than `patience_us` leaves; what is begun is worked on whoever waits.
    """

    slots: int
    work_us: int
    per_s: float
    seed: int = 1
    even: bool = False
    patience_us: int = 100_000
    search: PlaceSearch = field(default_factory=lambda: PlaceSearch(MOST))
    ends: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.now_us = 0
        self.next_us = 0
        self.outside: deque[int] = deque()
        self.inside: deque[int] = deque()
        self.at_work: list[tuple[int, int, int]] = []
        self.inflight = 0

    def run(self, seconds: float) -> Engine:
        """So much longer."""
        end_us = self.now_us + round(seconds * SECOND)
        while True:
            self.now_us = min(self.next_us, self.at_work[0][0] if self.at_work else end_us)
            if self.now_us >= end_us:
                return self
            if self.now_us == self.next_us:
                self.outside.append(self.now_us)
                self.next_us += round(self.random.expovariate(self.per_s) * SECOND) + 1
            else:
                _, _, began_us = heapq.heappop(self.at_work)
                self.inflight -= 1
                self._fill()
                self.search.record(began_us, self.now_us, self.inflight)
                self.ends.append(self.now_us)
                self.numbers.append(self.search.places)
            self._fill()

    def done_per_s(self, from_s: float, to_s: float) -> float:
        """What was done a second, between two instants."""
        found = sum(from_s * SECOND <= at < to_s * SECOND for at in self.ends)
        return found / (to_s - from_s)

    def _fill(self) -> None:
        while self.outside and self.outside[0] < self.now_us - self.patience_us:
            self.outside.popleft()
        while self.outside and self.inflight < self.search.places:
            self.outside.popleft()
            self.inflight += 1
            self.inside.append(self.now_us)
        while self.inside and len(self.at_work) < self.slots:
            began_us = self.inside.popleft()
            took_us = self.work_us if self.even else self.random.expovariate(1 / self.work_us)
            end_us = self.now_us + max(1, round(took_us))
            heapq.heappush(self.at_work, (end_us, len(self.ends), began_us))


def capacity(slots: int, work_us: int) -> float:
    return slots * SECOND / work_us


@pytest.mark.parametrize("even", [True, False], ids=["even", "memoryless"])
@pytest.mark.parametrize("load", [1.5, 5.0])
@pytest.mark.parametrize(("slots", "work_us"), first(1, [(8, 10_000), (32, 10_000), (4, 2_000)]))
def test_under_overload_the_line_leaves_the_engine_and_as_much_is_done(
    slots: int, work_us: int, load: float, even: bool
) -> None:
    most = capacity(slots, work_us)
    numbers = []
    for seed in range(5):  # chance may turn down a try now and then
        engine = Engine(slots, work_us, load * most, seed, even).run(12)
        assert engine.done_per_s(1, 12) >= 0.93 * most
        late = engine.numbers[len(engine.numbers) // 2 :]
        numbers.append(median(late))
    assert median(numbers) <= 3 * slots


@pytest.mark.parametrize("load", [2.0, 5.0])
def test_an_engine_that_can_use_all_of_them_keeps_them(load: float) -> None:
    most = capacity(MOST, 5_000)
    engine = Engine(MOST, 5_000, load * most).run(6)
    assert engine.done_per_s(1, 6) >= 0.98 * most
    assert engine.search.places == MOST
    assert engine.search.accepted == 0


@pytest.mark.parametrize("even", [True, False], ids=["even", "memoryless"])
@pytest.mark.parametrize("load", [1.1, 5.0])
@pytest.mark.parametrize("places", [64, 16])
def test_an_engine_that_can_do_more_at_once_gets_more(places: int, load: float, even: bool) -> None:
    most = capacity(128, 10_000)
    engine = Engine(128, 10_000, load * most, even=even, search=PlaceSearch(places, 256)).run(10)
    assert engine.done_per_s(2, 10) >= 0.97 * most
    assert max(engine.numbers) <= 256
    bound = Engine(128, 10_000, load * most, even=even, search=PlaceSearch(places)).run(4)
    assert bound.done_per_s(1, 4) < 0.55 * most


def test_without_a_line_there_are_never_more_than_at_first() -> None:
    engine = Engine(8, 10_000, 0.5 * capacity(8, 10_000), search=PlaceSearch(16, 64)).run(20)
    assert max(engine.numbers) == 16


def test_work_longer_than_a_window_is_timed_by_how_much_is_at_work() -> None:
    # Eight slots and 64 places: work takes 0.8 s, and hardly any begins and ends in a window.
    engine = Engine(8, 100_000, 5 * capacity(8, 100_000), patience_us=SECOND)
    engine.search = PlaceSearch(64, 1_024)
    engine.run(60)
    assert max(engine.numbers) <= 128
    assert engine.done_per_s(5, 60) >= 0.93 * capacity(8, 100_000)


def test_where_work_is_as_quick_as_in_calm_fewer_are_not_tried() -> None:
    engine = Engine(8, 10_000, 0.4 * capacity(8, 10_000), even=True).run(2)
    engine.per_s = 1.5 * capacity(8, 10_000)
    engine.run(4)
    assert engine.search.accepted >= 3
    assert min(engine.numbers) == 8


def test_a_line_longer_than_a_window_is_slow_though_nothing_begins_and_ends_in_one() -> None:
    engine = Engine(8, 40_000, 0.4 * capacity(8, 40_000), even=True, patience_us=300_000).run(3)
    engine.per_s = 3 * capacity(8, 40_000)
    engine.run(3)
    assert engine.search.places <= 16
    engine.per_s = 0.4 * capacity(8, 40_000)
    engine.run(4)
    assert engine.search.places == MOST
    engine.per_s = 3 * capacity(8, 40_000)
    engine.run(3)
    assert engine.search.places <= 16


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_burst_that_ends_in_a_try_says_nothing_of_what_fewer_places_can_do(
    comes_back: bool,
) -> None:
    """They were kept, and halved again by the next: before 32 slots it came to 8."""
    search = PlaceSearch(MOST)
    now_us = 0
    while search.places == MOST:
        now_us += 1_000
        search.record(now_us - 20_000, now_us, MOST)
    assert search.places == MOST // 2
    for _ in range(200):  # the pause
        now_us += 1_000
        search.record(now_us - 10_000, now_us, 3)
    assert (search.places, search.tries, search.accepted) == (MOST // 2, 1, 0)
    if comes_back:  # half as much is done as with all places
        for _ in range(200):
            now_us += 2_000
            search.record(now_us - 20_000, now_us, MOST // 2)
    else:
        for _ in range(1_000):
            now_us += 1_000
            search.record(now_us - 10_000, now_us, 3)
    assert (search.places, search.accepted) == (MOST, 0)


def test_what_is_slow_and_has_places_to_spare_is_left_alone() -> None:
    engine = Engine(32, 10_000, 500.0).run(3)
    engine.work_us = 40_000
    engine.run(3)
    assert engine.search.tries == 0
    assert engine.search.places == MOST


@pytest.mark.parametrize("seed", range(2))
def test_slots_that_go_and_come_back_are_found_again(seed: int) -> None:
    engine = Engine(32, 10_000, 2 * capacity(32, 10_000), seed).run(4)
    engine.slots = 8
    engine.run(4)
    assert engine.done_per_s(5, 8) >= 0.9 * capacity(8, 10_000)
    engine.slots = 32
    engine.run(6)
    assert engine.done_per_s(10, 14) >= 0.9 * capacity(32, 10_000)


@pytest.mark.parametrize("seed", range(2))
def test_a_stall_says_nothing_of_what_is_done_in_a_second(seed: int) -> None:
    most = capacity(MOST, 10_000)
    engine = Engine(MOST, 10_000, 2 * most, seed).run(4)
    end_us = engine.now_us + 5 * SECOND
    engine.at_work = [(at + 5 * SECOND, number, began) for at, number, began in engine.at_work]
    engine.now_us = engine.next_us = end_us
    engine.run(1)
    assert engine.search.accepted == 0
    assert engine.search.places == MOST


def test_without_overload_all_places_are_there_again() -> None:
    engine = Engine(8, 10_000, 2 * capacity(8, 10_000), even=True).run(4)
    assert engine.search.places < MOST // 2
    engine.per_s = 0.5 * capacity(8, 10_000)
    engine.next_us = engine.now_us
    engine.run(3)
    assert engine.search.places == MOST


def test_the_next_overload_begins_with_what_the_last_one_found() -> None:
    search = PlaceSearch(MOST)
    engine = Engine(8, 10_000, 2 * capacity(8, 10_000), even=True, search=search).run(1)
    engine.per_s = 0.5 * capacity(8, 10_000)
    engine.run(3)
    assert search.places == MOST
    engine.per_s = 5 * capacity(8, 10_000)
    engine.run(1)
    assert search.places <= 16


def test_where_all_is_late_there_are_too_many_though_some_are_free() -> None:
    search = PlaceSearch(MOST)
    for at in range(1, 400):
        search.record(at * 5_000 - 300_000, at * 5_000, 40, late=True)
    assert search.tries > 0
    punctual = PlaceSearch(MOST)
    for at in range(1, 400):
        punctual.record(at * 5_000 - 300_000, at * 5_000, 40)
    assert punctual.tries == 0


events = st.lists(
    st.tuples(
        st.integers(-5_000, 200_000), st.integers(0, 10**7), st.integers(0, 200), st.booleans()
    ),
    max_size=600,
)


@given(events, st.integers(1, 100))
def test_whatever_ends_the_number_stays_within_its_bounds(
    ends: list[tuple[int, int, int, bool]], most: int
) -> None:
    search = PlaceSearch(most, span_us=10_000, ends_min=3)
    now_us = 0
    for step_us, took_us, inflight, late in ends:
        now_us = max(0, now_us + step_us)  # the clock may go back
        before = search.places
        changed = search.record(now_us - took_us, now_us, inflight, late=late)
        assert changed == (search.places != before)
        assert 1 <= search.places <= most


@pytest.mark.parametrize(
    "bad", [{"first": 0}, {"first": 8, "span_us": 0}, {"first": 8, "ends_min": 0}]
)
def test_what_cannot_be_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be from 1"):
        PlaceSearch(**bad)


def late_ends(search: PlaceSearch, count: int, each_us: int, waits_us: int, inflight: int) -> int:
    """So many ends that were all too late, one each `each_us`; return the places after them."""
    for at in range(1, count + 1):
        search.record(SECOND, SECOND + at * each_us, inflight, late=True, waits_us=waits_us)
    return search.places


def test_where_all_is_too_late_there_are_as_many_as_end_while_callers_wait() -> None:
    assert late_ends(PlaceSearch(MOST), 8, SECOND // 5, SECOND // 2, MOST) == 1
    assert late_ends(PlaceSearch(MOST), 8, SECOND // 40, SECOND // 2, MOST) == 15


def test_few_ends_that_were_too_late_or_some_beside_a_free_place_change_nothing() -> None:
    assert late_ends(PlaceSearch(MOST), 8, 15_000, SECOND // 2, MOST) == 25
    assert late_ends(PlaceSearch(MOST), 7, 15_000, SECOND // 2, MOST) == MOST
    assert late_ends(PlaceSearch(MOST), 8, 14_000, SECOND // 2, MOST) == MOST
    assert late_ends(PlaceSearch(MOST), 8, 15_000, SECOND // 2, MOST - 1) == MOST
    search = PlaceSearch(MOST)
    for at in range(1, 9):
        search.record(0, at * 15_000, MOST, late=at != 4, waits_us=SECOND // 2)
    assert search.places == MOST


def test_all_that_a_stall_held_up_ends_together_and_says_nothing_of_what_is_done() -> None:
    assert late_ends(PlaceSearch(MOST), MOST, 10, SECOND // 2, MOST) == MOST


def cut() -> PlaceSearch:
    """One that knows what 10 ms of work take, and has few places since all was too late."""
    search = PlaceSearch(MOST)
    for at in range(200):
        search.record(at * 5_000, at * 5_000 + 10_000, 2)
    assert late_ends(search, 8, 15_000, SECOND // 2, MOST) == 25
    return search


def windows(search: PlaceSearch, took_us: int, free: int) -> int:
    """Ends of two seconds, so many places free; the most places."""
    most = 0
    for at in range(400):
        now_us = 2 * SECOND + at * 5_000
        search.record(now_us - took_us, now_us, search.places - free)
        most = max(most, search.places)
    return most


def test_a_place_that_is_free_for_a_moment_gives_none_back_while_there_is_a_line() -> None:
    assert windows(cut(), took_us=80_000, free=1) == 25
    assert windows(cut(), took_us=10_000, free=1) == MOST


def tried_in_vain(short_us: int = 64_000) -> tuple[PlaceSearch, int]:
    """One that gave places back and takes 64 ms for what is usual; and the instant."""
    search, now_us = PlaceSearch(MOST, 4 * MOST), 0
    for _ in range(200):  # some places are free, and it takes so long
        now_us += 1_000
        search.record(now_us - short_us, now_us, MOST - 1)
    while search.tries == 0 or search.places < MOST:  # with half of them half as much is done
        now_us += 1_000 * MOST // search.places
        search.record(now_us - 64_000, now_us, search.places)
        assert now_us < 3 * SECOND
    return search, now_us


@pytest.mark.parametrize("late", [True, False])
def test_where_most_is_too_late_there_are_no_more_though_it_takes_no_longer(late: bool) -> None:
    search, now_us = tried_in_vain()
    for _ in range(1_000):
        now_us += 1_000
        search.record(now_us - 64_000, now_us, search.places, late=late)
    assert (search.places > MOST) is not late


@pytest.mark.parametrize("free", [0, 1])
@pytest.mark.parametrize(("took_us", "more"), [(64_000, False), (40_000, True)])
def test_places_that_made_all_too_late_are_not_given_back_by_what_is_held_for_usual(
    free: int, took_us: int, more: bool
) -> None:
    search, now_us = tried_in_vain()
    for _ in range(10):
        now_us += 15_000
        search.record(now_us - 200_000, now_us, search.places, late=True, waits_us=90_000)
    assert search.places == 4  # of 67 a second, in three quarters of 90 ms
    most = 0
    for _ in range(3 * SECOND // 5_000):
        now_us += 5_000
        search.record(now_us - took_us, now_us, search.places - free)
        most = max(most, search.places)
    assert (most > 4) is more


@pytest.mark.parametrize(("short_us", "more"), [(30_000, False), (40_000, True)])
def test_there_are_no_more_than_at_first_where_it_once_took_half_as_long(
    short_us: int, more: bool
) -> None:
    search, now_us = tried_in_vain(short_us)
    for _ in range(1_000):
        now_us += 1_000
        search.record(now_us - 64_000, now_us, search.places)
    assert (search.places > MOST) is more
