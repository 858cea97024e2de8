"""Outages on virtual time: at any rate and length a breaker costs hardly an answer."""

from __future__ import annotations

import pytest

from tests.prove.seeds import seeds
from tests.resilience.client.test_outages import outages


@pytest.mark.prove
@pytest.mark.parametrize("lasts_us", [100_000, 1_000_000, 10_000_000, 30_000_000])
@pytest.mark.parametrize("per_s", [1, 10, 100, 1_000])
def test_an_outage_costs_less_than_a_hundredth_of_the_answers(per_s: int, lasts_us: int) -> None:
    calls = 4 * per_s * lasts_us // 1_000_000
    enough = max(1, min(40, 4_000 // max(calls, 1)))
    found = outages(seeds(5 * enough, enough), per_s, lasts_us, {})
    assert found.answered >= found.lucky - 0.01 * found.calls - 2
