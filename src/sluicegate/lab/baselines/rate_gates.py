"""Rate gates: so many a second, counted by the product's own kernels, at a rate somebody tuned.

*Static QPS* counts in fixed windows before a queue. It is the limit that is set once, after a load
test. At its best it is nine tenths of the capacity, as here: above that the windows' edges let the
queue stand.

*Token bucket* is what gateways and quotas use, before a queue. At its best its rate is 98% of the
capacity with a burst of a tenth of a second, as here.

*Token pool* is the token bucket in the full mode: whoever has a token gets a task and waits for a
worker, first in, first out, for as long as its caller does. It is better in one thing: a request
that its caller has given up leaves the line.

*QPS quota* counts the requests of each caller in each second. It is what a multi-tenant store
begins with, and what Mussel had at first. At its best it lets every caller send half as many as the
machine could answer single reads, as here, so that reads alone never meet it.

*Plain window* is the control that is written in an afternoon, by hand, without a kernel: for each
caller a list of the instants of the last second, and for all the last thousand times, sorted
whenever their p95 is wanted. It is right, and short. It is not bounded in callers, and what it
costs grows with the rate: that of a caller for the limit, and of the window for the sort.

None of the others notices when the work becomes dearer or the backend slower, or that one request
costs two hundred times another: they admit the same number then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.policy import NOTHING_HELD, NothingHeld
from sluicegate.contracts.reasons import DEADLINE, QUOTA_SPENT
from sluicegate.contracts.request import Request
from sluicegate.kernels.fixed_window import FixedWindow
from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.kernels.verdict import NEVER
from sluicegate.lab.baselines.queues import FifoPermit, FifoPool, NoControl
from sluicegate.lab.rig import Rig
from sluicegate.lab.work_queue import WorkUnit
from sluicegate.lab.world import World

STATIC_SHARE: Final = 0.9
TOKEN_SHARE: Final = 0.98
BURST_S: Final = 0.1
SECOND_US: Final = 1_000_000


@final
class StaticRate(NoControl):
    """At most `per_s` in each second of the clock."""

    __slots__ = ("_window",)

    def __init__(self, per_s: int) -> None:
        super().__init__()
        self._window = FixedWindow(per_s, SECOND_US)

    def arrive(self, unit: WorkUnit, now_us: int, lost: list[WorkUnit]) -> None:
        """Append the unit, or refuse it if the window is spent."""
        (self.units if self._window.take(1, now_us).allowed else lost).append(unit)


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
class TokenPool:
    """`per_s` a second and `burst` at once, and `places` behind."""

    __slots__ = ("_bucket", "_pool")

    def __init__(self, per_s: int, burst: int, places: int) -> None:
        self._bucket = TokenBucket(per_s, SECOND_US, burst)
        self._pool = FifoPool(places)

    async def admit(self, request: Request, clock: Clock) -> FifoPermit | Decision:
        """Take a token, and then a place, if there is one before the deadline."""
        now_us = clock.now_us()
        verdict = self._bucket.take(1, now_us)
        if not verdict.allowed:
            retry_us, reset_us = verdict.retry_after_us, verdict.reset_after_us
            return Decision(False, 0, retry_us, reset_us, QUOTA_SPENT, "token_pool")
        left_us = request.remaining_us(now_us)
        try:
            async with asyncio.timeout(None if left_us is None else left_us / 1e6):
                return await self._pool.admit(request, clock)
        except TimeoutError:
            return Decision(False, 0, NEVER, 0, DEADLINE, "token_pool")


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


def static_rate(rig: Rig) -> StaticRate:
    """Return nine tenths of the capacity at speed 1."""
    return StaticRate(max(int(STATIC_SHARE * rig.capacity_per_s), 1))


def token_rate(rig: Rig) -> TokenRate:
    """Return 98% of the capacity at speed 1."""
    return TokenRate(*_tuned(rig))


def token_pool(rig: Rig, world: World) -> TokenPool:
    """Return 98% of the capacity at speed 1, before the rig's workers."""
    return TokenPool(*_tuned(rig), rig.workers)


def _tuned(rig: Rig) -> tuple[int, int]:
    """Return a rate a second and a burst."""
    per_s = max(int(TOKEN_SHARE * rig.capacity_per_s), 1)
    return per_s, max(int(per_s * BURST_S), 1)


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
