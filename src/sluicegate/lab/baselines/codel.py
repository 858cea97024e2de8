"""CoDel as folly has it for requests.

It serves first in, first out, and loses what waited too long in an overloaded interval.
It is the product's kernel `codel.Codel` with folly's own target and interval, and a strong
baseline: nothing collapses under it. It knows neither deadlines nor classes, keeps units whose
callers have left until they come to the front, and has no bound.
"""

from __future__ import annotations

from typing import final

from sluicegate.kernels.codel import Codel
from sluicegate.lab.baselines.queues import NoControl
from sluicegate.lab.rig import Rig
from sluicegate.lab.work_queue import WorkUnit


@final
class FollyCodel(NoControl):
    """A queue that sheds at its front."""

    __slots__ = ("_codel",)

    def __init__(self) -> None:
        super().__init__()
        self._codel = Codel()

    def take(self, now_us: int, lost: list[WorkUnit]) -> WorkUnit | None:
        """Return the oldest that CoDel lets pass."""
        while self.units:
            unit = self.units.popleft()
            if not self._codel.drop(now_us - unit.arrived_us, now_us):
                return unit
            lost.append(unit)
        return None


def folly_codel(rig: Rig) -> FollyCodel:
    """Return a queue with folly's defaults."""
    return FollyCodel()
