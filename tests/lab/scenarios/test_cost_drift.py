"""Costs that drift: what is drawn, what is measured, and who misses."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.scenario import run_trials
from sluicegate.lab.scenarios.cost_drift import (
    SCENARIO,
    WEIGHTS,
    WINDOW,
    CountingBudget,
    Drift,
    DriftEntry,
    DriftSource,
    curves,
    form,
    measure,
    play,
)
from sluicegate.policies.quota.request_units import RequestUnits
from tests.prove.seeds import seeds

SHORT = ("rows", "liar")
SMALL = replace(
    SCENARIO,
    rigs={name: SCENARIO.rigs[name] for name in SHORT},
    goals=tuple(
        replace(goal, cases=tuple(name for name in goal.cases if name in SHORT))
        for goal in SCENARIO.goals
    ),
)


def met(candidate: str) -> bool:
    return run_trials(SMALL, [candidate], [1]).meets_goals(candidate)


def test_ours_meets_the_goals_whatever_has_drifted() -> None:
    assert met("request-units")


@pytest.mark.prove
@pytest.mark.parametrize("candidate", SCENARIO.must_fail)
def test_who_must_fail_misses(candidate: str) -> None:
    assert not met(candidate)


@pytest.mark.prove
def test_a_million_requests_later_it_has_not_diverged() -> None:
    rig = Drift(requests=1_000_000, at=994_000, rows=3.0, liar_every=10)
    for seed in seeds(1, 1) or range(1):
        figures = measure(rig, play(rig, form(), WEIGHTS, seed))
        for goal in SCENARIO.goals:
            assert goal.is_met(figures[goal.figure], rig), (goal, figures)


def entry(
    actual: float, expected: float, floor: float = 100.0, *, liar: bool = False
) -> DriftEntry:
    return DriftEntry(actual, expected, floor, int(actual / 2), liar)


def test_the_figures_are_sums_over_sums() -> None:
    rig = Drift()
    entries = [entry(100.0, 110.0, 95.0)] * 3_000
    figures = measure(rig, entries)
    assert figures["wape"] == pytest.approx(0.1)
    assert figures["wape_over_floor"] == pytest.approx(2.0)
    assert figures["bias"] == pytest.approx(1.1)
    assert figures["paid"] == pytest.approx(0.5)
    assert figures["settled_requests"] == math.inf
    assert figures["farthest"] == pytest.approx(110 / 95)


def test_it_has_settled_once_it_stays_within_a_tenth_of_the_floor() -> None:
    far, near = entry(100.0, 120.0, 90.0), entry(100.0, 110.0, 90.0)
    figures = measure(Drift(), [far] * 700 + [near] * 2_500)
    # 440 far ones of the last 500 would do; they are judged every 50.
    assert 700 < figures["settled_requests"] <= 700 + WINDOW + 50
    again = measure(Drift(), [near] * 2_000 + [far] * 600 + [near] * 1_000)
    assert again["settled_requests"] > 2_600, "what was good once and is not any more is not"
    assert len(curves(Drift(), [near] * 100_000)["wape_over_floor"]) <= 500


def test_a_liar_is_judged_apart() -> None:
    honest, liar = entry(100.0, 100.0), DriftEntry(1_000.0, 10.0, 900.0, 100, True)
    figures = measure(Drift(), [honest, liar] * 2_000)
    assert figures["bias.honest"] == 1.0
    assert figures["paid.liar"] == 0.1


def test_nature_draws_shapes_and_noise_around_them_with_a_mean_of_one() -> None:
    rig = Drift(requests=40_000, at=20_000, rows=3.0, size_bytes=2.0, ms=5.0)
    nature = DriftSource(rig, 5)
    rows: list[list[float]] = [[], []]
    floors: list[list[float]] = [[], []]
    for number in range(40_000):
        request, measured, floor_mru, liar = nature.next(number, WEIGHTS)
        assert not liar
        late = number >= 20_000
        rows_claimed = int(request.attributes["rows"])
        assert 1 <= rows_claimed <= 300
        if rows_claimed > 20:
            rows[late].append(measured.rows / rows_claimed)
        cost = WEIGHTS.cost_mru(measured.rows, measured.size_bytes, measured.service_us / 1000)
        floors[late].append(cost / floor_mru)
    assert sum(rows[0]) / len(rows[0]) == pytest.approx(1.0, rel=0.02)
    assert sum(rows[1]) / len(rows[1]) == pytest.approx(3.0, rel=0.02)
    for over in floors:
        assert sum(over) / len(over) == pytest.approx(1.0, rel=0.03)


def test_the_liar_says_one_row_and_has_two_hundred_looked_at() -> None:
    nature = DriftSource(Drift(liar_every=4, at=0), 6)
    draws = [nature.next(number, WEIGHTS) for number in range(4_000)]
    liars = [(request, measured) for request, measured, _, liar in draws if liar]
    assert len(liars) == 1_000
    assert {request.attributes["rows"] for request, _ in liars} == {"1"}
    assert {request.caller for request, _ in liars} == {"liar"}
    mean = sum(measured.rows for _, measured in liars) / 1_000
    assert mean == pytest.approx(200, rel=0.05)


def test_a_storm_is_a_thousand_times_or_nothing() -> None:
    nature = DriftSource(Drift(storms=0.1, at=0), 7)
    measured = [nature.next(number, WEIGHTS) for number in range(5_000)]
    times = [one.rows / int(request.attributes["rows"]) for request, one, _, _ in measured]
    assert sum(time == 1_000 for time in times) == pytest.approx(250, rel=0.2)


def test_what_is_paid_is_what_went_through_the_till() -> None:
    rig = Drift(requests=1_200, at=0)
    tills: list[CountingBudget] = []

    def make(rig: Drift, till: CountingBudget) -> RequestUnits:
        tills.append(till)
        return form()(rig, till)

    entries = play(rig, make, WEIGHTS, 8)
    assert sum(one.paid for one in entries) == tills[0].mru
    assert entries == play(rig, make, WEIGHTS, 8)


def test_a_drift_without_time_to_settle_is_refused() -> None:
    with pytest.raises(BadValue, match="at"):
        Drift(requests=1_500, at=600)
