from __future__ import annotations

from statistics import fmean

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.durations import (
    Bimodal,
    Constant,
    Duration,
    Exponential,
    Lognormal,
    Pareto,
)
from sluicegate.lab.random_source import RandomSource, derive_seed
from sluicegate.testing import SeededChance

SPANS: list[Duration] = [
    Constant(700),
    Exponential(700.0),
    Lognormal(700.0, 0.8),
    Pareto(700.0, 2.5),
    Bimodal(Constant(100), Exponential(6_100.0), 0.1),
]


@pytest.mark.parametrize("span", SPANS, ids=lambda span: type(span).__name__)
def test_draws_have_the_mean_that_the_span_claims(span: Duration) -> None:
    sampler = span.sampler(SeededChance(1))
    draws = [sampler() for _ in range(60_000)]
    assert fmean(draws) == pytest.approx(span.mean_us, rel=0.02)
    assert min(draws) >= 0


@pytest.mark.parametrize("span", SPANS, ids=lambda span: type(span).__name__)
def test_the_same_stream_draws_the_same(span: Duration) -> None:
    once, again = span.sampler(SeededChance(1)), span.sampler(SeededChance(1))
    assert [once() for _ in range(100)] == [again() for _ in range(100)]


def test_an_exponential_has_its_p99_where_it_belongs() -> None:
    sampler = Exponential(10_000.0).sampler(SeededChance(3))
    draws = sorted(sampler() for _ in range(50_000))
    assert draws[49_500] == pytest.approx(46_052, rel=0.04)


def test_a_bimodal_draws_the_seldom_one_as_often_as_it_says() -> None:
    sampler = Bimodal(Constant(1), Constant(9), 0.06).sampler(SeededChance(3))
    assert sum(sampler() == 9 for _ in range(50_000)) == pytest.approx(3_000, rel=0.06)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Constant(-1),
        lambda: Exponential(0),
        lambda: Lognormal(10, 0),
        lambda: Bimodal(Constant(1), Constant(2), 1.5),
    ],
)
def test_spans_that_make_no_sense_are_refused(make: object) -> None:
    with pytest.raises(BadValue):
        make()  # type: ignore[operator]


def test_streams_have_seeds_of_their_own() -> None:
    assert len({derive_seed(seed, name) for seed in range(50) for name in "abcd"}) == 200
    random_source = RandomSource(4)
    assert random_source.of("a") is random_source.of("a")
    assert random_source.of("a").draw() == RandomSource(4).of("a").draw()


def test_a_heavy_tail_has_its_share_of_long_ones_and_none_below_the_least() -> None:
    sampler = Pareto(900.0, 1.5).sampler(SeededChance(2))
    draws = [sampler() for _ in range(50_000)]
    assert min(draws) >= 300, "the least is a third of the mean"
    for times in (2, 10):  # the tail falls as the power of alpha
        over = sum(us > 300 * times for us in draws) / len(draws)
        assert over == pytest.approx(times**-1.5, rel=0.06)
    with pytest.raises(BadValue, match="alpha"):
        Pareto(900.0, 1.0)
