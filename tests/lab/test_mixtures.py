"""Mixtures: nobody gets more than its quota by mixing shapes, and nobody honest gets less."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.lab.mixtures import (
    HALF_AND_HALF,
    HONEST,
    SHIPPED,
    TINY_AND_HUGE,
    Mixture,
    MixturePhase,
    climb,
    play,
    steady,
)
from tests.prove.seeds import first

LUMPS = (
    "huge",
    "scans",
    "rarely huge",
)  # of more than half of what an epoch brings of the smaller quota
BOUND = 1.2  # of a quota, in any minute
DEAREST_RU = 450
HONEST_BOUND = 1.15  # of the formula
# Found by the search: rows that are thought to be one, in one order.
FOUND = Mixture((MixturePhase(21, (30, 0, 3, 0, 30, 100, 0, 1), 8),), drawn=False)


@pytest.mark.parametrize("name", first(1, HONEST))
def test_an_honest_caller_is_charged_what_the_formula_says(name: str) -> None:
    quota_ru = 4_000 if name in LUMPS else 400
    result = play(HONEST[name], quota_ru=quota_ru, seconds=70)
    assert result.requests > 100
    assert 1 / HONEST_BOUND <= result.paid <= HONEST_BOUND
    assert result.worst >= 0.9  # of its quota is what it gets


# A minute of tiny reads, and then as many huge ones at once as there are places.
SUDDEN = Mixture(
    (
        MixturePhase(60, (1, 0, 0, 0, 0, 0, 0, 0), 1),
        MixturePhase(1, (0, 0, 1, 0, 0, 0, 0, 0), 64),
    ),
    drawn=False,
)


@pytest.mark.parametrize("mixture", [TINY_AND_HUGE, HALF_AND_HALF, FOUND])
def test_no_mixture_that_once_paid_does(mixture: Mixture) -> None:
    assert play(mixture).worst <= BOUND


def most_mru(quota_ru: int, seconds: int, in_flight: int) -> int:
    """A quota, its debt, and the requests in flight when it was spent."""
    return (quota_ru * (seconds + 2) + in_flight * DEAREST_RU) * 1_000


@pytest.mark.parametrize(("quota_ru", "kind"), [(20, 2), (20, 4), (100, 4)])
def test_cost_above_any_charge_is_paid_in_the_end(quota_ru: int, kind: int) -> None:
    """It once got 11 times a quota of 20, for the rest of each was owed and never paid."""
    result = play(steady({kind: 1}), quota_ru=quota_ru, seconds=400)
    assert result.used_mru <= most_mru(quota_ru, 400, 8)
    assert result.paid >= 0.9
    assert result.requests > 10  # delayed, and never ruled out


def test_sudden_burst_is_paid_before_further_work() -> None:
    result = play(SUDDEN, seconds=250)
    assert result.used_mru <= most_mru(400, 250, 64)
    assert result.worst <= 1 + 64 * DEAREST_RU / (400 * 60)


def test_work_of_unknown_bytes_that_is_not_settled_gets_several_quotas() -> None:
    before = replace(SHIPPED, estimates_max=0, settle=False)
    assert play(TINY_AND_HUGE, settings=before).worst > 4


@pytest.mark.parametrize("seed", first(1, range(2)))
def test_a_search_of_some_steps_finds_none(seed: int) -> None:
    worst, most = climb(seed, 8, lambda mixture: play(mixture, seed=seed).used_mru)
    assert most <= most_mru(400, 130, 64), worst
