"""The rig of a gate before workers that come and go, and the scenario scaled down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arrivals import Even
from sluicegate.lab.baselines.concurrency_limits import (
    PublishedAimd,
    PublishedGradient2,
    PublishedVegas,
)
from sluicegate.lab.durations import Constant
from sluicegate.lab.rigs.gates import GateRig, measure, play, settled
from sluicegate.lab.scenario import run_trials
from sluicegate.lab.scenarios.tracking import SCENARIO, cycles, production

S = 1_000_000
RIG = GateRig(arrivals=Even(1_000), workers=((0, 10),), service=Constant(20_000), span_us=2 * S)


def test_a_gate_of_twenty_before_ten_workers_keeps_them_busy_and_lets_ten_wait() -> None:
    run = play(RIG, production("fixed"), 1)
    assert run.limits == [20] * 20
    assert sum(run.answered) == pytest.approx(1_000, abs=30)
    assert {us for took in run.took_us[5:15] for us in took} <= set(range(39_000, 41_001))


def test_a_worker_that_is_taken_away_ends_its_work_first() -> None:
    run = play(replace(RIG, workers=((0, 10), (S, 5))), production("fixed"), 1)
    assert sum(run.answered[11:20]) == pytest.approx(225, abs=10)
    assert sum(run.answered[:10]) == pytest.approx(480, abs=20)


def test_workers_that_come_back_serve_who_waits_at_once() -> None:
    run = play(replace(RIG, workers=((0, 1), (S, 10))), production("fixed"), 1)
    assert run.answered[10] > 30
    assert [replace(RIG, workers=((0, 1), (S, 10))).workers_at(at) for at in (0, S)] == [1, 10]


@pytest.mark.parametrize("workers", [(), ((5, 1),), ((0, 0),), ((0, 1), (0, 2))])
def test_workers_that_cannot_be_are_refused(workers: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(BadValue, match="workers"):
        replace(RIG, workers=workers)


def test_what_counts_begins_ten_seconds_after_a_change() -> None:
    rig = cycles(1)
    run = play(replace(rig, arrivals=Even(10)), production("fixed"), 1)
    assert [(workers, len(limits)) for workers, limits in settled(rig, run)] == [
        (32, 100),
        (16, 100),
    ]


def test_the_published_forms_do_what_their_library_says() -> None:
    aimd = PublishedAimd()
    assert [aimd.update(1_000, 20, False, 0.0) for _ in range(2)] == [21, 22]
    assert aimd.update(6_000_000, 22, False, 0.0) == 20
    assert aimd.update(1_000, 9, False, 0.0) == 20, "less than half used"
    vegas = PublishedVegas()
    assert vegas.update(10_000, 20, False, 0.0) == 20, "the first is the least"
    assert vegas.update(10_000, 20, False, 0.0) == 26
    assert vegas.update(11_000, 26, False, 0.0) == 26, "a queue of three"
    assert vegas.update(20_000, 26, False, 0.0) == 25
    assert vegas.update(20_000, 26, True, 0.0) == 24
    gradient = PublishedGradient2()
    assert gradient.update(10_000, 20, False, 0.0) == 20
    for _ in range(20):
        gradient.update(10_000, 40, False, 0.0)
    assert gradient.limit > 25
    for _ in range(300):
        gradient.update(100_000, 200, False, 0.0)
    assert 20 <= gradient.limit <= 200


def test_ours_is_nearer_than_what_was_published_and_does_not_drift() -> None:
    small = replace(SCENARIO, rigs={"cycles": cycles(1)})
    trial = run_trials(small, ["concurrency", "gradient2", "without-tracking"], range(1))
    figures = {name: runs["cycles"][0] for name, runs in trial.figures.items()}
    assert figures["concurrency"]["off_max"] <= 0.4
    assert figures["concurrency"]["p99_growth"] <= 0.2
    assert figures["concurrency"]["drift"] <= 0.1
    assert figures["concurrency"]["goodput_3s"] >= 0.9, "it starts quickly"
    assert figures["gradient2"]["off_max"] > 0.6
    assert not trial.meets_goals("gradient2")
    assert not trial.meets_goals("without-tracking")


def test_the_same_seed_is_the_same_run_and_its_curves_are_short() -> None:
    rig = replace(cycles(1), span_us=3 * S, workers=((0, 32),))
    runs = [play(rig, production(), seed) for seed in (1, 1, 2)]
    assert runs[0].answered == runs[1].answered != runs[2].answered
    whole = play(replace(cycles(10), arrivals=Even(1)), production("fixed"), 1)
    assert all(len(points) <= 500 for points in SCENARIO.curves(cycles(10), whole).values())
    assert measure(cycles(10), whole)["drift"] == 0.0
