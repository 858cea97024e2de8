from __future__ import annotations

import heapq
import random
from collections import deque
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.aimd import Aimd
from sluicegate.kernels.concurrency_limit import LIMIT_MAX, SampleWindow, WindowSample
from sluicegate.kernels.gradient2 import Gradient2
from sluicegate.kernels.vegas import Vegas
from tests.kernels.adaptive_numbers import updated

MS = 1_000
SECOND = 1_000_000

Limit = Aimd | Vegas | Gradient2


@pytest.mark.parametrize("limit", [Aimd(), Vegas(), Gradient2()])
def test_a_limit_that_is_not_half_used_does_not_grow(limit: Limit) -> None:
    assert updated(limit, 10 * MS, times=500, inflight=9) == 20


@pytest.mark.parametrize(
    "limit",
    [
        Aimd(limit_min=3, limit_max=50),
        Vegas(limit_min=3, limit_max=50),
        Gradient2(limit_min=3, limit_max=50),
    ],
)
def test_a_limit_stays_within_its_bounds(limit: Limit) -> None:
    assert updated(limit, 10 * MS, times=50) == 50
    for _ in range(60):
        limit.update(10 * MS, 50, True, 0.5)
    assert limit.limit == 3
    assert limit.update(10 * MS, 50, True, 0.5) == 3


def test_a_probe_does_not_go_below_the_least_limit() -> None:
    for limit in (
        Vegas(initial=10, limit_min=8, limit_max=10, probe_multiplier=1),
        Gradient2(initial=10, limit_min=8, limit_max=10, probe_updates=1),
    ):
        assert {limit.update(10 * MS, 10, False, 0.5) for _ in range(40)} == {8, 10}


@pytest.mark.parametrize("make", [Aimd, Vegas, Gradient2])
def test_drops_bring_every_limit_down_to_one_and_no_further(make: type[Limit]) -> None:
    limit = make(initial=1_000)
    limits = [limit.update(10 * MS, 1_000, True, 0.5) for _ in range(600)]
    assert limits == sorted(limits, reverse=True)
    assert limits[0] < 1_000
    assert limits[-1] == 1


@pytest.mark.parametrize("make", [Aimd, Vegas, Gradient2])
@pytest.mark.parametrize("rtt_us", [0, -5, -SECOND])
def test_a_latency_that_a_clock_going_back_made_changes_nothing(
    make: type[Limit], rtt_us: int
) -> None:
    limit = make()
    updated(limit, 10 * MS, times=3)
    before = limit.limit
    assert updated(limit, rtt_us, times=100) == before


@pytest.mark.parametrize("make", [Aimd, Vegas, Gradient2])
@pytest.mark.parametrize("draw", [-0.1, 1.0, float("nan"), float("inf")])
def test_a_draw_that_is_none_is_refused(make: type[Limit], draw: float) -> None:
    with pytest.raises(ValueError, match="draw must be from 0 to below 1"):
        make().update(10 * MS, 1, False, draw)


@pytest.mark.parametrize("make", [Aimd, Vegas, Gradient2])
@pytest.mark.parametrize(
    ("bounds", "field"),
    [
        ({"limit_max": 0}, "limit_max must be from 1 to 2\\^20, not 0"),
        ({"limit_max": LIMIT_MAX + 1}, "limit_max must be from 1"),
        ({"limit_min": 0}, "limit_min must be from 1"),
        ({"limit_min": 11, "limit_max": 10}, "limit_min must be from 1"),
        ({"initial": 4, "limit_min": 5}, "initial must be from 5 to"),
        ({"initial": 6, "limit_max": 5}, "initial must be from 1 to 5"),
    ],
)
def test_bounds_outside_their_range_are_refused(
    make: type[Limit], bounds: dict[str, int], field: str
) -> None:
    with pytest.raises(ValueError, match=field):
        make(**bounds)  # type: ignore[arg-type]


@given(
    st.sampled_from([Aimd, Vegas, Gradient2]),
    st.lists(
        st.tuples(
            st.integers(-5, 10**7),
            st.integers(0, 300),
            st.booleans(),
            st.floats(0, 1, exclude_max=True),
        ),
        max_size=100,
    ),
)
def test_whatever_is_measured_the_limit_keeps_its_bounds_and_grows_only_when_used(
    make: type[Limit], samples: list[tuple[int, int, bool, float]]
) -> None:
    limit = make(initial=20, limit_min=2, limit_max=100)
    steady = 20  # the limit outside of probes, which halve it and give it back
    for rtt_us, inflight, dropped, draw in samples:
        now = limit.update(rtt_us, inflight, dropped, draw)
        assert 2 <= now <= 100
        if dropped or inflight * 2 < steady:
            assert now <= steady
        steady = max(steady, now) if now == steady // 2 else now


# The window


def test_a_window_is_complete_after_a_second_and_ten_samples() -> None:
    window = SampleWindow()
    for at in range(9):
        assert window.add(10 * MS, at, False, at * MS) is None
    assert window.add(10 * MS, 1, False, 999 * MS) is None
    assert window.add(21 * MS, 1, False, SECOND) == WindowSample(11 * MS, 8, False)
    few = SampleWindow()
    assert [few.add(10 * MS, 1, False, at * SECOND) for at in range(9)] == [None] * 9
    assert few.add(10 * MS, 3, False, 9 * SECOND) == WindowSample(10 * MS, 3, False)


def test_each_window_begins_with_nothing() -> None:
    window = SampleWindow(samples_min=2)
    window.add(30 * MS, 50, True, 0)
    assert window.add(30 * MS, 50, False, SECOND) == WindowSample(30 * MS, 50, True)
    assert window.add(10 * MS, 5, False, SECOND + 1) is None
    assert window.add(20 * MS, 4, False, 2 * SECOND) is None
    assert window.add(30 * MS, 3, False, 2 * SECOND + 1) == WindowSample(20 * MS, 5, False)


def test_a_drop_marks_its_window_and_stays_out_of_its_mean() -> None:
    window = SampleWindow(samples_min=3)
    window.add(10 * MS, 1, False, 0)
    window.add(5 * SECOND, 1, True, 1)
    assert window.add(20 * MS, 1, False, SECOND) == WindowSample(15 * MS, 1, True)
    window = SampleWindow(samples_min=2)
    window.add(1, 1, True, 0)
    assert window.add(1, 1, True, SECOND) == WindowSample(0, 1, True)


def test_latencies_too_small_to_mean_anything_are_left_out() -> None:
    window = SampleWindow(samples_min=1, rtt_us_min=100)
    assert window.add(99, 1, False, 5 * SECOND) is None
    assert window.add(-10, 1, False, 5 * SECOND) is None
    window.add(100, 1, False, 5 * SECOND)
    assert window.add(100, 1, False, 6 * SECOND) == WindowSample(100, 1, False)


def test_a_long_silence_forgets_a_window_that_was_begun() -> None:
    window = SampleWindow(samples_min=3)
    window.add(90 * MS, 9, True, 0)
    window.add(90 * MS, 9, True, 10 * SECOND)
    window.add(10 * MS, 1, False, 20 * SECOND + 1)
    window.add(10 * MS, 1, False, 21 * SECOND)
    assert window.add(10 * MS, 1, False, 22 * SECOND) == WindowSample(10 * MS, 1, False)
    samples = SampleWindow(samples_min=3)
    for now_us in (0, 10 * SECOND):
        samples.add(90 * MS, 9, False, now_us)
    assert samples.add(90 * MS, 9, False, 20 * SECOND) is not None


def test_a_clock_that_goes_back_makes_the_window_begin_there() -> None:
    window = SampleWindow(samples_min=2)
    window.add(10 * MS, 1, False, 100 * SECOND)
    assert window.add(10 * MS, 1, False, 0) is None
    assert window.add(10 * MS, 1, False, SECOND - 1) is None
    assert window.add(10 * MS, 1, False, SECOND) == WindowSample(10 * MS, 1, False)


@pytest.mark.parametrize("field", ["window_us", "samples_min", "rtt_us_min"])
@pytest.mark.parametrize("value", [0, 3_600 * SECOND + 1])
def test_a_window_refuses_settings_outside_their_range(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{field} must be from 1 to"):
        SampleWindow(**{field: value})


@given(
    st.integers(1, 5),
    st.lists(
        st.tuples(st.integers(0, 700), st.integers(100, 999), st.integers(0, 9), st.booleans()),
        max_size=60,
    ),
)
def test_a_window_says_what_a_list_of_its_samples_says(
    samples_min: int, finished: list[tuple[int, int, int, bool]]
) -> None:
    window = SampleWindow(window_us=1_000, samples_min=samples_min)
    gathered: list[tuple[int, int, int, bool]] = []
    now_us = 0
    for gap_us, rtt_us, inflight, dropped in finished:
        now_us += gap_us
        gathered.append((now_us, rtt_us, inflight, dropped))
        sample = window.add(rtt_us, inflight, dropped, now_us)
        if len(gathered) < samples_min or now_us - gathered[0][0] < 1_000:
            assert sample is None
            continue
        rtts_us = [rtt for _, rtt, _, lost in gathered if not lost]
        assert sample is not None
        assert sample.rtt_us == (sum(rtts_us) // len(rtts_us) if rtts_us else 0)
        assert sample.inflight == max(busy for _, _, busy, _ in gathered)
        assert sample.dropped == any(lost for _, _, _, lost in gathered)
        gathered = []


# A service behind each of them whose capacity changes, under twice the load that it can do.

SERVICE_US = 100 * MS
CHANGES = ((100, 32, 1), (100, 16, 1), (100, 32, 1), (100, 32, 2), (240, 32, 1))


def service(limit: Limit) -> list[tuple[float, float]]:
    """For each phase: the mean limit and the share of capacity answered, over its second half.

    CHANGES has the phases: seconds, workers, how many times slower. Poisson arrivals at twice
    what 32 workers can do, exponential service; what is above the limit is refused.
    """
    chance = random.Random(1)
    per_us = 2 * 32 / SERVICE_US
    window = SampleWindow()
    waiting: deque[float] = deque()
    working: list[tuple[float, float]] = []  # when it is done, when it came
    arrival_us = end_us = 0.0
    points: list[tuple[float, float]] = []
    for seconds, workers, slower in CHANGES:
        half_us = end_us + seconds * SECOND / 2
        end_us += seconds * SECOND
        limits: list[int] = []
        done = 0
        while True:
            now_us = min(arrival_us, working[0][0] if working else arrival_us)
            if now_us >= end_us:
                break
            inflight = len(working) + len(waiting)
            if working and working[0][0] == now_us:
                _, came_us = heapq.heappop(working)
                sample = window.add(int(now_us - came_us), inflight, False, int(now_us))
                if sample is not None:
                    limit.update(sample.rtt_us, sample.inflight, sample.dropped, chance.random())
                if now_us >= half_us:
                    done += 1
                    limits.append(limit.limit)
            else:
                arrival_us += chance.expovariate(per_us)
                if inflight < limit.limit:
                    waiting.append(now_us)
            while waiting and len(working) < workers:
                done_us = now_us + chance.expovariate(1 / (SERVICE_US * slower))
                heapq.heappush(working, (done_us, waiting.popleft()))
        capacity = workers * seconds * SECOND / 2 / (SERVICE_US * slower)
        points.append((sum(limits) / len(limits), done / capacity))
    return points


FORMS: dict[str, Limit] = {
    "Aimd, timeout 300 ms": Aimd(timeout_us=300 * MS),
    "Vegas": Vegas(),
    "Vegas, probes undrained": Vegas(probe_multiplier=1, drain=False),
    "Vegas, original": Vegas(probe_multiplier=30, drain=False),
    "Gradient2": Gradient2(),
    "Gradient2, tolerance 1.1": Gradient2(tolerance=1.1),
    "Gradient2, original": Gradient2(probe_updates=0),
}


@cache
def found_by(form: str) -> list[tuple[float, float]]:
    return service(FORMS[form])


WORKERS = [workers for _, workers, _ in CHANGES]


@pytest.mark.parametrize(
    ("form", "least", "most"),
    [
        ("Vegas", 0.75, 1.3),
        ("Gradient2, tolerance 1.1", 0.75, 1.5),
        ("Gradient2", 1.25, 2.0),  # its tolerance is half as much again
        ("Aimd, timeout 300 ms", 1.25, 3.0),  # the latency it allows is three services
    ],
)
def test_it_follows_a_capacity_that_is_halved_restored_and_slowed_down(
    form: str, least: float, most: float
) -> None:
    for (limit, answered), workers in zip(found_by(form), WORKERS, strict=True):
        assert least * workers <= limit <= most * workers
        assert answered > 0.9


def test_a_gradient_without_a_drained_probe_drifts_and_with_one_it_does_not() -> None:
    first, last = found_by("Gradient2, original")[0][0], found_by("Gradient2, original")[-1][0]
    assert last > 2 * first
    first, last = found_by("Gradient2")[0][0], found_by("Gradient2")[-1][0]
    assert last == pytest.approx(first, rel=0.2)


def test_vegas_without_a_drained_probe_throttles_a_slower_service_or_climbs() -> None:
    seldom, often = found_by("Vegas, original"), found_by("Vegas, probes undrained")
    drained = found_by("Vegas")
    assert seldom[3][1] < drained[3][1]
    assert often[-1][0] > 1.2 * drained[-1][0]
