"""Token pool: a token bucket with a tuned rate, and as many at work as there are workers behind it.

It is a service with a quota: whoever has a token gets a task, and waits for a worker, first in,
first out, for as long as its caller does. It is the full mode's form of `token_rate`, and better in
one thing: whoever has been given up leaves the line. The rate is that of `token_rate`, 98% of what
the workers could do when it was tuned. It is not told when the work becomes dearer, and bounds
neither tasks nor memory then.
"""

from __future__ import annotations

import asyncio
from typing import final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import DEADLINE, QUOTA_SPENT
from sluicegate.contracts.request import Request
from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.kernels.verdict import NEVER
from sluicegate.lab.baselines.fifo_pool import FifoPermit, FifoPool
from sluicegate.lab.baselines.token_rate import BURST_S, SHARE
from sluicegate.lab.rig import Rig
from sluicegate.lab.world import World


@final
class TokenPool:
    """`per_s` a second and `burst` at once, and `places` behind."""

    __slots__ = ("_bucket", "_pool")

    def __init__(self, per_s: int, burst: int, places: int) -> None:
        self._bucket = TokenBucket(per_s, 1_000_000, burst)
        self._pool = FifoPool(places)

    async def admit(self, request: Request, clock: Clock) -> FifoPermit | Decision:
        """A token, and then a place, if there is one before the caller gives up."""
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


def token_pool(rig: Rig, world: World) -> TokenPool:
    """98% of the capacity at speed 1."""
    per_s = max(int(SHARE * rig.capacity_per_s), 1)
    return TokenPool(per_s, max(int(per_s * BURST_S), 1), rig.workers)
