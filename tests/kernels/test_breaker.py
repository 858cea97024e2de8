from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sluicegate.kernels.breaker import (
    CLOSED,
    FAILURE,
    FORCED_CLOSED,
    FORCED_OPEN,
    HALF_OPEN,
    IGNORED,
    OPEN,
    REFUSED,
    STATES,
    SUCCESS,
    Circuit,
    CircuitSettings,
)
from sluicegate.kernels.verdict import NEVER

SECOND = 1_000_000
FAST = 1_000

IN_A_ROW = {"failure_percent": 0, "failures_in_row": 3, "open_us": 10, "open_us_max": 80}
BY_RATE = {"failures_in_row": 0, "failure_percent": 50, "calls_min": 10, "window_us": 10 * SECOND}


def made(**fields: int) -> Circuit:
    return Circuit(CircuitSettings(**fields))


def call(breaker: Circuit, outcome: int, now_us: int, latency_us: int = FAST) -> int:
    generation = breaker.enter(now_us)
    assert generation != REFUSED
    return breaker.leave(generation, outcome, latency_us, now_us, 0.0)


def opened(**fields: int) -> Circuit:
    """A breaker that opened at instant 0; draws of 0 keep it open for half of `open_us`."""
    breaker = made(**{**IN_A_ROW, **fields})
    for _ in range(breaker._settings.failures_in_row):
        call(breaker, FAILURE, 0)
    assert breaker.state == OPEN
    return breaker


# Opening.


def test_three_failures_in_a_row_open_it_and_a_success_between_them_does_not() -> None:
    breaker = made(**IN_A_ROW)
    for outcome in (FAILURE, FAILURE, SUCCESS, FAILURE, FAILURE):
        assert call(breaker, outcome, 0) == CLOSED
    assert call(breaker, FAILURE, 0) == OPEN


def test_ignored_results_neither_count_nor_break_a_row() -> None:
    breaker = made(**IN_A_ROW)
    for outcome in (FAILURE, IGNORED, FAILURE, IGNORED):
        assert call(breaker, outcome, 0) == CLOSED
    assert call(breaker, FAILURE, 0) == OPEN
    shed = made(**BY_RATE)
    for _ in range(1_000):
        call(shed, IGNORED, 0)
    assert shed.state == CLOSED


def test_half_of_the_calls_failing_opens_it_once_there_are_enough_calls() -> None:
    breaker = made(**BY_RATE)
    for outcome in (FAILURE,) * 5 + (SUCCESS,) * 4:
        assert call(breaker, outcome, 0) == CLOSED
    assert call(breaker, SUCCESS, 0) == OPEN


@pytest.mark.parametrize(("outcome", "latency_us"), [(FAILURE, FAST), (SUCCESS, SECOND)])
def test_just_under_half_does_not_open_it(outcome: int, latency_us: int) -> None:
    breaker = made(**BY_RATE, slow_percent=50)
    for _ in range(500):
        call(breaker, SUCCESS, 0)
    for _ in range(499):
        assert call(breaker, outcome, 0, latency_us) == CLOSED
    assert call(breaker, outcome, 0, latency_us) == OPEN


def test_a_burst_of_successes_does_not_hide_an_outage_that_lasts() -> None:
    breaker, opened_at = made(**BY_RATE), 0
    for _ in range(100_000):
        call(breaker, SUCCESS, 0)
    for second in range(1, 60):  # two calls a second, all of them fail
        for _ in range(2):
            if breaker.state == CLOSED and call(breaker, FAILURE, second * SECOND) == OPEN:
                opened_at = second
    assert opened_at == 10  # when the burst leaves the window, not when it is outnumbered


def test_results_leave_the_window_bucket_by_bucket() -> None:
    breaker = made(**BY_RATE)
    for second in range(9):
        call(breaker, FAILURE, second * SECOND)
    call(breaker, SUCCESS, 10 * SECOND)  # the failure of second 0 has gone: 8 of 9
    assert breaker.state == CLOSED
    assert call(breaker, SUCCESS, 10 * SECOND) == OPEN  # 8 of 10


def test_successes_leave_it_with_the_bucket_that_they_came_in() -> None:
    breaker = made(**BY_RATE)
    call(breaker, SUCCESS, 0)
    for number in range(12):
        call(breaker, SUCCESS, SECOND + number)
    for _ in range(11):  # those of second 1 are still there: 11 of 23
        assert call(breaker, FAILURE, 11 * SECOND - 1) == CLOSED
    assert call(breaker, FAILURE, 11 * SECOND) == OPEN  # now they have gone


def test_a_long_silence_empties_the_window() -> None:
    breaker = made(**BY_RATE)
    for _ in range(9):
        call(breaker, FAILURE, 0)
    assert call(breaker, FAILURE, 10**15) == CLOSED


def test_slow_calls_open_it_although_they_succeed() -> None:
    fields = {**BY_RATE, "failure_percent": 0, "slow_percent": 80, "slow_us": 500}
    breaker = made(**fields)
    for latency_us in (500,) * 8 + (499,):
        assert call(breaker, SUCCESS, 0, latency_us) == CLOSED
    assert call(breaker, SUCCESS, 0, 499) == OPEN


def test_slow_calls_from_before_an_opening_are_not_held_against_it_after() -> None:
    breaker = made(
        **{**BY_RATE, "failure_percent": 0, "slow_percent": 50}, probes=1, probe_successes=1
    )
    for _ in range(10):
        call(breaker, SUCCESS, 0, latency_us=SECOND)
    assert breaker.state == OPEN
    for _ in range(10):
        assert call(breaker, SUCCESS, 5 * SECOND) == CLOSED


def test_what_has_left_the_window_is_forgotten_once_and_wholly() -> None:
    fields = {**BY_RATE, "slow_percent": 50, "slow_us": 500}
    for outcome, latency_us in ((FAILURE, FAST), (SUCCESS, 500)):
        breaker = made(**{**fields, "slow_us": 500 if latency_us == 500 else SECOND})
        for _ in range(9):
            call(breaker, outcome, 0, latency_us)
        for second in (10, 20, 30):  # each takes the place of the one before
            assert call(breaker, SUCCESS, second * SECOND, 1) == CLOSED
        for _ in range(8):
            assert call(breaker, outcome, 30 * SECOND, latency_us) == CLOSED
        assert call(breaker, outcome, 30 * SECOND, latency_us) == OPEN


def test_one_slow_call_in_a_hundred_can_be_too_many() -> None:
    fields = {**BY_RATE, "failure_percent": 0, "slow_percent": 1, "slow_us": 500, "calls_min": 100}
    breaker = made(**fields)
    for _ in range(99):
        assert call(breaker, SUCCESS, 0) == CLOSED
    assert call(breaker, SUCCESS, 0, latency_us=500) == OPEN
    careful = opened(probes=1, probe_successes=1, slow_percent=1, slow_us=500)
    assert call(careful, SUCCESS, 5, latency_us=500) == OPEN


def test_with_every_rule_off_nothing_opens_it() -> None:
    breaker = made(failures_in_row=0, failure_percent=0, calls_min=1)
    for _ in range(1_000):
        assert call(breaker, FAILURE, 0, latency_us=10**9) == CLOSED


def test_a_server_that_says_it_has_too_much_trips_it_for_as_long_as_it_asks() -> None:
    breaker = made(open_us=10, open_us_max=80)
    breaker.trip(100, 0.0, told_us=50)
    assert (breaker.state, breaker.retry_after_us(100)) == (OPEN, 50)
    breaker.trip(100, 0.0, told_us=20)
    assert breaker.retry_after_us(100) == 50
    breaker.trip(120, 0.0, told_us=10**15)
    assert breaker.retry_after_us(120) == 80


def test_the_time_that_a_server_asks_for_is_neither_lengthened_nor_doubled() -> None:
    breaker = made(open_us=100, open_us_max=800)
    for now_us in range(0, 50, 5):
        breaker.trip(now_us, 0.9, told_us=5)
        assert breaker.retry_after_us(now_us) == 5
        assert breaker.enter(now_us + 5) != REFUSED, "a probe"
    breaker.trip(50, 0.0)
    assert breaker.retry_after_us(50) == 50, "no opening of its own stood before it"


def test_tripping_again_while_open_is_not_a_second_opening() -> None:
    breaker = made(open_us=10, open_us_max=80)
    breaker.trip(0, 0.0)
    breaker.trip(0, 0.0)
    assert (breaker.retry_after_us(0), breaker.generation) == (5, 2)


# Open.


def test_an_open_breaker_says_exactly_when_to_come_back() -> None:
    breaker = opened()
    assert (breaker.enter(4), breaker.retry_after_us(4)) == (REFUSED, 1)
    assert breaker.retry_after_us(5) == 0
    assert breaker.enter(5) != REFUSED
    assert breaker.state == HALF_OPEN


@pytest.mark.parametrize(
    ("percent", "waits"),
    [(0, [5] * 6), (200, [5, 5, 10, 20, 40, 40]), (60, [5, 5, 5, 5, 6, 8])],
)
def test_the_open_time_is_a_part_of_what_the_outage_has_lasted(
    percent: int, waits: list[int]
) -> None:
    breaker, now_us, found = opened(probes=1, probe_successes=1, open_percent=percent), 0, []
    for _ in range(6):
        found.append(breaker.retry_after_us(now_us))
        now_us += found[-1]
        call(breaker, FAILURE, now_us)
    assert found == waits  # draws of 0: the lower half, of at least 10 and at most 80


def test_the_draw_spreads_the_open_time_over_its_upper_half() -> None:
    waits = set()
    for draw in (0.0, 0.5, 0.999):
        breaker = made(open_us=100, open_us_max=100)
        breaker.trip(0, draw)
        waits.add(breaker.retry_after_us(0))
    assert waits == {50, 75, 100}


@pytest.mark.parametrize(("again_us", "open_us"), [(79, 39), (80, 5)])
def test_a_closing_that_lasts_as_long_as_the_outage_ends_it(again_us: int, open_us: int) -> None:
    breaker = opened(probes=1, probe_successes=1)
    assert call(breaker, SUCCESS, 40) == CLOSED
    for _ in range(3):
        call(breaker, FAILURE, again_us)
    assert breaker.retry_after_us(again_us) == open_us + again_us % 2


def test_the_time_that_a_server_asks_for_is_no_part_of_an_outage() -> None:
    breaker = made(open_us=10, open_us_max=1_000, probes=1, probe_successes=1)
    breaker.trip(0, 0.0, told_us=500)
    assert call(breaker, FAILURE, 505) == OPEN
    assert breaker.retry_after_us(505) == 5


# Half-open.


def test_exactly_as_many_probes_enter_as_the_settings_say() -> None:
    breaker = opened(probes=3, probe_successes=2)
    assert [breaker.enter(5) != REFUSED for _ in range(6)] == [True] * 3 + [False] * 3


def test_enough_good_probes_close_it_and_nothing_old_is_held_against_it() -> None:
    breaker = opened(probes=3, probe_successes=2)
    assert call(breaker, SUCCESS, 5) == HALF_OPEN
    assert call(breaker, FAILURE, 5) == HALF_OPEN
    assert call(breaker, SUCCESS, 5) == CLOSED
    assert call(breaker, FAILURE, 5) == CLOSED
    assert call(breaker, FAILURE, 5) == CLOSED


def test_it_opens_as_soon_as_enough_good_probes_can_no_longer_come() -> None:
    breaker = opened(probes=3, probe_successes=2)
    first, second = breaker.enter(5), breaker.enter(5)
    assert breaker.leave(first, FAILURE, FAST, 5, 0.0) == HALF_OPEN
    assert breaker.leave(second, FAILURE, FAST, 5, 0.0) == OPEN


def test_a_slow_probe_is_a_failed_one_when_the_slow_rule_is_on() -> None:
    strict = opened(probes=1, probe_successes=1, slow_percent=100, slow_us=500)
    assert call(strict, SUCCESS, 5, latency_us=500) == OPEN
    lenient = opened(probes=1, probe_successes=1, slow_us=500)
    assert call(lenient, SUCCESS, 5, latency_us=500) == CLOSED


def test_an_ignored_probe_gives_its_place_back() -> None:
    breaker = opened(probes=1, probe_successes=1)
    assert call(breaker, IGNORED, 5) == HALF_OPEN
    assert call(breaker, SUCCESS, 5) == CLOSED


def test_a_place_cannot_be_given_back_twice() -> None:
    breaker = opened(probes=3, probe_successes=3)
    generation = breaker.enter(5)
    breaker.leave(generation, SUCCESS, FAST, 5, 0.0)
    for _ in range(5):
        breaker.leave(generation, IGNORED, FAST, 5, 0.0)
    assert [breaker.enter(5) != REFUSED for _ in range(3)] == [True, True, False]


def test_probes_that_never_report_are_given_up_and_others_let_in() -> None:
    breaker = opened(probes=2, probe_successes=2, probe_us_max=100)
    lost = breaker.enter(5)
    breaker.enter(30)
    assert (breaker.enter(129), breaker.retry_after_us(129)) == (REFUSED, 1)
    assert breaker.retry_after_us(130) == 0
    fresh = breaker.enter(130)
    assert fresh == lost + 1
    assert breaker.enter(130) == fresh
    assert breaker.enter(130) == REFUSED
    # The lost ones turn up after all: void.
    assert breaker.leave(lost, FAILURE, FAST, 131, 0.0) == HALF_OPEN
    assert breaker.leave(fresh, SUCCESS, FAST, 131, 0.0) == HALF_OPEN
    assert breaker.leave(fresh, SUCCESS, FAST, 131, 0.0) == CLOSED


def test_while_half_open_a_refused_caller_is_told_the_first_open_time() -> None:
    breaker = opened(probes=1, probe_successes=1, probe_us_max=100)
    breaker.enter(5)
    assert breaker.retry_after_us(5) == 10
    assert breaker.retry_after_us(100) == 5


# Generations.


def test_a_late_failure_from_before_the_opening_does_not_reopen_it() -> None:
    breaker = made(**IN_A_ROW, probes=1, probe_successes=1)
    late = [breaker.enter(0) for _ in range(10)]
    for _ in range(3):
        call(breaker, FAILURE, 0)
    assert call(breaker, SUCCESS, 5) == CLOSED
    for generation in late:
        assert breaker.leave(generation, FAILURE, FAST, 6, 0.0) == CLOSED


def test_a_late_success_does_not_count_as_a_probe() -> None:
    breaker = made(**IN_A_ROW)
    late = breaker.enter(0)
    for _ in range(3):
        call(breaker, FAILURE, 0)
    breaker.enter(5)
    for _ in range(5):
        assert breaker.leave(late, SUCCESS, FAST, 5, 0.0) == HALF_OPEN


def test_every_change_of_state_begins_a_generation() -> None:
    breaker = opened(probes=1, probe_successes=1)
    assert breaker.generation == 2
    generation = breaker.enter(5)
    assert generation == breaker.generation == 3
    breaker.leave(generation, SUCCESS, FAST, 5, 0.0)
    assert breaker.generation == 4


# By hand.


def test_forced_open_refuses_until_released() -> None:
    breaker = made()
    breaker.force_open()
    assert (breaker.state, breaker.enter(10**15)) == (FORCED_OPEN, REFUSED)
    assert breaker.retry_after_us(10**15) == NEVER
    breaker.trip(0, 0.0)
    assert breaker.state == FORCED_OPEN
    breaker.release()
    assert breaker.enter(0) != REFUSED


def test_forced_closed_lets_everything_in_and_counts_nothing() -> None:
    breaker = opened()
    breaker.force_closed()
    assert breaker.retry_after_us(0) == 0
    for _ in range(100):
        assert call(breaker, FAILURE, 0) == FORCED_CLOSED
    breaker.trip(0, 0.0)
    assert breaker.state == FORCED_CLOSED
    breaker.release()
    for outcome in (FAILURE, FAILURE, SUCCESS):
        assert call(breaker, outcome, 0) == CLOSED


def test_release_without_a_forced_state_changes_nothing() -> None:
    breaker = opened()
    breaker.release()
    assert (breaker.state, breaker.generation) == (OPEN, 2)


def test_release_forgets_how_often_it_had_opened() -> None:
    breaker = opened(probes=1, probe_successes=1)
    call(breaker, FAILURE, 5)
    breaker.force_open()
    breaker.release()
    breaker.trip(20, 0.0)
    assert breaker.retry_after_us(20) == 5


# Clocks, sizes, bad input.


def test_a_clock_that_goes_back_lets_nothing_extra_in() -> None:
    breaker = opened()
    assert (breaker.enter(-100), breaker.retry_after_us(-100)) == (REFUSED, 105)
    probing = opened(probes=2, probe_successes=2, probe_us_max=100)
    probing.enter(50)
    probing.enter(7)  # the bound still counts from the later of the two
    assert (probing.enter(149), probing.enter(150)) == (REFUSED, probing.generation)


def test_results_by_a_clock_that_went_back_count_in_the_current_bucket() -> None:
    breaker = made(**BY_RATE)
    call(breaker, SUCCESS, 50 * SECOND)
    for _ in range(8):
        call(breaker, FAILURE, 3 * SECOND)
    assert call(breaker, FAILURE, 59 * SECOND) == OPEN


def test_a_negative_latency_is_not_slow() -> None:
    breaker = made(slow_percent=1, calls_min=1)
    assert call(breaker, SUCCESS, 0, latency_us=-5) == CLOSED


def test_a_breaker_is_small() -> None:
    breaker = made()
    call(breaker, SUCCESS, 0)
    closed = breaker._at
    parts = (breaker, closed, closed._counts)  # type: ignore[attr-defined]
    assert sum(map(sys.getsizeof, parts)) <= 600


def test_every_state_has_a_name() -> None:
    assert STATES[HALF_OPEN] == "half-open"
    assert STATES[FORCED_CLOSED] == "forced closed"


def test_the_defaults_are_what_the_page_says() -> None:
    chosen = CircuitSettings()
    defaults = {
        "failures_in_row": 5,
        "failure_percent": 50,
        "slow_percent": 0,
        "slow_us": SECOND,
        "calls_min": 20,
        "window_us": 10 * SECOND,
        "buckets": 10,
        "open_us": 5 * SECOND,
        "open_percent": 100,
        "open_us_max": 300 * SECOND,
        "probes": 3,
        "probe_successes": 2,
        "probe_us_max": 30 * SECOND,
    }
    assert {field: getattr(chosen, field) for field in defaults} == defaults


def test_the_smallest_settings_are_allowed() -> None:
    smallest = CircuitSettings(
        slow_us=0, buckets=1, window_us=1, open_us=1, open_us_max=1, probe_us_max=1
    )
    assert (smallest.window_us, smallest.open_us) == (1, 1)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"failures_in_row": -1}, "failures_in_row"),
        ({"failure_percent": 101}, "failure_percent"),
        ({"failure_percent": -1}, "failure_percent"),
        ({"slow_percent": 101}, "slow_percent"),
        ({"slow_us": -1}, "slow_us"),
        ({"calls_min": 0}, "calls_min"),
        ({"buckets": 0}, "buckets"),
        ({"buckets": 1_001, "window_us": 1_001}, "buckets"),
        ({"window_us": 0}, "window_us"),
        ({"window_us": 9}, "window_us"),
        ({"window_us": 11}, "window_us"),
        ({"open_us": 0}, "open_us"),
        ({"open_percent": 1_001}, "open_percent"),
        ({"open_us": 10, "open_us_max": 9}, "open_us_max"),
        ({"probes": 0}, "probes"),
        ({"probe_successes": 0}, "probe_successes"),
        ({"probes": 2, "probe_successes": 3}, "probe_successes"),
        ({"probe_us_max": 0}, "probe_us_max"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(fields: dict[str, int], wrong: str) -> None:
    with pytest.raises(ValueError, match=f"^{wrong} must be"):
        CircuitSettings(**fields)


@pytest.mark.parametrize("outcome", [-1, 3])
def test_an_unknown_outcome_is_refused(outcome: int) -> None:
    breaker = made()
    with pytest.raises(ValueError, match="outcome"):
        breaker.leave(breaker.enter(0), outcome, FAST, 0, 0.0)


def test_a_bad_draw_is_refused_before_anything_changes() -> None:
    breaker = made()
    with pytest.raises(ValueError, match="draw"):
        breaker.trip(0, 1.0)
    assert breaker.state == CLOSED


class SlowBreaker:
    """The oracle: keeps every result since the last change, and reads the rules off the list."""

    def __init__(self, chosen: CircuitSettings) -> None:
        self.s = chosen
        self.generation, self.state = 1, CLOSED
        self.results: list[tuple[int, bool, bool]] = []  # bucket, failed, slow
        self.given_back = self.entered = self.until_us = 0
        self.outage: tuple[int, int] | None = None  # began, and closed if it did

    def change(self, state: int) -> None:
        self.state = state
        self.generation += 1
        self.results = []
        self.given_back = self.entered = 0

    def open(self, now_us: int, draw: float) -> None:
        if self.outage is not None and self.state == CLOSED:
            began_us, closed_us = self.outage
            if now_us < began_us or now_us - closed_us >= closed_us - began_us:
                self.outage = None
        if self.outage is None:
            self.outage = (now_us, now_us)
        lasted_us = now_us - self.outage[0]
        longest = max(self.s.open_us, lasted_us * self.s.open_percent // 100)
        longest = min(longest, self.s.open_us_max)
        shortest = -(-longest // 2)
        self.until_us = now_us + shortest + int(draw * (longest - shortest + 1))
        self.change(OPEN)

    def free_places(self) -> int:
        return self.s.probes - self.entered + self.given_back

    def would_enter(self, now_us: int) -> bool:
        if self.state == HALF_OPEN:
            return self.free_places() > 0 or now_us >= self.until_us
        return self.state in {CLOSED, FORCED_CLOSED} or (
            self.state == OPEN and now_us >= self.until_us
        )

    def enter(self, now_us: int) -> int:
        if not self.would_enter(now_us):
            return REFUSED
        if self.state == OPEN or (self.state == HALF_OPEN and self.free_places() == 0):
            self.change(HALF_OPEN)
        if self.state == HALF_OPEN:
            self.entered += 1
            self.until_us = max(self.until_us, now_us + self.s.probe_us_max)
        return self.generation

    def retry_after_us(self, now_us: int) -> int:
        if self.state == FORCED_OPEN:
            return NEVER
        if self.would_enter(now_us):
            return 0
        if self.state == OPEN:
            return self.until_us - now_us
        return min(self.until_us - now_us, self.s.open_us)

    def leave(
        self, generation: int, outcome: int, latency_us: int, now_us: int, draw: float
    ) -> None:
        if generation != self.generation or self.state in {FORCED_CLOSED, OPEN}:
            return
        if outcome == IGNORED:
            self.given_back += 1
            return
        bucket = max(
            [now_us // (self.s.window_us // self.s.buckets)] + [at for at, _, _ in self.results]
        )
        slow = self.s.slow_percent > 0 and latency_us >= self.s.slow_us
        self.results.append((bucket, outcome == FAILURE, slow))
        if self.state == HALF_OPEN:
            bad = sum(failed or slow for _, failed, slow in self.results)
            if bad > self.s.probes - self.s.probe_successes:
                self.open(now_us, draw)
            elif len(self.results) - bad == self.s.probe_successes:
                assert self.outage is not None
                self.outage = (self.outage[0], now_us)
                self.change(CLOSED)
        elif self.breaks_a_rule(bucket):
            self.open(now_us, draw)

    def breaks_a_rule(self, bucket: int) -> bool:
        row = self.s.failures_in_row
        if row and len(self.results) >= row and all(f for _, f, _ in self.results[-row:]):
            return True
        recent = [result for result in self.results if result[0] > bucket - self.s.buckets]
        if len(recent) < self.s.calls_min:
            return False
        failed = 100 * sum(f for _, f, _ in recent) / len(recent)
        slow = 100 * sum(s for _, _, s in recent) / len(recent)
        return (0 < self.s.failure_percent <= failed) or (0 < self.s.slow_percent <= slow)


chosen_settings = st.builds(
    lambda row, failing, slow, least, probes, good: CircuitSettings(
        failures_in_row=row,
        failure_percent=failing,
        slow_percent=slow,
        slow_us=50,
        calls_min=least,
        window_us=40,
        buckets=4,
        open_us=15,
        open_us_max=100,
        open_percent=row * 60,
        probes=probes,
        probe_successes=min(good, probes),
        probe_us_max=40,
    ),
    st.sampled_from([0, 1, 3]),
    st.sampled_from([0, 1, 50, 100]),
    st.sampled_from([0, 30, 100]),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 4),
)


class BreakerHistory(RuleBasedStateMachine):
    """Any history of entering, leaving (also late), forcing, and clocks that jump."""

    @initialize(chosen=chosen_settings)
    def make(self, chosen: CircuitSettings) -> None:
        self.breaker, self.oracle = Circuit(chosen), SlowBreaker(chosen)
        self.now_us = 1_000
        self.out: list[int] = []

    @rule(gap_us=st.integers(0, 25))
    def wait(self, gap_us: int) -> None:
        self.now_us += gap_us

    @rule(step_us=st.integers(-60, 200))
    def jump(self, step_us: int) -> None:
        self.now_us += step_us

    @rule(times=st.integers(1, 4))
    def enter(self, times: int) -> None:
        for _ in range(times):
            generation = self.breaker.enter(self.now_us)
            assert generation == self.oracle.enter(self.now_us)
            if generation != REFUSED:
                self.out.append(generation)

    @rule(
        which=st.floats(0.0, 1.0, exclude_max=True),
        outcome=st.sampled_from([SUCCESS, FAILURE, FAILURE, IGNORED]),
        latency_us=st.sampled_from([1, 49, 50]),
        draw=st.sampled_from([0.0, 0.4, 0.99]),
    )
    def leave(self, which: float, outcome: int, latency_us: int, draw: float) -> None:
        if self.out:
            generation = self.out.pop(int(which * len(self.out)))
            self.breaker.leave(generation, outcome, latency_us, self.now_us, draw)
            self.oracle.leave(generation, outcome, latency_us, self.now_us, draw)

    @rule(
        outcomes=st.lists(st.sampled_from([SUCCESS, FAILURE]), min_size=1, max_size=8),
        latency_us=st.sampled_from([1, 50]),
    )
    def call_many(self, outcomes: list[int], latency_us: int) -> None:
        for outcome in outcomes:
            generation = self.breaker.enter(self.now_us)
            assert generation == self.oracle.enter(self.now_us)
            self.breaker.leave(generation, outcome, latency_us, self.now_us, 0.5)
            self.oracle.leave(generation, outcome, latency_us, self.now_us, 0.5)

    @rule(which=st.integers(0, 9))
    def force(self, which: int) -> None:
        if which == 0:
            self.breaker.force_open()
            self.oracle.change(FORCED_OPEN)
        elif which == 1:
            self.breaker.force_closed()
            self.oracle.change(FORCED_CLOSED)
        elif self.oracle.state in {FORCED_OPEN, FORCED_CLOSED}:
            self.breaker.release()
            self.oracle.outage = None
            self.oracle.change(CLOSED)

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "breaker"):
            return
        assert self.breaker.state == self.oracle.state
        assert self.breaker.generation == self.oracle.generation
        waits = self.breaker.retry_after_us(self.now_us), self.oracle.retry_after_us(self.now_us)
        assert waits[0] == waits[1]
        if self.oracle.state == HALF_OPEN:
            probes_out = sum(generation == self.oracle.generation for generation in self.out)
            assert probes_out <= self.oracle.s.probes


BreakerHistory.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyHistory = BreakerHistory.TestCase


@given(
    chosen_settings,
    st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.booleans()), max_size=60),
)
def test_it_opens_at_the_same_call_as_a_list_of_all_calls_would(
    chosen: CircuitSettings, calls: list[tuple[int, bool, bool]]
) -> None:
    breaker, oracle, now_us = Circuit(chosen), SlowBreaker(chosen), 0
    for gap_us, good, slow in calls:
        now_us += gap_us
        for gate in (breaker, oracle):
            outcome, latency_us = SUCCESS if good else FAILURE, 50 if slow else 1
            gate.leave(gate.generation, outcome, latency_us, now_us, 0.5)
        assert (breaker.state, breaker.generation) == (oracle.state, oracle.generation)
        if breaker.state == OPEN:
            break
