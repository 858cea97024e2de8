"""Admission levels: units above a level of class and user cohort are refused before a plain queue.

*DAGOR* (WeChat, 2018) moves the level once a window by the mean time in the queue. Written from
Zhou et al., "Overload Control for Scaling WeChat Microservices", with its numbers: a window of a
second or 2,000 units, overload above 20 ms of mean queueing, 5% less or 1% more, 128 cohorts of
users whose hash changes with the hour, counts anew in each window. It is the product's kernel
`priority_shed` with nothing remembered, nothing kept and no floor, before a plain queue; so, beyond
the paper, the level at the mark is admitted in part.

It is a strong baseline: the classes go one after the other, and the users of a class too. At its
best the queue is bounded, as here, to a tenth of a second of work. It cannot use a queue: what
waits is served first in, first out, whatever its class; a unit that finds it full is refused,
whatever its class; and from cold it comes down to a tenth in 45 windows. The paper also sends the
level upstream; here the callers take no hint.

*PID* (Uber, 2023) lets a controller say what share is refused, the least important first. Written
from what Uber published on Cinnamon: each tick the error is

    error = (in - out - free slots) / capacity       in: what was admitted, out: what began

and the share that is refused is Kp * error + Ki * its sum over time, with 0.1 and 1.4. The share
becomes a level by the priorities (class, and cohort of the user) of the last 1,000 units; the queue
behind it is by class, and gives up what has waited for a tenth of a second.

It is at its best here: free slots are what its known capacity leaves, where Uber's finds its limit
by itself, and the tick is a tenth of a second. With half a second and the error over what went out,
as published, it swings in these rigs: `cinnamon` is that form, as it was deployed. Neither is a
form for deep overload: among a thousand units at ten times the load a hundred are of those that are
to be kept, and the share jumps by more than they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.baselines.priority_shed import PriorityShed, cohort, level_of
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


TICK_US: Final = 100_000
DEPLOYED_TICK_US: Final = 500_000
KP: Final = 0.1
KI: Final = 1.4
SAMPLES: Final = 1_000
WAIT_US_MAX: Final = 100_000


@final
class Pid:
    """A share that is refused, before a queue by class.

    `over_out` divides the error by what began, as deployed, and not by what can be served.
    """

    def __init__(
        self,
        cohorts: Cohorts,
        served_in_a_tick: float,
        *,
        tick_us: int = TICK_US,
        over_out: bool = False,
    ) -> None:
        self._cohorts = cohorts
        self._served_in_a_tick = served_in_a_tick
        self._every_us = tick_us
        self._over_out = over_out
        self._queues: list[deque[WorkUnit]] = [deque() for _ in Criticality]
        self._samples: deque[int] = deque(maxlen=SAMPLES)
        self._level = len(Criticality) * COHORTS
        self._tick_us = tick_us
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
        self._tick_us += self._every_us
        free = max(self._served_in_a_tick - self._begun, 0.0)
        over = max(self._begun, 1) if self._over_out else self._served_in_a_tick
        error = (self._entered - self._begun - free) / over
        # The sum is held to what the share can be: it must not wind up.
        self._sum = min(max(self._sum + error * self._every_us / 1e6, 0.0), 1.0 / KI)
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


def cinnamon(rig: Rig) -> Pid:
    """Return the same as it was deployed: half a second a tick, the error over what went out."""
    served = rig.capacity_per_s * DEPLOYED_TICK_US / 1e6
    return Pid(Cohorts(rig, HOUR_US), served, tick_us=DEPLOYED_TICK_US, over_out=True)
