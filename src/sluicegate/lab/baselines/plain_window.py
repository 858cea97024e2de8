"""Plain window: the control that is written in an afternoon, by hand, without a kernel.

For each caller a list of the instants of the last second, and for all the last thousand times,
sorted whenever their p95 is wanted. It is right, and short. It is not bounded in callers, and what
it costs grows with the rate: that of a caller for the limit, and of the window for the sort.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from sluicegate.contracts.request import Request

SECOND_US: Final = 1_000_000
TIMES_MAX: Final = 1_000
SLOW_US: Final = 500_000


@final
class PlainWindow:
    """Refuses a caller above its limit, and everybody while the p95 is bad."""

    __slots__ = ("_instants", "_limit", "_times")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._instants: dict[str, list[int]] = {}
        self._times: deque[int] = deque(maxlen=TIMES_MAX)

    def admit(self, request: Request, now_us: int) -> bool:
        """Return whether the request is admitted."""
        instants = self._instants.get(request.caller, [])
        instants = [at_us for at_us in instants if now_us - at_us < SECOND_US]
        self._instants[request.caller] = instants
        if len(instants) >= self._limit or self._p95_us() > SLOW_US:
            return False
        instants.append(now_us)
        return True

    def record(self, took_us: int) -> None:
        """Note how long a request took."""
        self._times.append(took_us)

    def _p95_us(self) -> int:
        if not self._times:
            return 0
        return sorted(self._times)[len(self._times) * 95 // 100]
