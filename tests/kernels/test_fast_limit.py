from __future__ import annotations

from collections import deque
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.fast_limit import FastLimit

WORK_US = 20_000


def limits_under_load(
    limit: FastLimit, workers: int, updates: int, *, work_us: float = WORK_US, noise: float = 0.0
) -> list[int]:
    """The limits while so many workers are all busy; what they do not serve waits."""
    random = Random(1)
    limits = []
    for _ in range(updates):
        at_work = limit.limit
        mean_us = work_us * max(1.0, at_work / workers)
        rtt_us = round(mean_us * random.gauss(1.0, noise)) if noise else round(mean_us)
        limits.append(limit.update(rtt_us, at_work, False, random.random()))
    return limits


def middle(limits: list[int]) -> int:
    return sorted(limits)[len(limits) // 2]


@pytest.mark.parametrize("workers", [16, 32, 300])
def test_it_settles_a_little_above_the_workers_from_far_below_and_above(workers: int) -> None:
    for initial in (1, 20, 900):
        limit = FastLimit(initial=initial)
        limits_under_load(limit, workers, 400)
        assert workers <= middle(limits_under_load(limit, workers, 200)) <= 1.2 * workers + 2


def test_a_start_grows_faster_with_each_update() -> None:
    limits = limits_under_load(FastLimit(initial=20), 1_000, 8)
    assert limits[:5] == [20, 25, 38, 56, 84]
    assert limits[7] > 250


def test_half_of_the_workers_are_found_in_a_few_updates_and_again_when_they_come_back() -> None:
    limit = FastLimit()
    limits_under_load(limit, 32, 200)
    assert limits_under_load(limit, 16, 12)[-1] <= 20
    limits_under_load(limit, 16, 100)
    assert limits_under_load(limit, 32, 30)[-1] >= 28


def test_work_that_became_slower_is_no_queue() -> None:
    limit = FastLimit()
    limits_under_load(limit, 32, 100)
    assert min(limits_under_load(limit, 32, 150, work_us=3 * WORK_US)) >= 6
    assert limit.unloaded_us == pytest.approx(3 * WORK_US, rel=0.05)
    assert 30 <= middle(limits_under_load(limit, 32, 100, work_us=3 * WORK_US)) <= 40


def test_work_that_became_quicker_is_seen_too() -> None:
    limit = FastLimit()
    limits_under_load(limit, 32, 100)
    limits_under_load(limit, 32, 200, work_us=WORK_US / 3)
    assert limit.unloaded_us == pytest.approx(WORK_US / 3, rel=0.1)
    assert middle(limits_under_load(limit, 32, 100, work_us=WORK_US / 3)) <= 42


def test_noise_moves_it_little() -> None:
    limit = FastLimit()
    limits_under_load(limit, 32, 100, noise=0.04)
    limits = limits_under_load(limit, 32, 1_000, noise=0.04)
    assert 30 <= middle(limits) <= 40
    near = [24 <= at <= 40 for at in limits]
    assert sum(near) > 0.95 * len(near)


def test_an_idle_limit_proves_nothing_and_learns_what_work_takes() -> None:
    limit = FastLimit(initial=100)
    for _ in range(50):
        limit.update(WORK_US, 20, False, 0.5)
    assert limit.limit == 100
    for _ in range(100):
        limit.update(2 * WORK_US, 20, False, 0.5)
    assert limit.unloaded_us == pytest.approx(2 * WORK_US, rel=0.01)


def test_a_drop_takes_a_tenth_off_however_idle() -> None:
    limit = FastLimit(initial=100)
    assert limit.update(0, 1, True, 0.0) == 90
    assert limit.update(WORK_US, 1, True, 0.0) == 81
    for _ in range(200):
        limit.update(0, 1, True, 0.0)
    assert limit.limit == 1


def test_a_latency_of_nothing_changes_nothing() -> None:
    limit = FastLimit()
    limits_under_load(limit, 32, 50)
    before = limit.limit
    assert limit.update(0, before, False, 0.0) == before
    assert limit.update(-5, before, False, 0.0) == before


def test_a_probe_is_a_fifth_lower_for_two_updates() -> None:
    limit = FastLimit()
    limits_under_load(limit, 32, 200)
    limits = deque(limits_under_load(limit, 32, 100))
    steady = middle(list(limits))
    low = [at for at in limits if at < 0.85 * steady]
    assert low
    assert min(low) >= int(0.75 * steady)
    assert len(low) <= 2 * (100 // (steady // 2) + 1)


@given(
    st.lists(
        st.tuples(
            st.integers(-10, 10**9),
            st.integers(0, 2_000),
            st.booleans(),
            st.floats(0.0, 0.999),
        ),
        max_size=60,
    ),
    st.integers(1, 50),
    st.integers(0, 500),
)
def test_it_stays_within_its_bounds_whatever_it_is_told(
    samples: list[tuple[int, int, bool, float]], low: int, more: int
) -> None:
    limit = FastLimit(initial=low, limit_min=low, limit_max=low + more)
    for rtt_us, inflight, dropped, draw in samples:
        assert low <= limit.update(rtt_us, inflight, dropped, draw) <= low + more
        assert limit.limit <= low + more


@pytest.mark.parametrize(
    "settings",
    [
        {"limit_max": 0},
        {"limit_min": 0},
        {"limit_min": 2_000},
        {"initial": 0},
        {"initial": 1_001},
        {"probe_multiplier": 0},
    ],
)
def test_bounds_that_do_not_fit_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be from"):
        FastLimit(**settings)


def test_a_bad_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="draw"):
        FastLimit().update(1, 1, False, 1.0)
