from __future__ import annotations

import heapq
import math
import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.codel import Codel, CodelSettings, CodelTimeout, allowance, step

MS = 1_000
SECOND = 1_000_000
HOUR = 3_600 * SECOND


def overloaded_codel() -> Codel:
    """A Codel of 5 ms and 100 ms whose first interval (0 to 100 ms) saw nothing below 6 ms."""
    codel = Codel()
    assert not codel.drop(8 * MS, 0)
    assert not codel.drop(6 * MS, 50 * MS)
    assert not codel.drop(60 * MS, 100 * MS)
    assert not codel.drop(60 * MS, 101 * MS)  # ends the interval, and is the first of the next
    assert codel.overloaded
    return codel


# The form that decides when a unit is taken out.


def test_an_interval_whose_least_delay_is_above_the_target_makes_the_next_one_shed() -> None:
    codel = overloaded_codel()
    assert codel.drop(10 * MS + 1, 102 * MS)
    assert not codel.drop(10 * MS, 103 * MS)


def test_one_short_delay_in_an_interval_ends_the_overload() -> None:
    codel = overloaded_codel()
    assert codel.drop(60 * MS, 150 * MS)
    codel.drop(5 * MS, 160 * MS)
    assert codel.drop(60 * MS, 201 * MS)  # still this interval
    assert not codel.drop(60 * MS, 202 * MS)
    assert not codel.overloaded
    assert not codel.drop(60 * MS, 203 * MS)


def test_a_least_delay_of_exactly_the_target_is_no_overload() -> None:
    codel = Codel()
    codel.drop(5 * MS, 0)
    codel.drop(50 * MS, 101 * MS)
    assert not codel.overloaded


def test_the_first_unit_of_every_interval_passes_however_long_it_waited() -> None:
    codel = overloaded_codel()
    verdicts = [codel.drop(900 * MS, 102 * MS + tick * 10 * MS) for tick in range(31)]
    assert [at for at, dropped in enumerate(verdicts) if not dropped] == [10, 21]


def test_with_fewer_than_two_units_an_interval_nothing_is_ever_dropped() -> None:
    codel = Codel()
    assert not any(codel.drop(900 * MS, at * 101 * MS) for at in range(50))


def test_an_hour_of_silence_does_not_carry_a_verdict_into_the_next_burst() -> None:
    codel = overloaded_codel()
    assert not codel.drop(20 * MS, HOUR)
    assert not codel.overloaded
    assert not codel.drop(20 * MS, HOUR + 1)


def test_a_unit_that_waited_since_before_the_interval_ended_does_carry_it() -> None:
    codel = overloaded_codel()  # the running interval ends at 201 ms
    codel.drop(99 * MS, 300 * MS)
    assert codel.overloaded
    codel = overloaded_codel()
    codel.drop(99 * MS - 1, 300 * MS)
    assert not codel.overloaded


def test_a_clock_that_goes_back_ends_no_interval_and_freezes_none() -> None:
    codel = Codel()
    for now_us in (HOUR, HOUR + 101 * MS):
        codel.drop(200 * MS, now_us)
    assert codel.drop(60 * MS, 1_000 * MS)  # an hour back: still overloaded, still dropping
    assert codel.drop(60 * MS, 1_100 * MS)
    codel.drop(60 * MS, 1_101 * MS)
    codel.drop(MS, 1_102 * MS)
    assert not codel.drop(60 * MS, 1_202 * MS)
    assert not codel.overloaded


def test_a_negative_delay_passes_and_tells_nothing() -> None:
    codel = overloaded_codel()
    assert not codel.drop(-1, 110 * MS)
    assert not codel.drop(-HOUR, 300 * MS)
    assert codel.drop(60 * MS, 120 * MS)


def test_fitted_to_a_slow_service_target_and_interval_keep_their_proportion() -> None:
    codel = Codel(CodelSettings(target_us_max=400 * MS))
    codel.fit(200 * MS)
    assert (codel.target_us, codel.interval_us) == (100 * MS, 2_000 * MS)
    codel.fit(10_000 * MS)
    assert (codel.target_us, codel.interval_us) == (400 * MS, 8_000 * MS)
    codel.fit(1 * MS)
    assert (codel.target_us, codel.interval_us) == (5 * MS, 100 * MS)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"target_us": 0}, "target_us"),
        ({"target_us": 100_000}, "target_us"),
        ({"interval_us": 1}, "interval_us"),
        ({"interval_us": HOUR + 1}, "interval_us"),
        ({"target_us_max": 4_999}, "target_us_max"),
        ({"target_us_max": HOUR + 1}, "target_us_max"),
        ({"normal_us": 0}, "normal_us"),
        ({"normal_us": HOUR + 1}, "normal_us"),
        ({"aggressive_us": 0}, "aggressive_us"),
        ({"aggressive_us": 100_001}, "aggressive_us"),
    ],
)
def test_settings_outside_their_range_are_refused(settings: dict[str, int], field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be from"):
        CodelSettings(**settings)


def test_a_negative_service_time_is_refused() -> None:
    with pytest.raises(ValueError, match="service_us must not be negative, not -1"):
        Codel().fit(-1)


class SlowCodel:
    """The oracle: keeps every delay of the running interval and looks at them all at its end."""

    def __init__(self, target_us: int, interval_us: int) -> None:
        self.target_us = target_us
        self.interval_us = interval_us
        self.began_us: int | None = None
        self.delays_us: list[int] = []
        self.overloaded = False

    def drop(self, delay_us: int, now_us: int) -> bool:
        if self.began_us is None or now_us - self.began_us > self.interval_us:
            if self.began_us is not None:
                waited_since_us = now_us - delay_us
                stood = waited_since_us <= self.began_us + self.interval_us
                self.overloaded = stood and all(d > self.target_us for d in self.delays_us)
            self.began_us, self.delays_us = now_us, [delay_us]
            return False
        self.delays_us.append(delay_us)
        return self.overloaded and delay_us > self.target_us + self.target_us


@given(
    st.integers(1, 20),
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 60)), max_size=80),
)
def test_it_drops_what_the_slow_one_drops(
    target_us: int, above_us: int, leaving: list[tuple[int, int]]
) -> None:
    interval_us = target_us + above_us
    settings = CodelSettings(target_us=target_us, interval_us=interval_us)
    codel = Codel(settings)
    oracle = SlowCodel(target_us, interval_us)
    now_us = 0
    for gap_us, delay_us in leaving:
        now_us += gap_us
        assert codel.drop(delay_us, now_us) == oracle.drop(delay_us, now_us)
        assert codel.overloaded == oracle.overloaded


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(-50, 200)), max_size=80))
def test_whatever_the_clock_does_a_unit_within_twice_the_target_is_never_dropped(
    leaving: list[tuple[int, int]],
) -> None:
    delay_us_min, end_us, overloaded = 0, -1, False
    for now_us, delay_us in leaving:
        delay_us_min, end_us, overloaded, dropped = step(
            delay_us_min, end_us, overloaded, delay_us, now_us, 5, 100
        )
        assert not (dropped and delay_us <= 10)
        assert delay_us_min >= 0
        if delay_us >= 0:
            assert now_us <= end_us <= now_us + 100


# The form that decides when a unit is queued.


def test_a_queue_that_empties_in_time_grants_the_normal_timeout() -> None:
    timeout = CodelTimeout()
    assert timeout.timeout_us(0, 1 * MS) == 100 * MS
    assert timeout.timeout_us(7, 101 * MS) == 100 * MS
    assert not timeout.standing
    assert timeout.timeout_us(0, 102 * MS) == 100 * MS
    assert timeout.timeout_us(1, 202 * MS) == 100 * MS


def test_a_queue_last_empty_longer_ago_than_n_grants_m_until_it_has_emptied() -> None:
    timeout = CodelTimeout()
    timeout.timeout_us(0, 0)
    assert timeout.timeout_us(1, 100 * MS) == 100 * MS
    assert timeout.timeout_us(1, 100 * MS + 1) == 5 * MS
    assert timeout.timeout_us(1, HOUR) == 5 * MS
    assert timeout.timeout_us(0, HOUR + 1) == 100 * MS
    assert timeout.timeout_us(1, HOUR + 2) == 100 * MS


def test_it_says_whether_the_queue_stands() -> None:
    timeout = CodelTimeout()
    states: list[bool] = []
    for queued, now_us in ((0, 0), (1, 100 * MS), (1, 101 * MS), (9, 102 * MS), (0, 103 * MS)):
        timeout.timeout_us(queued, now_us)
        states.append(timeout.standing)
    assert states == [False, False, True, True, False]


def test_a_clock_that_goes_back_empties_no_standing_queue() -> None:
    timeout = CodelTimeout()
    timeout.timeout_us(0, HOUR)
    timeout.timeout_us(1, HOUR + 101 * MS)
    assert timeout.timeout_us(1, 0) == 5 * MS


def test_a_clock_that_goes_back_delays_the_aggressive_timeout_by_at_most_n() -> None:
    timeout = CodelTimeout()
    timeout.timeout_us(0, HOUR)
    assert timeout.timeout_us(1, 1 * MS) == 100 * MS
    assert timeout.timeout_us(1, 101 * MS) == 100 * MS
    assert timeout.timeout_us(1, 101 * MS + 1) == 5 * MS


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=60))
def test_it_grants_what_the_history_of_empty_instants_says(
    pushes: list[tuple[int, bool]],
) -> None:
    empty_us, standing, now_us = 0, False, 0
    empty_instants_us: list[int] = []
    for gap_us, drained in pushes:
        now_us += gap_us
        queued = 0 if drained or not empty_instants_us else 3
        if queued == 0:
            empty_instants_us.append(now_us)
        empty_us, standing, timeout_us = allowance(empty_us, standing, queued, now_us, 100, 5)
        assert timeout_us == (5 if max(empty_instants_us) < now_us - 100 else 100)


# What both do to a service whose callers do not slow down, and what packet CoDel does to it.

WORKERS = 32
SERVICE_US = 10 * MS
DEADLINE_US = 500 * MS


class Fifo:
    """A queue of arrival instants; `pop` returns one to serve, or None if it was dropped."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, int]] = deque()

    def push(self, now_us: int) -> None:
        self.waiting.append((now_us, 0))

    def pop(self, now_us: int) -> int | None:
        return self.waiting.popleft()[0]


class FifoWithCodel(Fifo):
    def __init__(self, fitted_us: int = 0) -> None:
        super().__init__()
        self.codel = Codel()
        self.codel.fit(fitted_us)

    def pop(self, now_us: int) -> int | None:
        arrived_us = self.waiting.popleft()[0]
        return None if self.codel.drop(now_us - arrived_us, now_us) else arrived_us


class FifoWithTimeout(Fifo):
    def __init__(self) -> None:
        super().__init__()
        self.codel = CodelTimeout()

    def push(self, now_us: int) -> None:
        timeout_us = self.codel.timeout_us(len(self.waiting), now_us)
        self.waiting.append((now_us, now_us + timeout_us))

    def pop(self, now_us: int) -> int | None:
        arrived_us, expires_us = self.waiting.popleft()
        return None if now_us >= expires_us else arrived_us


class PacketCodel(Fifo):
    """RFC 8289, section 5: one drop every interval / sqrt(n) while the delay stays high."""

    TARGET_US = 5 * MS
    INTERVAL_US = 100 * MS

    def __init__(self) -> None:
        super().__init__()
        self.high_until_us = 0
        self.dropping = False
        self.drop_next_us = 0
        self.count = 0

    def pop(self, now_us: int) -> int | None:
        arrived_us = self.waiting.popleft()[0]
        may_drop = False
        if now_us - arrived_us < self.TARGET_US or not self.waiting:
            self.high_until_us = 0
        elif self.high_until_us == 0:
            self.high_until_us = now_us + self.INTERVAL_US
        else:
            may_drop = now_us >= self.high_until_us
        if not may_drop:
            self.dropping = False
            return arrived_us
        if self.dropping and now_us < self.drop_next_us:
            return arrived_us
        if self.dropping:
            self.count += 1
        else:
            lately = now_us - self.drop_next_us < self.INTERVAL_US
            self.count = self.count - 2 if self.count > 2 and lately else 1
            self.dropping = True
            self.drop_next_us = now_us
        self.drop_next_us += int(self.INTERVAL_US / math.sqrt(self.count))
        return None


def answers(
    queue: Fifo, load: float, *, service_us: int = SERVICE_US, span_us: int = 5 * SECOND
) -> tuple[float, int]:
    """Answers in time as a share of capacity, and their p99, after the first 40% of the span.

    WORKERS workers, Poisson arrivals at `load` times their capacity, callers that never slow down.
    """
    chance = random.Random(1)
    per_us = load * WORKERS / service_us
    free_us = [0] * WORKERS
    deadline_us = DEADLINE_US * service_us // SERVICE_US
    latencies_us: list[int] = []
    at_us = 0.0
    while at_us < span_us:
        at_us += chance.expovariate(per_us)
        now_us = int(at_us)
        while queue.waiting and free_us[0] <= now_us:
            begun_us = max(free_us[0], queue.waiting[0][0])
            arrived_us = queue.pop(begun_us)
            if arrived_us is None:
                continue
            heapq.heapreplace(free_us, begun_us + service_us)
            latency_us = begun_us + service_us - arrived_us
            if latency_us <= deadline_us and begun_us >= span_us * 2 // 5:
                latencies_us.append(latency_us)
        queue.push(now_us)
    latencies_us.sort()
    share = len(latencies_us) * service_us / (WORKERS * span_us * 3 / 5)
    return share, latencies_us[len(latencies_us) * 99 // 100] if latencies_us else 0


@pytest.mark.parametrize("load", [1.2, 2, 5, 10])
def test_both_forms_keep_a_service_at_its_capacity_under_any_load(load: float) -> None:
    for queue in (FifoWithCodel(), FifoWithTimeout()):
        share, latency_us_p99 = answers(queue, load)
        assert share >= 0.99
        assert latency_us_p99 <= (20 if load >= 2 else 45) * MS


@pytest.mark.parametrize("load", [2, 5, 10])
def test_packet_codel_collapses_when_callers_do_not_slow_down(load: float) -> None:
    assert answers(PacketCodel(), load) == (0.0, 0)
    assert answers(Fifo(), load) == (0.0, 0)


def test_packet_codel_is_already_lost_a_little_above_capacity() -> None:
    assert 0.4 < answers(PacketCodel(), 1.2)[0] < 0.6
    assert 0.2 < answers(Fifo(), 1.2)[0] < 0.4


def test_fitted_to_its_service_time_it_does_not_shed_before_a_queue_stands() -> None:
    slow = {"service_us": 100 * MS, "span_us": 50 * SECOND}
    by_fifo, _ = answers(Fifo(), 0.95, **slow)
    unfitted, _ = answers(FifoWithCodel(), 0.95, **slow)
    fitted, _ = answers(FifoWithCodel(100 * MS), 0.95, **slow)
    assert unfitted < 0.975 * by_fifo
    assert fitted > 0.999 * by_fifo
