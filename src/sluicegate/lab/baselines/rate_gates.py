"""Rate gates: so many a second, counted by the product's own kernels, at a rate somebody tuned.

*Token bucket* is what gateways and quotas use, before a queue. At its best its rate is 98% of the
capacity with a burst of a tenth of a second, as here.

*QPS quota* counts the requests of each caller in each second. It is what a multi-tenant store
begins with, and what Mussel had at first. At its best it lets every caller send half as many as the
machine could answer single reads, as here, so that reads alone never meet it.

Neither notices when the work becomes dearer or the backend slower, or that one request
costs two hundred times another: they admit the same number then.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.policy import NOTHING_HELD, NothingHeld
from sluicegate.contracts.reasons import QUOTA_SPENT
from sluicegate.contracts.request import Request
from sluicegate.kernels.fixed_window import FixedWindow
from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.lab.baselines.queues import NoControl
from sluicegate.lab.rig import Rig
from sluicegate.lab.work_queue import WorkUnit

TOKEN_SHARE: Final = 0.98
BURST_S: Final = 0.1
SECOND_US: Final = 1_000_000


@final
class TokenRate(NoControl):
    """`per_s` a second, and `burst` at once."""

    __slots__ = ("_bucket",)

    def __init__(self, per_s: int, burst: int) -> None:
        super().__init__()
        self._bucket = TokenBucket(per_s, SECOND_US, burst)

    def arrive(self, unit: WorkUnit, now_us: int, lost: list[WorkUnit]) -> None:
        """Append the unit, or refuse it if there is no token."""
        (self.units if self._bucket.take(1, now_us).allowed else lost).append(unit)


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


def token_rate(rig: Rig) -> TokenRate:
    """Return 98% of the capacity at speed 1."""
    per_s = max(int(TOKEN_SHARE * rig.capacity_per_s), 1)
    return TokenRate(per_s, max(int(per_s * BURST_S), 1))
