"""Throttling: CL.THROTTLE's limits, in this process or in Redis, and what is said without Redis.

The rate travels with each ask, so no rule says what to do when the store is silent; the service's
failure policy does. `open` admits and says nothing of what remains; `closed` refuses for a second;
`local` counts here, for this worker alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, final

from sluicegate.contracts.checks import MaybeAwaitable, ThrottleRequest, ThrottleResponse
from sluicegate.contracts.errors import Unavailable
from sluicegate.limits.rule import Failure
from sluicegate.stores.memory.throttle import MemoryThrottle

RETRY_S = 1


class FarThrottle(Protocol):
    """Where the limits are counted for all processes."""

    def throttle(self, ask: ThrottleRequest) -> Awaitable[ThrottleResponse]:
        """Decide and count; `Unavailable` if that cannot be."""
        ...

    async def close(self) -> None:
        """Give back what is held."""
        ...


@final
class Throttling:
    """Asks the near or the far one."""

    __slots__ = ("_failure", "_far", "_near", "_now_us")

    def __init__(
        self,
        now_us: Callable[[], int],
        keys_max: int,
        far: FarThrottle | None,
        failure: Failure,
    ) -> None:
        self._now_us = now_us
        self._near = MemoryThrottle(now_us, keys_max=keys_max)
        self._far = far
        self._failure = failure

    def ask(self, ask: ThrottleRequest, now_us: int) -> MaybeAwaitable[ThrottleResponse]:
        """Decide and count."""
        if self._far is None:
            return self._near.throttle(ask, now_us)
        return self._ask_far(self._far, ask)

    async def _ask_far(self, far: FarThrottle, ask: ThrottleRequest) -> ThrottleResponse:
        try:
            return await far.throttle(ask)
        except Unavailable:
            return self._without(ask)

    def _without(self, ask: ThrottleRequest) -> ThrottleResponse:
        limit = ask.max_burst + 1
        if self._failure is Failure.OPEN:
            return ThrottleResponse(False, limit, limit, -1, 0, degraded=True)
        if self._failure is Failure.CLOSED:
            return ThrottleResponse(True, limit, 0, RETRY_S, RETRY_S, degraded=True)
        answer = self._near.throttle(ask, self._now_us())
        answer.degraded = True
        return answer

    async def close(self) -> None:
        """Give back what is held."""
        if self._far is not None:
            await self._far.close()
