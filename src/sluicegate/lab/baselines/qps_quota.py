"""QPS quota: counts the requests of each caller in each second.

It is what a multi-tenant store begins with, and what Mussel had at first. At its best it lets every
caller send half as many as the machine could answer single reads, as here, so that reads alone
never meet it. It does not notice that one request costs two hundred times another.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.policy import NOTHING_HELD, NothingHeld
from sluicegate.contracts.reasons import QUOTA_SPENT
from sluicegate.contracts.request import Request
from sluicegate.kernels.fixed_window import FixedWindow

SECOND_US: Final = 1_000_000


@final
class QpsQuota:
    """At most `per_s` requests of each caller in each second of the clock."""

    __slots__ = ("_per_s", "_windows")

    def __init__(self, per_s: int) -> None:
        if per_s < 1:
            raise BadValue("per_s", per_s, "give at least 1")
        self._per_s = per_s
        self._windows: dict[str, FixedWindow] = {}

    def admit(self, request: Request, now_us: int) -> NothingHeld | Decision:
        """Count the request, or refuse it until the next second."""
        window = self._windows.get(request.caller)
        if window is None:
            window = self._windows[request.caller] = FixedWindow(self._per_s, SECOND_US)
        verdict = window.take(1, now_us)
        if verdict.allowed:
            return NOTHING_HELD
        return Decision(
            False, 0, verdict.retry_after_us, verdict.reset_after_us, QUOTA_SPENT, "qps_quota"
        )
