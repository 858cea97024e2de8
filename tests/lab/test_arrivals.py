from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise, takewhile
from statistics import fmean, pvariance

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arrivals import (
    Arrivals,
    Diurnal,
    Even,
    OnOff,
    ParetoOnOff,
    Poisson,
    Replay,
    Steps,
)
from sluicegate.testing import SeededChance

SECOND = 1_000_000


def until(arrivals: Arrivals, end_us: int, seed: int = 1) -> list[int]:
    instants: Iterator[int] = arrivals.instants_us(SeededChance(seed))
    return list(takewhile(lambda at_us: at_us < end_us, instants))


ALL: list[Arrivals] = [
    Poisson(500),
    Even(500),
    Steps(((0, 100), (3 * SECOND, 900))),
    OnOff(on_per_s=2_000, on_us=100_000, off_us=300_000),
    ParetoOnOff(on_per_s=2_000, on_us=100_000, off_us=300_000),
    Diurnal(mean_per_s=500, swing=0.8, day_us=SECOND),
    Replay((5, 5, 9, 4_000)),
]


@pytest.mark.parametrize("arrivals", ALL, ids=lambda arrivals: type(arrivals).__name__)
def test_instants_ascend_and_are_those_of_the_seed(arrivals: Arrivals) -> None:
    instants = until(arrivals, 10 * SECOND)
    assert instants == until(arrivals, 10 * SECOND)
    assert all(early <= late for early, late in pairwise(instants))
    assert instants[0] >= 0


def test_poisson_arrivals_have_their_rate_and_counts_that_scatter_like_their_mean() -> None:
    instants = until(Poisson(1_000), 200 * SECOND)
    counts = [0] * 2_000
    for at_us in instants:
        counts[at_us // 100_000] += 1
    assert fmean(counts) == pytest.approx(100, rel=0.01)
    assert pvariance(counts) == pytest.approx(100, rel=0.1)


def test_even_arrivals_do_not_drift() -> None:
    assert until(Even(3), 2 * SECOND) == [333_333, 666_666, 1_000_000, 1_333_333, 1_666_666]


def test_a_step_changes_the_rate_when_it_says() -> None:
    instants = until(Steps(((0, 100), (30 * SECOND, 1_000), (40 * SECOND, 0))), 100 * SECOND)
    before = [at_us for at_us in instants if at_us < 30 * SECOND]
    assert len(before) == pytest.approx(3_000, rel=0.06)
    assert len(instants) - len(before) == pytest.approx(10_000, rel=0.04)
    assert max(instants) < 40 * SECOND


def test_bursts_are_as_long_and_as_far_apart_as_they_say_and_silent_between() -> None:
    bursts = OnOff(on_per_s=5_000, on_us=100_000, off_us=400_000)
    instants = until(bursts, 200 * SECOND)
    assert len(instants) == pytest.approx(5_000 * 200 / 5, rel=0.12)
    gaps = sum(late - early > 20_000 for early, late in pairwise(instants))
    assert gaps == pytest.approx(400, rel=0.15)


def test_a_day_has_its_peak_at_noon_and_its_mean_over_the_whole() -> None:
    instants = until(Diurnal(mean_per_s=2_000, swing=0.8, day_us=10 * SECOND), 10 * SECOND)
    noon = sum(4 * SECOND <= at_us < 6 * SECOND for at_us in instants)
    night = sum(at_us < SECOND or at_us >= 9 * SECOND for at_us in instants)
    assert len(instants) == pytest.approx(20_000, rel=0.03)
    assert noon > 6 * night


def test_a_replay_is_what_was_recorded_and_can_be_faster() -> None:
    assert until(Replay((10, 20, 40)), SECOND) == [10, 20, 40]
    assert until(Replay((10, 20, 40), speed=2), SECOND) == [5, 10, 20]


def test_a_rate_of_none_brings_nobody() -> None:
    assert list(islice(Poisson(0).instants_us(SeededChance(1)), 1)) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: Poisson(-1),
        lambda: Even(1e9),
        lambda: Steps(()),
        lambda: Steps(((5, 1.0),)),
        lambda: Steps(((0, 1.0), (0, 2.0))),
        lambda: OnOff(on_per_s=1, on_us=0, off_us=1),
        lambda: ParetoOnOff(on_per_s=1, on_us=0, off_us=1),
        lambda: ParetoOnOff(on_per_s=1, on_us=1, off_us=1, alpha=1.0),
        lambda: Diurnal(mean_per_s=1, swing=2),
        lambda: Replay((3, 1)),
        lambda: Replay((1,), speed=0),
    ],
)
def test_arrivals_that_make_no_sense_are_refused(make: object) -> None:
    with pytest.raises(BadValue):
        make()  # type: ignore[operator]


def test_bursts_with_a_heavy_tail_are_as_many_as_others_and_vary_more_over_long_spans() -> None:
    """Over ten seconds bursts with an exponential length even out; Pareto's do not."""
    spread: dict[str, float] = {}
    for name, bursts in (
        ("exponential", OnOff(on_per_s=400, on_us=50_000, off_us=50_000)),
        ("pareto", ParetoOnOff(on_per_s=400, on_us=50_000, off_us=50_000)),
    ):
        counts = [0] * 60
        for at_us in until(bursts, 600 * SECOND, seed=5):
            counts[at_us // (10 * SECOND)] += 1
        assert fmean(counts) == pytest.approx(2_000, rel=0.15)
        spread[name] = pvariance(counts)
    assert spread["pareto"] > 4 * spread["exponential"]
