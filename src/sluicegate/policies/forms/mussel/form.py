"""Mussel form: classes, priced request units, and a CoDel pool, as one chain of stages.

    criticality      a caller claims at most its own class
    request units    charged before the work, at the price of the class and of the caller
    pool             slots, first in, first out; CoDel rejects requests that leave the queue late

Order of the stages: a rejected quota must not wait for a slot, and a price needs the class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from sluicegate.contracts.request import Request
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.codel import Codel, CodelSettings
from sluicegate.policies.criticality import CriticalityClamp
from sluicegate.policies.forms.mussel.prices import MusselPrices
from sluicegate.policies.forms.pool import QueuePool
from sluicegate.policies.quota.request_units import RequestUnits
from sluicegate.policies.settings import check_ranges
from sluicegate.policies.stack import StackObserver, StackStage, at_once, waits

POOL: Final = "queue"  # as operators know the stage
_WAIT_US_MAX: Final = 10_000_000  # CoDel acts as slots free up; this bounds the wait if none does


@final
@dataclass(frozen=True, kw_only=True)
class MusselSettings:
    """The pool: its slots, its queue, and CoDel's target and interval."""

    slots: int = ranged(64, 1, 1 << 20)
    target_us: int = ranged(5_000, 1, 3_600_000_000)
    interval_us: int = ranged(100_000, 2, 3_600_000_000)
    length_max: int = ranged(10_000, 1, 1 << 20)
    bytes_max: int = ranged(64 << 20, 4_096, 1 << 40)

    def __post_init__(self) -> None:
        check_ranges("mussel", self)


@final
class MusselChain:
    """The parts that others need to know, and the stages that a `Stack` takes."""

    def __init__(
        self,
        settings: MusselSettings,
        clamp: CriticalityClamp,
        size_bytes: Callable[[Request], int] | None = None,
    ) -> None:
        self.settings = settings
        self.clamp = clamp
        self.prices = MusselPrices()
        codel = Codel(CodelSettings(target_us=settings.target_us, interval_us=settings.interval_us))
        self.pool = QueuePool(
            name=POOL,
            slots=settings.slots,
            timeout_us=_wait_us_max,
            drop=codel.drop,
            length_max=settings.length_max,
            bytes_max=settings.bytes_max,
            size_bytes=size_bytes,
        )

    def stages(self, units: RequestUnits) -> list[StackStage]:
        """The stages, in their order; `units` charge at the prices of this chain."""
        return [
            at_once("criticality", self.clamp),
            at_once("request units", units),
            waits(POOL, self.pool),
        ]

    def observers(self) -> list[StackObserver]:
        """The observers that a `Stack` takes."""
        return [self.prices]


def _wait_us_max(queued: int, now_us: int) -> int:
    return _WAIT_US_MAX
