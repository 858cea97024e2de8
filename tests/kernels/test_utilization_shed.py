from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.utilization_shed import (
    DEFAULT_RAMPS,
    Ramp,
    RampSettings,
    UtilizationShed,
    follow,
    refusal_share,
)

CRITICAL, DEGRADED, BEST_EFFORT, BULK = range(4)
ALMOST_ONE = 1 - 2**-53


def shares(utilization: float, **settings: Any) -> list[float]:
    shed = UtilizationShed(RampSettings(**{"floor": 0.0, **settings}))
    shed.observe(utilization)
    return [round(shed.refusal_share(criticality), 9) for criticality in range(4)]


@pytest.mark.parametrize(
    ("utilization", "refused"),
    [
        (0.0, [0, 0, 0, 0]),
        (0.6, [0, 0, 0, 0]),
        (0.65, [0, 0, 0, 0.5]),
        (0.7, [0, 0, 0, 1]),
        (0.72, [0, 0, 0.2, 1]),
        (0.8, [0, 0, 1, 1]),
        (0.86, [0, 0.4, 1, 1]),
        (0.95, [0, 1, 1, 1]),
        (1.0, [0, 1, 1, 1]),
        (7.0, [0, 1, 1, 1]),  # a load above the number of processors
    ],
)
def test_the_classes_are_refused_one_after_the_other(
    utilization: float, refused: list[float]
) -> None:
    assert shares(utilization) == refused


def test_before_the_first_reading_everything_is_admitted() -> None:
    shed = UtilizationShed()
    assert all(shed.admits(criticality, 0.0) for criticality in range(4))


def test_critical_work_is_refused_only_by_a_setting_and_never_below_80_percent() -> None:
    ramps = (Ramp(0.95, 1.0), *DEFAULT_RAMPS[1:])
    shed = UtilizationShed(RampSettings(ramps=ramps))
    shed.observe(0.975)
    assert shed.refusal_share(CRITICAL) == pytest.approx(0.5)
    shed = UtilizationShed(RampSettings(ramps=(Ramp(0.8, 0.9), Ramp(0.7, 0.8)), floor=0.0))
    shed.observe(0.8)
    assert [shed.refusal_share(0), shed.refusal_share(1)] == [0, 1]
    with pytest.raises(ValueError, match=r"ramps\[0\] must begin at 0.8 or later, not 0.79"):
        RampSettings(ramps=(Ramp(0.79, 0.9),))


def test_a_unit_is_refused_when_its_draw_is_below_the_share() -> None:
    shed = UtilizationShed(RampSettings(floor=0.0))
    shed.observe(0.65)
    half = shed.refusal_share(BULK)
    assert shed.admits(BULK, half)
    assert not shed.admits(BULK, half - 1e-9)
    assert shed.admits(BEST_EFFORT, 0.0)
    shed.observe(0.7)
    assert not shed.admits(BULK, ALMOST_ONE)


def test_a_ramp_of_no_length_is_a_step() -> None:
    ramp = Ramp(0.5, 0.5)
    assert [refusal_share(ramp, at) for at in (0.0, 0.5, 0.500001, 1.0)] == [0, 0, 1, 1]
    assert [refusal_share(None, at) for at in (0.0, 0.5, 1.0)] == [0, 0, 0]


def test_it_rises_at_once_and_falls_only_by_what_passes_the_hysteresis() -> None:
    shed = UtilizationShed()
    levels = []
    for utilization in (0.62, 0.70, 0.66, 0.65, 0.60, 0.63, 0.66, 0.2):
        shed.observe(utilization)
        levels.append(round(shed.effective, 9))
    assert levels == [0.62, 0.70, 0.70, 0.70, 0.65, 0.65, 0.66, 0.25]


def test_without_hysteresis_it_follows_every_reading() -> None:
    assert follow(0.7, 0.3, 0.0) == 0.3
    assert follow(0.3, 0.7, 0.0) == 0.7


def test_a_floor_lets_a_share_of_every_class_pass_below_hard_overload() -> None:
    assert shares(0.86, floor=0.02, hard_from=0.9) == [0, 0.4, 0.98, 0.98]
    assert shares(0.9, floor=0.02, hard_from=0.9) == [0, round(2 / 3, 9), 1, 1]
    assert shares(0.65, floor=0.02) == [0, 0, 0, 0.5]
    assert shares(0.86, floor=0.02, hard_from=0.0) == [0, 0.4, 1, 1]


@pytest.mark.parametrize(
    ("ramps", "sentence"),
    [
        ([], "ramps must be from 1 to 64 of them, not 0"),
        ([None] * 65, "ramps must be from 1 to 64 of them, not 65"),
        ([None, Ramp(0.5, 0.4)], r"ramps\[1\] must rise within 0 to 1.0"),
        ([None, Ramp(-0.1, 0.4)], r"ramps\[1\] must rise within 0 to 1.0"),
        ([None, Ramp(0.5, 1.1)], r"ramps\[1\] must rise within 0 to 1.0"),
        ([None, Ramp(0.5, 0.6), Ramp(0.4, 0.51)], r"ramps\[2\] must rise within 0 to 0.5"),
        ([None, Ramp(float("nan"), 0.6)], r"ramps\[1\] must rise within"),
        ([None, Ramp(0.5, float("nan"))], r"ramps\[1\] must rise within"),
        ([Ramp(float("nan"), 0.9)], r"ramps\[0\] must begin at 0.8 or later"),
        ([None, Ramp(0.5, 0.6), None], r"ramps\[2\] must be given"),
    ],
)
def test_ramps_that_overlap_or_leave_a_gap_are_refused(
    ramps: list[Ramp | None], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        RampSettings(ramps=tuple(ramps))


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"hysteresis": -0.01}, "hysteresis"),
        ({"hysteresis": 0.51}, "hysteresis"),
        ({"hysteresis": float("nan")}, "hysteresis"),
        ({"floor": -0.1}, "floor"),
        ({"floor": 1.0}, "floor"),
        ({"floor": float("nan")}, "floor"),
        ({"hard_from": -0.1}, "hard_from"),
        ({"hard_from": 1.1}, "hard_from"),
        ({"hard_from": float("nan")}, "hard_from"),
    ],
)
def test_settings_outside_their_range_are_refused(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be from 0"):
        RampSettings(**settings)


@pytest.mark.parametrize("utilization", [-0.01, float("nan"), float("inf")])
def test_a_reading_that_is_none_is_refused_and_changes_nothing(utilization: float) -> None:
    shed = UtilizationShed()
    shed.observe(0.65)
    with pytest.raises(ValueError, match="utilization must be finite and not negative"):
        shed.observe(utilization)
    assert shed.effective == 0.65


@pytest.mark.parametrize("draw", [-0.1, 1.0, float("nan"), float("inf")])
def test_a_draw_that_is_none_is_refused(draw: float) -> None:
    with pytest.raises(ValueError, match="draw must be from 0 to below 1"):
        UtilizationShed().admits(BULK, draw)


class SlowBacklash:
    """The oracle: every reading kept, and the effective one worked out from all of them."""

    def __init__(self, hysteresis: float) -> None:
        self.hysteresis = hysteresis
        self.readings = [0.0]

    def effective(self, reading: float) -> float:
        """The greatest of each reading and what it was pulled down to by all that came after."""
        self.readings.append(min(1.0, reading))
        best = 0.0
        for at, utilization in enumerate(self.readings):
            lowest = min(self.readings[at:])
            best = max(best, min(utilization, lowest + self.hysteresis))
        return best


readings = st.lists(st.floats(0, 1.5), max_size=30)


@given(st.floats(0, 0.5), readings)
def test_the_effective_utilization_is_what_all_readings_together_say(
    hysteresis: float, history: list[float]
) -> None:
    shed, oracle = UtilizationShed(RampSettings(hysteresis=hysteresis)), SlowBacklash(hysteresis)
    for reading in history:
        shed.observe(reading)
        assert shed.effective == pytest.approx(oracle.effective(reading))
        assert min(1.0, reading) <= shed.effective <= min(1.0, reading) + hysteresis


@given(
    st.lists(st.floats(0, 1), min_size=6, max_size=6),
    st.floats(0, 0.5),
    st.floats(0, 1),
    readings,
    st.floats(0, 1, exclude_max=True),
)
def test_no_class_is_refused_while_a_less_important_one_is_admitted(
    corners: list[float], floor: float, hard_from: float, history: list[float], draw: float
) -> None:
    low = sorted(corners)
    ramps = (None, Ramp(low[4], low[5]), Ramp(low[2], low[3]), Ramp(low[0], low[1]))
    shed = UtilizationShed(RampSettings(ramps=ramps, floor=floor, hard_from=hard_from))
    for reading in history:
        shed.observe(reading)
        admitted = [shed.admits(criticality, draw) for criticality in range(4)]
        assert admitted == sorted(admitted, reverse=True)
        refused = [shed.refusal_share(criticality) for criticality in range(4)]
        if floor == 0:  # then it holds for whatever draws
            assert all(refused[at + 1] == 1 for at in range(3) if refused[at] > 0)


def test_hysteresis_keeps_a_noisy_reading_from_flapping() -> None:
    chance = random.Random(1)
    changes = []
    for hysteresis in (0.0, 0.05):
        shed = UtilizationShed(RampSettings(hysteresis=hysteresis))
        before, changed = 0.0, 0
        for _ in range(1_000):
            shed.observe(0.6 + chance.uniform(-0.02, 0.02))
            changed += (shed.refusal_share(BULK) > 0) != (before > 0)
            before = shed.refusal_share(BULK)
        changes.append(changed)
    assert changes[0] > 400
    assert changes[1] == 1
