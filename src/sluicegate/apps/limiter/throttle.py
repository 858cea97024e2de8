"""Throttle: CL.THROTTLE's limits, in this process or in Redis, and what is decided without Redis.

The rate travels with each request, so no rule says what to do when the store does not answer; the
service's failure policy does. `open` admits and says nothing of what remains, `closed` refuses for
a second, `local` counts here, for this worker alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, final

from sluicegate.contracts.checks import MaybeAwaitable, ThrottleRequest, ThrottleResponse
from sluicegate.contracts.errors import Unavailable
from sluicegate.limits.outage_watch import OutageWatch
from sluicegate.limits.rule import Failure
from sluicegate.stores.memory.throttle import MemoryThrottle

RETRY_S = 1


class RemoteThrottle(Protocol):
    """Where the limits are counted for all processes."""

    def throttle(self, request: ThrottleRequest) -> Awaitable[ThrottleResponse]:
        """Decide and count; `Unavailable` if that cannot be."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@final
class Throttle:
    """Limits counted here, or in Redis where there is one."""

    __slots__ = ("_failure", "_local", "_now_us", "_remote", "_watch")

    def __init__(
        self,
        now_us: Callable[[], int],
        keys_max: int,
        remote: RemoteThrottle | None,
        failure: Failure,
    ) -> None:
        self._now_us = now_us
        self._local = MemoryThrottle(now_us, keys_max=keys_max)
        self._remote = remote
        self._failure = failure
        self._watch = OutageWatch()

    def decide(self, request: ThrottleRequest, now_us: int) -> MaybeAwaitable[ThrottleResponse]:
        """Decide and count."""
        if self._remote is None:
            return self._local.throttle(request, now_us)
        return self._ask_remote(self._remote, request)

    async def _ask_remote(
        self, remote: RemoteThrottle, request: ThrottleRequest
    ) -> ThrottleResponse:
        try:
            response = await remote.throttle(request)
        except Unavailable as error:
            self._watch.fail(error, self._failure)
            return self._fall_back(request)
        if self._watch.away:
            self._watch.answer("Redis, of CL.THROTTLE,")
        return response

    def _fall_back(self, request: ThrottleRequest) -> ThrottleResponse:
        limit = request.max_burst + 1
        if self._failure is Failure.OPEN:
            return ThrottleResponse(False, limit, limit, -1, 0, degraded=True)
        if self._failure is Failure.CLOSED:
            return ThrottleResponse(True, limit, 0, RETRY_S, RETRY_S, degraded=True)
        response = self._local.throttle(request, self._now_us())
        response.degraded = True
        return response

    async def close(self) -> None:
        """Close the connections."""
        if self._remote is not None:
            await self._remote.close()
