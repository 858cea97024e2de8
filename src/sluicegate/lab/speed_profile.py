"""The speed of a backend over time: brown-outs, pauses and recoveries as one value.

Speed 1 is as planned, 0.3 a backend that lost 70% of what it can do, 0 a pause (a collector, a
frozen disk). Work that is under way at a change goes on at the new speed.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import ceil
from typing import final

from sluicegate.contracts.errors import BadValue


@final
@dataclass(frozen=True, slots=True)
class SpeedProfile:
    """Changes of speed: from when on, and how fast. Before the first it is 1."""

    changes: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        begins = [begin_us for begin_us, _ in self.changes]
        if begins != sorted(set(begins)) or any(begin_us < 0 for begin_us in begins):
            raise BadValue("changes", self.changes, "give instants from 0 in ascending order")
        if any(not 0 <= speed <= 1000 for _, speed in self.changes):
            raise BadValue("changes", self.changes, "give speeds from 0 to 1000")
        if self.changes and self.changes[-1][1] == 0:
            raise BadValue("changes", self.changes, "end with a speed above 0; work must end")

    def speed(self, at_us: int) -> float:
        """How fast it is at that instant."""
        at = bisect_right(self.changes, at_us, key=lambda change: change[0]) - 1
        return 1.0 if at < 0 else self.changes[at][1]

    def end_us(self, begin_us: int, work_us: int) -> int:
        """When work that takes `work_us` at speed 1, begun at `begin_us`, is done."""
        if not self.changes or work_us <= 0:
            return begin_us + max(work_us, 0)
        left = float(work_us)
        at_us = begin_us
        at = bisect_right(self.changes, begin_us, key=lambda change: change[0])
        speed = 1.0 if at == 0 else self.changes[at - 1][1]
        for change_us, next_speed in self.changes[at:]:
            done = (change_us - at_us) * speed
            if done >= left:
                break
            left -= done
            at_us, speed = change_us, next_speed
        return at_us + ceil(left / speed)

    def work_us(self, begin_us: int, end_us: int) -> float:
        """How much one worker can do between the two, in microseconds at speed 1."""
        done = 0.0
        at_us, speed = begin_us, self.speed(begin_us)
        for change_us, next_speed in self.changes:
            if begin_us < change_us < end_us:
                done += (change_us - at_us) * speed
                at_us, speed = change_us, next_speed
        return done + (end_us - at_us) * speed


STEADY = SpeedProfile()
