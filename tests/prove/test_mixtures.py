"""The search for a mixture that gets more than its quota, over many seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.lab.mixtures import SHIPPED, climb, play
from tests.lab.test_mixtures import bound
from tests.prove.seeds import seeds, whole

BOUND = 1.2
STEPS = 80 if whole() else 20


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=100, part=1))
def test_no_mixture_gets_more_than_its_quota(seed: int) -> None:
    quota_ru = (400, 1_000, 2_000)[seed % 3]  # about the dearest request, and more
    worst, value = climb(
        seed, STEPS, lambda mixture: play(mixture, seed=seed, quota_ru=quota_ru).worst
    )
    assert value <= BOUND, worst


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=40, part=1))
def test_nor_more_than_a_burst_of_a_small_one(seed: int) -> None:
    quota_ru = (20, 50, 100, 200)[seed % 4]
    worst, value = climb(
        seed, STEPS, lambda mixture: play(mixture, seed=seed, quota_ru=quota_ru).worst
    )
    assert value <= bound(quota_ru), worst


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=10, part=0)[:2])
def test_without_the_correction_the_search_finds_one(seed: int) -> None:
    off = replace(SHIPPED, carry=False)
    _, value = climb(seed, STEPS, lambda mixture: play(mixture, seed=seed, settings=off).worst)
    assert value > BOUND
