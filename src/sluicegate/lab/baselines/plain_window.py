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
TIMES_KEPT: Final = 1_000
SLOW_US: Final = 500_000


@final
class PlainWindow:
    """Refuses a caller above its limit, and everybody while the p95 is bad."""

    __slots__ = ("_came", "_limit", "_times")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._came: dict[str, list[int]] = {}
        self._times: deque[int] = deque(maxlen=TIMES_KEPT)

    def admit(self, request: Request, now_us: int) -> bool:
        """Whether it may come in."""
        came = self._came.get(request.caller, [])
        came = [at_us for at_us in came if now_us - at_us < SECOND_US]
        self._came[request.caller] = came
        if len(came) >= self._limit or self._p95_us() > SLOW_US:
            return False
        came.append(now_us)
        return True

    def ended(self, took_us: int) -> None:
        """A request has ended."""
        self._times.append(took_us)

    def _p95_us(self) -> int:
        if not self._times:
            return 0
        return sorted(self._times)[len(self._times) * 95 // 100]
