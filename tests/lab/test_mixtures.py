"""Mixtures: nobody gets more than its quota by mixing shapes, and nobody honest gets less."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.lab.mixtures import (
    HALF_AND_HALF,
    HONEST,
    SHIPPED,
    TINY_AND_HUGE,
    Mixture,
    MixturePhase,
    climb,
    play,
)
from sluicegate.policies.request_units import RequestUnitsSettings

LUMPS = (
    "huge",
    "scans",
    "rarely huge",
)  # of more than half of what an epoch brings of the smaller quota
BOUND = 1.2  # of a quota, in any minute
HONEST_BOUND = 1.15  # of the formula
# Found by the search: rows that are thought to be one, in one order.
FOUND = Mixture((MixturePhase(21, (30, 0, 3, 0, 30, 100, 0, 1), 8),), drawn=False)


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_caller_is_charged_what_the_formula_says(name: str) -> None:
    quota_ru = 4_000 if name in LUMPS else 400
    result = play(HONEST[name], quota_ru=quota_ru, seconds=70)
    assert result.requests > 100
    assert 1 / HONEST_BOUND <= result.paid <= HONEST_BOUND
    assert result.worst >= 0.9  # of its quota is what it gets


@pytest.mark.parametrize("mixture", [TINY_AND_HUGE, HALF_AND_HALF, FOUND])
def test_no_mixture_that_once_paid_does(mixture: Mixture) -> None:
    assert play(mixture).worst <= BOUND


def test_before_bytes_were_estimated_it_did() -> None:
    before = RequestUnitsSettings(weights=SHIPPED.weights, settle=False)
    assert play(TINY_AND_HUGE, settings=before).worst > 4


def test_without_the_correction_the_worst_gets_several_times_its_quota() -> None:
    assert play(FOUND, settings=replace(SHIPPED, carry=False)).worst > 2 * BOUND


@pytest.mark.parametrize("seed", range(2))
def test_a_search_of_some_steps_finds_none(seed: int) -> None:
    worst, value = climb(seed, 8, lambda mixture: play(mixture, seed=seed).worst)
    assert value <= BOUND, worst
