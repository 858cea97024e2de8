"""Settings of what a service calls, as `Resilience` builds it and as `plan.py` reckons with it.

[dependencies.trends]
soft = true
timeout_us = 200_000
availability = 0.995

[plan]
deadline_us = 1_000_000
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.backoff import WAIT_US_MAX
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.call_plan import ATTEMPTS_MAX, LAYERS_MAX
from sluicegate.policies.settings import check_ranges, part_of, within
from sluicegate.resilience.dependencies.dependency import SLOTS, SLOTS_MAX

DEPENDENCIES_MAX: Final = 1_000


@final
@dataclass(frozen=True, kw_only=True)
class DependencySettings:
    """One dependency.

    It may have `cap` calls under way. A soft one is given `timeout_us` and replaced by a stale
    value of at most `stale_us_max` or by the caller's default; a hard one fails what needs it.
    Where 0, `attempts` and `attempt_us` are the client's.

    For the plan alone: `count` alike ones, of which a single attempt succeeds with `availability`;
    the part `lasting` of its failures outlasts the call, so no repeat mends it. `hedge` sends a
    late attempt a second time, as a `[client.hedge]` does for all.
    """

    soft: bool = False
    cap: int = ranged(SLOTS, 1, SLOTS_MAX)
    timeout_us: int = ranged(500_000, 1, WAIT_US_MAX)
    stale_us_max: int = ranged(60_000_000, 0, WAIT_US_MAX)
    idempotent: bool = True
    attempts: int = ranged(0, 0, ATTEMPTS_MAX)
    attempt_us: int = ranged(0, 0, WAIT_US_MAX)
    count: int = ranged(1, 1, DEPENDENCIES_MAX)
    availability: float = 0.999
    lasting: float = 0.5
    hedge: bool = False

    def __post_init__(self) -> None:
        check_ranges("dependency", self)
        part_of("dependency.availability", self.availability, 0.0, 1.0)
        part_of("dependency.lasting", self.lasting, 0.0, 1.0)


@final
@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """What stands around the service.

    `deadline_us` is how long its callers wait, 0 if nobody knows. `layers` are the attempts of each
    other layer that repeats the same work, above or below. `together`: the dependencies are fetched
    at the same time, not one after another.
    """

    deadline_us: int = ranged(0, 0, WAIT_US_MAX)
    layers: tuple[int, ...] = ()
    together: bool = True

    def __post_init__(self) -> None:
        check_ranges("plan", self)
        if len(self.layers) >= LAYERS_MAX:
            raise BadValue("plan.layers", self.layers, f"give at most {LAYERS_MAX - 1} of them")
        for attempts in self.layers:
            if type(attempts) is not int:
                raise BadValue("plan.layers", attempts, "give whole numbers")
            within("plan.layers", attempts, 1, ATTEMPTS_MAX)
