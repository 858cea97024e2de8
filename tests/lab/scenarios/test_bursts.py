"""Bursts: what they leave idle is used, and what does not look at it loses it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.lab.rigs.station import CAPACITY_PER_S
from sluicegate.lab.scenarios.bursts import ONCE, RIGS, SCENARIO, TWICE, best_plain, on_off

MS = 1_000
SMALL = replace(RIGS[TWICE], span_us=2_500 * MS, warm_us=1_000 * MS)


def test_the_mean_is_what_it_says_and_every_case_at_the_capacity_has_one_kind() -> None:
    bursts = on_off(2.0, 50, 150)
    mean_per_s = bursts.on_per_s * bursts.on_us / (bursts.on_us + bursts.off_us)
    assert mean_per_s == pytest.approx(2 * CAPACITY_PER_S)
    assert all(len(RIGS[case].kinds) == 1 for case in ONCE)


def test_bursts_at_twice_the_capacity_are_served_in_the_pauses_behind_them() -> None:
    found = replace(SCENARIO, rigs={TWICE: SMALL}, goals=()).run_once("protect", TWICE, 0)
    assert found["goodput"] >= 0.9
    assert found["p50_ms"] <= 30
    assert found["success.critical"] >= 0.999


def test_dispatcher_serves_them_while_it_finds_its_limit() -> None:
    """Fifo serves 0.07 of the capacity here, and folly 0.79 with 0.47 of CRITICAL."""
    scenario = replace(SCENARIO, rigs={TWICE: SMALL}, goals=())
    found = [scenario.run_once("dispatcher", TWICE, seed) for seed in (1, 2, 3, 4)]
    assert min(one["success.critical"] for one in found) >= 0.99
    assert sum(one["goodput"] for one in found) / len(found) >= 0.8


@pytest.mark.parametrize("name", ["fifo", "folly"])
def test_a_plain_line_and_a_rule_that_knows_no_bursts_lose_them(name: str) -> None:
    found = replace(SCENARIO, rigs={TWICE: SMALL}, goals=()).run_once(name, TWICE, 0)
    assert found["goodput"] < 0.9


def test_the_best_of_the_plain_lines_is_played_once_for_a_rig_and_a_seed() -> None:
    rig = replace(RIGS["20/60 at 1x"], span_us=1_500 * MS, warm_us=500 * MS)
    assert 0.5 < best_plain(rig, 0) <= 1.05
    best_plain(rig, 0)
    assert best_plain.cache_info().hits >= 1
