"""PID shedding: a controller says what share is refused, the least important first (Uber, 2023).

Written from what Uber published on Cinnamon: each tick the error is

    error = (in - out - free slots) / capacity       in: what was admitted, out: what began

and the share that is refused is Kp * error + Ki * its sum over time, with 0.1 and 1.4. The share
becomes a level by the priorities (class, and cohort of the user) of the last 1,000 units; the queue
behind it is by class, and gives up what has waited for a tenth of a second.

It is at its best here: free slots are what its known capacity leaves, where Uber's finds its limit
by itself, and the tick is a tenth of a second. With half a second and the error over what went out,
as published, it swings in this rig: goodput 0.61 of capacity at five times the load, now 0.98. It
is not a form for deep overload: among a thousand units at ten times the load a hundred are of
those that are to be kept, and the share jumps by more than they are.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.baselines.dagor import COHORTS, HOUR_US, Cohorts
from sluicegate.lab.rig import Rig
from sluicegate.lab.work_queue import WorkUnit

TICK_US: Final = 100_000
KP: Final = 0.1
KI: Final = 1.4
SAMPLES: Final = 1_000
WAIT_US_MAX: Final = 100_000


@final
class Pid:
    """A share that is refused, before a queue by class."""

    def __init__(self, cohorts: Cohorts, served_in_a_tick: float) -> None:
        self._cohorts = cohorts
        self._served_in_a_tick = served_in_a_tick
        self._queues: list[deque[WorkUnit]] = [deque() for _ in Criticality]
        self._samples: deque[int] = deque(maxlen=SAMPLES)
        self._level = len(Criticality) * COHORTS
        self._tick_us = TICK_US
        self._entered = self._begun = 0
        self._sum = 0.0

    def arrive(self, unit: WorkUnit, now_us: int, lost: list[WorkUnit]) -> None:
        """Refuse the unit if it is above the level."""
        while now_us >= self._tick_us:
            self._tick()
        level = self._cohorts.level(unit, now_us)
        self._samples.append(level)
        if level >= self._level:
            lost.append(unit)
            return
        self._entered += 1
        self._queues[level // COHORTS].append(unit)

    def take(self, now_us: int, lost: list[WorkUnit]) -> WorkUnit | None:
        """Return the oldest of the most important class that has not waited for too long."""
        for queue in self._queues:
            while queue:
                unit = queue.popleft()
                if now_us - unit.arrived_us <= WAIT_US_MAX:
                    self._begun += 1
                    return unit
                lost.append(unit)
        return None

    def waiting(self) -> int:
        """Return how many are held."""
        return sum(map(len, self._queues))

    def _tick(self) -> None:
        self._tick_us += TICK_US
        free = max(self._served_in_a_tick - self._begun, 0.0)
        error = (self._entered - self._begun - free) / self._served_in_a_tick
        # The sum is held to what the share can be: it must not wind up.
        self._sum = min(max(self._sum + error * TICK_US / 1e6, 0.0), 1.0 / KI)
        share = min(max(KP * error + KI * self._sum, 0.0), 1.0)
        self._entered = self._begun = 0
        self._level = self._level_of(share)

    def _level_of(self, share: float) -> int:
        if share <= 0.0 or not self._samples:
            return len(Criticality) * COHORTS
        ordered = sorted(self._samples)
        return ordered[min(int((1 - share) * len(ordered)), len(ordered) - 1)]


def pid(rig: Rig) -> Pid:
    """Return a controller that knows what the rig's workers can serve in a tick."""
    return Pid(Cohorts(rig, HOUR_US), rig.capacity_per_s * TICK_US / 1e6)
