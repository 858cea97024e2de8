"""The traces of window accuracy, its counters, and the scenario with one seed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.scenario import run_trials
from sluicegate.lab.scenarios.window_accuracy import (
    RIGS,
    SCENARIO,
    WINDOW_US,
    CellsCount,
    ExactCount,
    FixedCount,
    Sources,
    TraceRig,
    play,
)
from sluicegate.testing import SeededChance

S = 1_000_000


def test_a_source_that_is_always_on_sends_at_its_rate() -> None:
    instants = list(Sources(count=1, per_window=600).instants_us(SeededChance(1), 20 * WINDOW_US))
    assert instants == sorted(instants)
    assert len(instants) == pytest.approx(12_000, rel=0.03)


def test_a_source_that_is_on_and_off_sends_its_share_in_bursts() -> None:
    bursty = Sources(count=1, per_window=600, on_us=5 * S, off_us=15 * S)
    instants = list(bursty.instants_us(SeededChance(1), 60 * WINDOW_US))
    assert len(instants) == pytest.approx(600 * 60 / 4, rel=0.25)
    gaps = [late - early for early, late in pairwise(instants)]
    assert sum(gap > 3 * S for gap in gaps) == pytest.approx(60 * 3 * 0.8, rel=0.3)


def test_unequal_sources_lie_between_a_part_of_the_rate_and_the_rate() -> None:
    rig = TraceRig(sources=(Sources(count=30, per_window=1_000, spread=10),), limit=1)
    counts: dict[int, int] = {}
    for _, source in rig.trace(1):
        counts[source] = counts.get(source, 0) + 1
    assert 900 <= min(counts.values()) < 2_000
    assert 7_000 < max(counts.values()) <= 10_500


def test_the_log_counts_what_the_last_window_holds() -> None:
    log = ExactCount()
    assert [log.count(at_us) for at_us in (0, 1, WINDOW_US - 1)] == [1, 2, 3]
    assert log.count(WINDOW_US) == 3
    assert log.count(3 * WINDOW_US) == 1


def test_cells_let_what_expires_go_evenly_and_one_cell_is_the_two_counters() -> None:
    pair = CellsCount(1)
    assert [pair.count(0) for _ in range(4)] == [1, 2, 3, 4]
    assert pair.count(WINDOW_US + WINDOW_US // 4) == pytest.approx(1 + 4 * 0.75)
    ten = CellsCount(10)
    for _ in range(4):
        ten.count(0)
    assert ten.count(WINDOW_US - 1) == 5
    assert ten.count(WINDOW_US + WINDOW_US // 20) == pytest.approx(2 + 4 * 0.5)
    assert ten.count(WINDOW_US + WINDOW_US // 5) == pytest.approx(3)


def test_a_fixed_window_forgets_at_its_edge() -> None:
    fixed = FixedCount()
    assert [fixed.count(at_us) for at_us in (0, WINDOW_US - 1, WINDOW_US)] == [1, 2, 1]


def test_the_truth_is_never_wrong_and_the_first_window_is_not_judged() -> None:
    run = play(RIGS["bursts"], ExactCount, 1)
    assert (run.false_above, run.false_below, run.error_sum) == (0, 0, 0.0)
    early = replace(RIGS["bursts"], span_us=WINDOW_US)
    assert play(early, ExactCount, 1).requests == 0


def test_misjudgements_are_told_apart() -> None:
    flood = replace(RIGS["flood"], span_us=4 * WINDOW_US)
    fixed = play(flood, FixedCount, 0)
    assert fixed.false_above == 0
    assert fixed.false_below > 100


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(BadValue, match="limit"):
        replace(RIGS["site"], limit=0)


def test_the_same_seed_is_the_same_trace() -> None:
    rig = replace(RIGS["bursts"], span_us=WINDOW_US)
    assert rig.trace(3) == rig.trace(3) != rig.trace(4)


@pytest.mark.parametrize(
    ("candidate", "well"), [("cells", True), ("two-counters", False), ("without-sliding", False)]
)
def test_ten_cells_meet_the_goals_and_those_who_must_fail_do_not(
    candidate: str, well: bool
) -> None:
    short = {case: replace(rig, span_us=3 * WINDOW_US) for case, rig in RIGS.items()}
    small = replace(SCENARIO, rigs=short)
    assert run_trials(small, [candidate], range(1)).meets_goals(candidate) is well


def test_its_curves_are_short() -> None:
    curves = SCENARIO.curves(RIGS["bursts"], play(RIGS["bursts"], FixedCount, 1))
    assert all(0 < len(points) <= 250 for points in curves.values())
