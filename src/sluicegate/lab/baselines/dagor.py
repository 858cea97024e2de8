"""DAGOR: admission by level, moved once a window by the mean time in the queue (WeChat, 2018).

Written from Zhou et al., "Overload Control for Scaling WeChat Microservices", with its numbers: a
window of a second or 2,000 units, overload above 20 ms of mean queueing, 5% less or 1% more, 128
cohorts of users whose hash changes with the hour, counts anew in each window. It is the product's
kernel `priority_shed` with nothing remembered, nothing kept and no floor, before a plain queue; so,
beyond the paper, the level at the mark is admitted in part.

It is a strong baseline: the classes go one after the other, and the users of a class too. At its
best the queue is bounded, as here, to a tenth of a second of work. It cannot use a queue: what
waits is served first in, first out, whatever its class; a unit that finds it full is refused,
whatever its class; and from cold it comes down to a tenth in 45 windows. The paper also sends the
level upstream; here the callers take no hint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.kernels.priority_shed import PriorityShed, cohort, level_of
from sluicegate.lab.baselines.queues import NoControl
from sluicegate.lab.rig import Rig
from sluicegate.lab.work_queue import WorkUnit

WINDOW_US: Final = 1_000_000
WINDOW_UNITS: Final = 2_000
OVERLOADED_US: Final = 20_000
HOUR_US: Final = 3_600_000_000
COHORTS: Final = 128
QUEUE_US_MAX: Final = 100_000


@final
class Cohorts:
    """The level of each caller of a kind, shuffled each hour."""

    __slots__ = ("_hour", "_hour_us", "_kinds", "_levels")

    def __init__(self, rig: Rig, hour_us: int) -> None:
        self._kinds = [(kind.name, int(kind.criticality)) for kind in rig.kinds]
        self._hour_us = hour_us
        self._hour = -1
        self._levels: dict[tuple[int, int], int] = {}

    def level(self, unit: WorkUnit, now_us: int) -> int:
        """Return a level: class by class, and within a class cohort by cohort."""
        hour = now_us // self._hour_us
        if hour != self._hour:
            self._hour = hour
            self._levels.clear()
        key = (unit.kind, unit.caller)
        level = self._levels.get(key)
        if level is None:
            name, criticality = self._kinds[unit.kind]
            place = cohort(f"{name}-{unit.caller}", hour, COHORTS)
            level = self._levels[key] = level_of(criticality, place, COHORTS)
        return level


@final
class Dagor(NoControl):
    """A level before a queue."""

    def __init__(self, cohorts: Cohorts, length_max: int) -> None:
        super().__init__()
        self._cohorts = cohorts
        self._length_max = length_max
        self._levels = PriorityShed(classes=len(Criticality), cohorts=COHORTS, keep_permille=0)
        self._end_us = WINDOW_US
        self._arrived = self._count = self._sum_us = 0

    def arrive(self, unit: WorkUnit, now_us: int, lost: list[WorkUnit]) -> None:
        """Refuse the unit if it is above the level or the queue is full."""
        if now_us >= self._end_us or self._arrived >= WINDOW_UNITS:
            self._end(now_us)
        self._arrived += 1
        passes = self._levels.admit(self._cohorts.level(unit, now_us), 0.0)
        if passes and len(self.units) < self._length_max:
            self.units.append(unit)
        else:
            lost.append(unit)

    def take(self, now_us: int, lost: list[WorkUnit]) -> WorkUnit | None:
        """Return the oldest, and note how long it waited."""
        if not self.units:
            return None
        unit = self.units.popleft()
        self._count += 1
        self._sum_us += now_us - unit.arrived_us
        return unit

    def _end(self, now_us: int) -> None:
        self._levels.tick(self._sum_us > OVERLOADED_US * self._count)
        self._arrived = self._count = self._sum_us = 0
        self._end_us = now_us + WINDOW_US


def dagor_each(hour_us: int) -> Callable[[Rig], Dagor]:
    """Return a maker of lines whose cohorts change as often."""

    def make(rig: Rig) -> Dagor:
        length_max = max(round(rig.capacity_per_s * QUEUE_US_MAX / 1e6), 1)
        return Dagor(Cohorts(rig, hour_us), length_max)

    return make


dagor: Final = dagor_each(HOUR_US)
