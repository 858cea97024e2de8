"""WaitLevel: how overloaded a service is, by how long its requests wait.

    calm        no request waits for long
    stressed    in the last second a request waited longer than its work takes
    hard        and a CRITICAL one did

Cost: a comparison for each request that has waited. Bounds: two numbers.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.policies.admission.degradation import OverloadLevel

HOLD_US: Final = 1_000_000  # below it a switch would flap between two requests


@final
class WaitLevel:
    """The level, from the waits that are recorded."""

    __slots__ = ("_hard_until_us", "_stressed_until_us")

    def __init__(self) -> None:
        self._stressed_until_us = self._hard_until_us = 0

    def clear(self) -> None:
        """Be calm."""
        self._stressed_until_us = self._hard_until_us = 0

    def record(self, criticality: Criticality, waited_us: int, took_us: int, now_us: int) -> None:
        """A request has waited for work that takes `took_us` (0: not known)."""
        if waited_us <= took_us or not took_us:
            return
        until_us = now_us + max(HOLD_US, took_us)
        self._stressed_until_us = max(self._stressed_until_us, until_us)
        if criticality is Criticality.CRITICAL:
            self._hard_until_us = max(self._hard_until_us, until_us)

    def read(self, now_us: int) -> OverloadLevel:
        """Return the level now."""
        if now_us < self._hard_until_us:
            return OverloadLevel.HARD
        return OverloadLevel.STRESSED if now_us < self._stressed_until_us else OverloadLevel.CALM
