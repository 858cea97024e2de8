"""Account measures: figures and curves of what an account was admitted, in units of its limit."""

from __future__ import annotations

from math import inf
from typing import Final

from sluicegate.lab.rigs.accounts import BUCKET_US, PER_S, SECOND_US, AccountRig, AccountRun
from sluicegate.lab.scenario import Curves, Figures

TOLERANCE: Final = 0.05
PARTED_MAX: Final = 1.5  # limits that a divided cluster may admit in all
STEADY_AFTER_US: Final = 5 * SECOND_US
STEADY_WINDOW_S: Final = 5


def rates(
    rig: AccountRig, run: AccountRun, begin_us: int, end_us: int, window_s: int
) -> list[float]:
    """What was admitted in every span of `window_s` between the two, in limits."""
    first, last = -(-begin_us // BUCKET_US), end_us // BUCKET_US
    width = window_s * PER_S
    counts = run.admitted
    return [
        sum(counts[at : at + width]) / (rig.per_s * window_s)
        for at in range(first, last - width + 1)
    ]


def settled_s(
    rig: AccountRig, run: AccountRun, begin_us: int, end_us: int, low: float, high: float
) -> float:
    """From `begin_us` until every second admits from `low` to `high` limits."""
    seen = rates(rig, run, begin_us, end_us, 1)
    off = [at for at, rate in enumerate(seen) if not low <= rate <= high]
    if not off:
        return 0.0
    return (off[-1] + 1) / PER_S if off[-1] + 1 < len(seen) else inf


def overshoot_s(
    rig: AccountRig, run: AccountRun, begin_us: int, end_us: int, high: float = 1.0
) -> float:
    """The most admitted above `high` limits since then, beyond the burst, in limits times s."""
    most = above = 0.0
    for count in run.admitted[begin_us // BUCKET_US : end_us // BUCKET_US]:
        above += count / rig.per_s - high / PER_S
        most = max(most, above)
    return max(most - 1.0, 0.0)


def measure(rig: AccountRig, run: AccountRun) -> Figures:
    """Every figure that the rig's course has an instant for."""
    found = {"refused": float(run.refused)}
    low, high = 1 - TOLERANCE, 1 + TOLERANCE
    if rig.shift_us:
        step_us, shift_us, drop_us = rig.step_us, rig.shift_us, rig.drop_us
        steady = rates(rig, run, step_us + STEADY_AFTER_US, shift_us, STEADY_WINDOW_S)
        found |= {
            "settled_s": settled_s(rig, run, step_us, shift_us, low, high),
            "overshoot_s": overshoot_s(rig, run, step_us, shift_us),
            "steady_min": min(steady),
            "steady_max": max(steady),
            "shifted_s": settled_s(rig, run, shift_us, drop_us, low, high),
            "recovery_s": max(run.refused_last_us - drop_us, 0) / SECOND_US,
        }
    if rig.parted_us is not None:
        begin_us, end_us = rig.parted_us[0], rig.span_us
        if rig.step_us < begin_us:
            found["parted_max"] = max(rates(rig, run, begin_us, end_us, 1))
        else:
            surge_us = rig.step_us
            found["surge_s"] = settled_s(rig, run, surge_us, end_us, 0.0, PARTED_MAX)
            found["surge_overshoot_s"] = overshoot_s(rig, run, surge_us, end_us, PARTED_MAX)
    return found


def curves(rig: AccountRig, run: AccountRun) -> Curves:
    """Attempted and admitted over time, in limits; about 200 points."""
    step = max(len(run.admitted) // 200, 1)

    def line(counts: list[int]) -> list[tuple[float, float]]:
        return [
            (at / PER_S, sum(counts[at : at + step]) * PER_S / step / rig.per_s)
            for at in range(0, len(counts) - step, step)
        ]

    return {"attempted": line(run.attempted), "admitted": line(run.admitted)}
