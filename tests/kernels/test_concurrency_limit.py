from __future__ import annotations

import heapq
import math
import random
from collections import deque
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.concurrency_limit import (
    LIMIT_MAX,
    Aimd,
    Gradient2,
    SampleWindow,
    Vegas,
    WindowSample,
)

MS = 1_000
SECOND = 1_000_000

Limit = Aimd | Vegas | Gradient2


def updated(limit: Limit, rtt_us: int, *, times: int = 1, inflight: int = 1_000_000) -> int:
    for _ in range(times):
        limit.update(rtt_us, inflight, False, 0.5)
    return limit.limit


# AIMD


def test_aimd_grows_by_one_while_the_limit_is_used() -> None:
    aimd = Aimd(initial=20)
    assert aimd.update(10 * MS, 10, False, 0.5) == 21
    assert aimd.update(10 * MS, 10, False, 0.5) == 21  # 10 of 21: not half
    assert aimd.update(10 * MS, 11, False, 0.5) == 22


def test_aimd_falls_by_a_tenth_for_a_drop_or_a_timeout_and_by_one_at_least() -> None:
    aimd = Aimd(initial=100, timeout_us=50 * MS)
    assert aimd.update(1, 1, True, 0.5) == 90
    assert aimd.update(50 * MS, 100, False, 0.5) == 91
    assert aimd.update(50 * MS + 1, 1, False, 0.5) == 81
    small = Aimd(initial=5, backoff=0.9)
    assert [small.update(1, 1, True, 0.5) for _ in range(6)] == [4, 3, 2, 1, 1, 1]
    assert Aimd(initial=20, backoff=math.nextafter(1, 0)).update(1, 1, True, 0.5) == 19


# Vegas


def test_vegas_grows_fast_without_a_queue_slowly_with_a_small_one_and_falls_with_a_large() -> None:
    for rtt_us, limit in (
        (100 * MS, 56),  # no queue: 6 decades up
        (102 * MS, 56),  # 50 * 2/102 = 0.98: still no more than one waits
        (103 * MS, 51),  # 1.46, so 2 wait
        (105 * MS, 50),  # 2.4, so 3 wait: no longer fewer than 3
        (113 * MS, 50),  # 5.8, so 6 wait: not more than 6
        (114 * MS, 49),  # 6.1, so 7 wait
    ):
        vegas = Vegas(initial=50, probe_multiplier=1_000)
        updated(vegas, 100 * MS)
        assert updated(vegas, rtt_us) == limit


def test_vegas_takes_steps_of_a_decade_of_its_limit() -> None:
    for initial, after in ((9, 15), (99, 105), (100, 112), (1_000, 1_018)):
        vegas = Vegas(initial=initial, limit_max=LIMIT_MAX, probe_multiplier=1_000)
        updated(vegas, MS)
        assert updated(vegas, MS) == after


def test_vegas_believes_a_smaller_latency_by_a_quarter_and_originally_at_once() -> None:
    for drain, unloaded_us in ((True, 97_500), (False, 90_000)):
        vegas = Vegas(initial=50, probe_multiplier=1_000, drain=drain)
        updated(vegas, 100 * MS)
        assert updated(vegas, 90 * MS) == 50
        assert vegas.unloaded_us == unloaded_us


def test_vegas_probes_by_halving_its_limit_and_believes_only_the_second_update() -> None:
    vegas = Vegas(initial=10, probe_multiplier=1)
    assert updated(vegas, 100 * MS) == 10
    assert updated(vegas, 150 * MS, times=8) == 10  # 3.3 wait: as it should be
    assert vegas.update(150 * MS, 10, False, 0.0) == 5
    assert vegas.update(150 * MS, 10, False, 0.0) == 5  # still what was queued before
    assert vegas.update(120 * MS, 5, False, 0.0) == 10
    assert vegas.unloaded_us == 120 * MS
    # A draw of 0 brings the next one after half as many updates.
    limits = [vegas.update(180 * MS, 10, False, 0.5) for _ in range(5)]
    assert limits == [10, 10, 10, 10, 5]


def test_vegas_needs_no_drain_when_fewer_than_half_are_at_work() -> None:
    vegas = Vegas(initial=10, probe_multiplier=1)
    updated(vegas, 100 * MS)
    limits = [vegas.update(300 * MS, 4, False, 0.5) for _ in range(9)]
    assert limits == [10] * 9
    assert vegas.unloaded_us == 300 * MS


def test_vegas_in_its_original_form_believes_the_latency_it_has() -> None:
    vegas = Vegas(initial=10, probe_multiplier=1, drain=False)
    updated(vegas, 100 * MS)
    limits = [vegas.update(150 * MS, 10, False, 0.5) for _ in range(9)]
    assert limits == [10] * 9
    assert vegas.unloaded_us == 150 * MS


def test_a_drop_reduces_vegas_and_calls_off_its_probe() -> None:
    vegas = Vegas(initial=200, probe_multiplier=1_000)
    assert vegas.update(0, 0, True, 0.5) == 198
    vegas = Vegas(initial=10, probe_multiplier=1)
    updated(vegas, 100 * MS)
    updated(vegas, 150 * MS, times=9)
    assert vegas.limit == 5
    assert vegas.update(900 * MS, 5, True, 0.5) == 9
    updated(vegas, 130 * MS)
    assert vegas.unloaded_us == 100 * MS


# Gradient2


def test_gradient2_grows_by_its_queue_allowance_while_latency_is_within_the_tolerance() -> None:
    gradient2 = Gradient2(initial=100, queue=4, smoothing=0.5, tolerance=1.5)
    updated(gradient2, 100 * MS, times=10, inflight=0)
    assert updated(gradient2, 100 * MS) == 102
    assert updated(gradient2, 150 * MS) == 104


def test_gradient2_falls_in_proportion_to_the_latency_and_by_half_at_most() -> None:
    for rtt_us, limit in ((300 * MS, 54), (200 * MS, 79), (30_000 * MS, 54)):
        gradient2 = Gradient2(initial=100, queue=4, smoothing=1.0, tolerance=1.5)
        updated(gradient2, 100 * MS, times=10, inflight=0)
        assert updated(gradient2, rtt_us) == limit


def test_gradient2_warms_up_with_the_plain_mean_and_goes_on_with_a_slow_one() -> None:
    gradient2 = Gradient2(long_updates=9, probe_updates=0)
    for rtt_us in range(1, 11):
        gradient2.update(rtt_us, 0, False, 0.5)
    assert gradient2.baseline_us == pytest.approx(5.5)
    gradient2.update(10, 0, False, 0.5)
    assert gradient2.baseline_us == pytest.approx(5.5 + 4.5 * 0.2)


def test_gradient2_comes_down_quickly_when_latency_has_more_than_halved() -> None:
    gradient2 = Gradient2(long_updates=1_000_000)
    updated(gradient2, 1_000, times=10, inflight=0)
    updated(gradient2, 500, inflight=0)
    assert gradient2.baseline_us > 999
    updated(gradient2, 499, inflight=0)
    assert gradient2.baseline_us == pytest.approx(950, rel=0.001)


def test_a_loaded_baseline_falls_and_does_not_rise() -> None:
    gradient2 = Gradient2(long_updates=9, probe_updates=1_000)
    updated(gradient2, 100, times=10, inflight=0)
    updated(gradient2, 150)
    assert gradient2.baseline_us == 100
    updated(gradient2, 90)
    assert gradient2.baseline_us == pytest.approx(98)
    updated(gradient2, 198, inflight=0)
    assert gradient2.baseline_us == pytest.approx(118)
    original = Gradient2(long_updates=9, probe_updates=0)
    updated(original, 100, times=10, inflight=0)
    updated(original, 150)
    assert original.baseline_us == pytest.approx(110)


def test_gradient2_probes_by_halving_its_limit_and_believes_only_the_second_update() -> None:
    gradient2 = Gradient2(initial=40, probe_updates=4, smoothing=1.0, queue=4, limit_max=48)
    updated(gradient2, 100 * MS, times=10, inflight=0)
    assert updated(gradient2, 150 * MS, times=4) == 48
    assert gradient2.update(150 * MS, 48, False, 0.0) == 24
    assert gradient2.update(150 * MS, 48, False, 0.0) == 24
    assert gradient2.baseline_us == 100 * MS
    assert gradient2.update(120 * MS, 24, False, 0.0) == 48
    assert gradient2.baseline_us == 120 * MS
    # A draw of 0 brings the next one after half as many updates.
    assert [gradient2.update(180 * MS, 48, False, 0.5) for _ in range(3)] == [48, 48, 24]


def test_a_drop_reduces_gradient2_teaches_it_nothing_and_calls_off_its_probe() -> None:
    gradient2 = Gradient2(initial=100, probe_updates=1)
    updated(gradient2, 100 * MS, times=10, inflight=0)
    assert gradient2.update(1, 0, True, 0.5) == 90
    assert gradient2.baseline_us == 100 * MS
    updated(gradient2, 100 * MS, times=2)
    assert gradient2.limit == 45
    assert gradient2.update(1, 0, True, 0.5) == 81
    updated(gradient2, 130 * MS, times=2)
    assert gradient2.baseline_us == 100 * MS  # the probe begins anew


# All three


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


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"backoff": 0.49}, "backoff"),
        ({"backoff": 1.0}, "backoff"),
        ({"backoff": float("nan")}, "backoff"),
    ],
)
def test_aimd_refuses_a_backoff_outside_its_range(settings: dict[str, float], field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be from 0.5"):
        Aimd(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout_us", [0, 3_600 * SECOND + 1])
def test_aimd_refuses_a_timeout_outside_its_range(timeout_us: int) -> None:
    with pytest.raises(ValueError, match="timeout_us must be from 1"):
        Aimd(timeout_us=timeout_us)


@pytest.mark.parametrize("probe_multiplier", [0, LIMIT_MAX + 1])
def test_vegas_refuses_a_multiplier_outside_its_range(probe_multiplier: int) -> None:
    with pytest.raises(ValueError, match="probe_multiplier must be from 1"):
        Vegas(probe_multiplier=probe_multiplier)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"tolerance": 0.99}, "tolerance"),
        ({"tolerance": float("inf")}, "tolerance"),
        ({"tolerance": float("nan")}, "tolerance"),
        ({"smoothing": 0.0}, "smoothing"),
        ({"smoothing": 1.1}, "smoothing"),
        ({"smoothing": float("nan")}, "smoothing"),
        ({"queue": 0}, "queue"),
        ({"long_updates": 0}, "long_updates"),
        ({"probe_updates": -1}, "probe_updates"),
    ],
)
def test_gradient2_refuses_settings_outside_their_range(
    settings: dict[str, float], field: str
) -> None:
    with pytest.raises(ValueError, match=f"{field} must be"):
        Gradient2(**settings)  # type: ignore[arg-type]


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
