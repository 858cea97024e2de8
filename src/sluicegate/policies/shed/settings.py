"""Shed settings: which form, how often it moves and by how much; and what the stage counts.

Those of all forms stand in one value, so that a form is changed by its name alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.priority_shed import COHORTS_MAX, PERMILLE
from sluicegate.kernels.utilization_shed import RampSettings
from sluicegate.policies.settings import check_ranges, one_of
from sluicegate.policies.shed.form import CLASSES

FORMS: Final = ("levels", "utilization")
SPREADS: Final = ("caller", "key")
_SPAN_US_MAX: Final = 1 << 53


@final
@dataclass(frozen=True, kw_only=True)
class ShedSettings(RampSettings):
    """Which form, how often it moves, and by how much."""

    form: str = "levels"
    window_us: int = ranged(200_000, 1, _SPAN_US_MAX)
    retry_after_us_max: int = ranged(30_000_000, 1, _SPAN_US_MAX)
    # levels
    spread: str = "caller"
    cohorts: int = ranged(128, 1, COHORTS_MAX)
    cut_permille: int = ranged(30, 1, PERMILLE)
    cuts_max: int = ranged(5, 1, 100)
    raise_permille: int = ranged(10, 1, PERMILLE)
    keep_permille: int = ranged(500, 0, PERMILLE - 1)
    levels_kept: int = 8
    rotate_us: int = ranged(3_600_000_000, 1, _SPAN_US_MAX)
    callers_max: int = ranged(65_536, 1, 10_000_000)
    # utilization
    retry_after_us: int = ranged(1_000_000, 0, _SPAN_US_MAX)

    def __post_init__(self) -> None:
        one_of("shed.form", self.form, FORMS)
        one_of("shed.spread", self.spread, SPREADS)
        check_ranges("shed", self)
        if not 0 <= self.levels_kept <= CLASSES * self.cohorts:
            raise BadValue(
                "shed.levels_kept",
                self.levels_kept,
                f"give a number from 0 to all {CLASSES * self.cohorts} levels",
            )
        if len(self.ramps) != CLASSES:
            raise BadValue("shed.ramps", len(self.ramps), f"give one for each of {CLASSES} classes")
        try:
            super().__post_init__()
        except ValueError as wrong:
            raise BadValue("shed.ramps", self.ramps, str(wrong)) from None


class ShedStats(NamedTuple):
    """What passed and what did not, by class, and where the form stands now."""

    form: str
    admitted: tuple[int, ...]
    refused: tuple[int, ...]
    level: int  # levels: what is below is admitted
    levels: int
    utilization: float  # with its backlash
    windows: int
