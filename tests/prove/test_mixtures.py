"""The search for a mixture that gets more than its quota, over many seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.lab.mixtures import SHIPPED, Mixture, climb, play
from tests.lab.test_mixtures import DEAREST_RU
from tests.prove.seeds import seeds, whole

BOUND = 1.2
STEPS = 80 if whole() else 20


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=100, part=1))
def test_no_mixture_gets_more_than_its_quota(seed: int) -> None:
    quota_ru = (400, 1_000, 2_000)[seed % 3]  # about the dearest request, and more
    # Less what may be in flight when the quota is spent: a burst is paid back.
    burst_mru = 64 * DEAREST_RU * 1_000

    def value(mixture: Mixture) -> float:
        used_mru = play(mixture, seed=seed, quota_ru=quota_ru, seconds=120).used_mru
        return (used_mru - burst_mru) / (120_000 * quota_ru)

    worst, most = climb(seed, STEPS, value)
    assert most <= BOUND, worst


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=10, part=0)[:2])
def test_without_settlement_the_search_finds_one(seed: int) -> None:
    off = replace(SHIPPED, estimates_max=0, settle=False)
    _, value = climb(seed, STEPS, lambda mixture: play(mixture, seed=seed, settings=off).worst)
    assert value > BOUND
