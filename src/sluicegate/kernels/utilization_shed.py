"""Utilization shed: as the machine fills up, the less important classes are refused, one by one.

Source: Netflix, "Enhancing Netflix Reliability with Service-Level Prioritized Load Shedding"
(2024): above 60% of the CPU what is not critical is shed, in rising proportion; critical work only
above 80%. Each class has a *ramp*, from the utilization at which the first of it is refused to that
at which all of it is:

    refused share of a class = (utilization - begin) / (full - begin), between 0 and 1

    default        BULK 0.60 to 0.70     BEST_EFFORT 0.70 to 0.80     DEGRADED 0.80 to 0.95
                   CRITICAL never; a setting may give it a ramp, from 0.80 at the earliest

The ramps may touch and not overlap: one class is refused wholly before the first of the next is. So
no unit is refused while a less important one is admitted, whatever the draws. Or classes that stand
next to each other have the same ramp, and are refused alike (`TOGETHER_RAMPS`).

What was changed. Utilization is noisy, and refusing brings it down, so the shedder would flap. Its
*effective* utilization rises at once and falls only by as much as the measured one is more than
`hysteresis` below it (a backlash, as in a worn gear). And `floor` lets that share of every class
pass while utilization is below `hard_from`, so that no class starves unseen; there, and with the
same draw, still no unit is refused where a less important one is admitted.

It needs no feedback and no traffic to learn from, acts on the first reading, and is as good as
what it is told: a service that waits for others is overloaded long before its CPU is.

Cost: a comparison a unit, a few operations a class for each reading. Bounds: 1 to `CLASSES_MAX`
classes; ramps within 0 to 1. A reading above 1 counts as 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final, NamedTuple, final

from sluicegate.kernels.bounds import check_ranges, ranged

CLASSES_MAX: Final = 64
CRITICAL_BEGIN_MIN: Final = 0.8


class Ramp(NamedTuple):
    """The utilization at which a class begins to be refused, and at which all of it is."""

    begin: float
    full: float


DEFAULT_RAMPS: Final[tuple[Ramp | None, ...]] = (
    None,  # CRITICAL
    Ramp(0.80, 0.95),  # DEGRADED
    Ramp(0.70, 0.80),  # BEST_EFFORT
    Ramp(0.60, 0.70),  # BULK
)


# BULK and BEST_EFFORT alike, and nobody else, as in the congestion mode of a service that keeps its
# room for what is critical.
TOGETHER_RAMPS: Final[tuple[Ramp | None, ...]] = (None, None, Ramp(0.60, 0.80), Ramp(0.60, 0.80))


def follow(effective: float, utilization: float, hysteresis: float) -> float:
    """The effective utilization after a reading: up at once, down by what passes the backlash."""
    if utilization > effective:
        return utilization
    highest = utilization + hysteresis
    return highest if effective > highest else effective


def refusal_share(ramp: Ramp | None, utilization: float) -> float:
    """The share of a class with this ramp that is refused at this utilization."""
    if ramp is None or utilization <= ramp.begin:
        return 0.0
    if utilization >= ramp.full:
        return 1.0
    return (utilization - ramp.begin) / (ramp.full - ramp.begin)


@dataclass(frozen=True, kw_only=True)
class RampSettings:
    """Ramps by criticality, the most important first, and what softens them.

    Below `hard_from` a share of `floor` of each class is admitted all the same.
    """

    ramps: tuple[Ramp | None, ...] = DEFAULT_RAMPS
    hysteresis: float = ranged(0.05, 0.0, 0.5)
    floor: float = ranged(0.01, 0.0, 0.5)
    hard_from: float = ranged(0.9, 0.0, 1.0)

    def __post_init__(self) -> None:
        check_ranges(self)
        _check_ramps(self.ramps)


@final
class UtilizationShed:
    """Ramps by criticality, the most important first, and the share of each that is refused now."""

    __slots__ = ("_floor", "_hard_from", "_hysteresis", "_ramps", "_refused", "effective")

    def __init__(self, settings: RampSettings | None = None) -> None:
        settings = RampSettings() if settings is None else settings
        self._ramps = list(settings.ramps)
        self._hysteresis = settings.hysteresis
        self._floor = settings.floor
        self._hard_from = settings.hard_from
        self._refused = [0.0] * len(self._ramps)
        self.effective = 0.0

    def observe(self, utilization: float) -> None:
        """Take in a reading of the utilization, 0 idle and 1 full."""
        if not (isfinite(utilization) and utilization >= 0.0):
            raise ValueError(f"utilization must be finite and not negative, not {utilization}")
        effective = follow(self.effective, min(1.0, utilization), self._hysteresis)
        most = 1.0 if effective >= self._hard_from else 1.0 - self._floor
        for criticality, ramp in enumerate(self._ramps):
            self._refused[criticality] = min(most, refusal_share(ramp, effective))
        self.effective = effective

    def refusal_share(self, criticality: int) -> float:
        """The share of this class that is refused now."""
        return self._refused[criticality]

    def admits(self, criticality: int, draw: float) -> bool:
        """Whether a unit of this class is admitted."""
        if not 0.0 <= draw < 1.0:
            raise ValueError(f"draw must be from 0 to below 1, not {draw}")
        return draw >= self._refused[criticality]


def _check_ramps(ramps: Sequence[Ramp | None]) -> None:
    if not 1 <= len(ramps) <= CLASSES_MAX:
        raise ValueError(f"ramps must be from 1 to {CLASSES_MAX} of them, not {len(ramps)}")
    ceiling = 1.0  # Where the next more important class begins to be refused.
    above: Ramp | None = None
    for criticality, ramp in enumerate(ramps):
        if ramp is None:
            if criticality > 0 and ramps[criticality - 1] is not None:
                raise ValueError(
                    f"ramps[{criticality}] must be given: a more important class has one"
                )
            continue
        begin, full = ramp
        if criticality == 0 and not begin >= CRITICAL_BEGIN_MIN:
            raise ValueError(f"ramps[0] must begin at {CRITICAL_BEGIN_MIN} or later, not {begin}")
        if ramp == above:
            continue
        if not 0.0 <= begin <= full <= ceiling:
            raise ValueError(
                f"ramps[{criticality}] must rise within 0 to {ceiling}, where the next more "
                f"important class begins, not from {begin} to {full}"
            )
        ceiling = begin
        above = ramp
