"""Settings of a drill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges, one_of, part_of

OVERLOADS: Final = (1.0, 2.0, 5.0)
OVERLOADS_MAX: Final = 10
TIMES_MAX: Final = 100.0
OVERLOAD: Final = "overload"
DEPENDENCY: Final = "dependency"
BOTH: Final = "both"
SLICE_US: Final = 500_000  # of a recovery
_SECOND_US: Final = 1_000_000


@final
@dataclass(frozen=True, kw_only=True)
class DrillSettings:
    """Durations, rates, and the bounds of a stage that holds."""

    span_us: int = ranged(4 * _SECOND_US, 200_000, 60 * _SECOND_US)
    patience_us: int = ranged(500_000, 10_000, 30 * _SECOND_US)
    start_us_max: int = ranged(15 * _SECOND_US, _SECOND_US, 120 * _SECOND_US)
    recover_us_max: int = ranged(2 * _SECOND_US, SLICE_US, 60 * _SECOND_US)
    health_us_max: int = ranged(100_000, 1_000, 30 * _SECOND_US)
    rate_max: int = ranged(3_000, 1, 100_000)
    goodput_min: float = 0.7  # of its capacity
    hung_max: float = 0.05  # of the requests while a dependency fails
    wrong_max: float = 0.05  # of the requests: wrong answers, and broken connections
    beside_min: float = 0.99  # of paths that need no dependency
    health: str = "/healthz"
    beside: str = ""
    expect: str = ""  # text of a good answer
    times: tuple[float, ...] = OVERLOADS
    parts: str = BOTH

    def __post_init__(self) -> None:
        check_ranges("drill", self)
        one_of("drill.parts", self.parts, (BOTH, OVERLOAD, DEPENDENCY))
        if len(self.times) > OVERLOADS_MAX:
            raise BadValue("drill.times", self.times, f"give at most {OVERLOADS_MAX}")
        for times in self.times:
            part_of("drill.times", times, 0.1, TIMES_MAX)
        part_of("drill.goodput_min", self.goodput_min, 0.0, 1.0)
