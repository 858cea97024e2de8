"""The interface of all forms of shedding: whether a unit may pass, and their state.

The stage asks; a form never counts what it refused, nor looks at a clock of its own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.request import Request
from sluicegate.kernels.utilization_shed import RampSettings
from sluicegate.policies.stress import StressState

CLASSES: Final = len(Criticality)
PASS: Final = -1


class ShedStanding(NamedTuple):
    """Where a form stands now, as the statistics show it."""

    level: int
    levels: int
    utilization: float


class ShedForm:
    """The base of all forms; by itself it admits every request."""

    __slots__ = ("_levels_max",)

    def __init__(self, levels_max: int) -> None:
        self._levels_max = levels_max

    def judge(self, request: Request, now_us: int) -> int:
        """`PASS`, or after how long this unit may come again."""
        return PASS

    def end_window(self, picture: StressState, quiet: int) -> None:
        """Move by the stress of a window, after so many in which nothing came."""

    def replace_ramps(self, ramps: RampSettings) -> None:
        """Go by these from now on, in a form that has ramps."""

    def standing(self) -> ShedStanding:
        """Where it stands."""
        return ShedStanding(self._levels_max, self._levels_max, 0.0)
