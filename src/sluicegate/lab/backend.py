"""Backend: workers that serve one piece of work each, and the queue before them, in full view.

It is what the policies protect, and has no policy: whoever comes while all workers are busy waits,
first in, first out, without a bound unless one is set. Its speed profile says how fast it works; a
shard may be slower than the others by a factor. Urgent work (telling callers that they are refused)
goes before the rest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, final

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.lab.durations import Duration
from sluicegate.lab.speed_profile import STEADY, SpeedProfile
from sluicegate.lab.world import World

SLOWNESS_MAX: Final = 1e6
ALL_ALIKE: Final[Mapping[str, float]] = {}


@final
class Backend:
    """`workers` of them; `serve` is one piece of work."""

    def __init__(
        self,
        world: World,
        service: Duration,
        *,
        name: str = "backend",
        workers: int = 32,
        speed_profile: SpeedProfile = STEADY,
        slow_shards: Mapping[str, float] = ALL_ALIKE,
        queue_max: int | None = None,
    ) -> None:
        if workers < 1:
            raise BadValue("workers", workers, "give at least one")
        for shard, factor in slow_shards.items():
            if not 0 < factor <= SLOWNESS_MAX:
                raise BadValue(f"slow_shards.{shard}", factor, "give a factor above 0")
        self._world = world
        self._draw = service.sampler(world.chance(f"{name}/service"))
        self._speed_profile = speed_profile
        self._slow = dict(slow_shards)
        self._queue_max = queue_max
        self._queue: deque[asyncio.Future[None]] = deque()
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._idle = workers
        self.queue_peak = 0
        self.name = name
        self.workers = workers

    def draw_us(self, *, cost: int = 1, shard: str = "") -> int:
        """How long a piece of work will take at speed 1."""
        work_us = self._draw() * cost
        return int(work_us * self._slow[shard]) if shard in self._slow else work_us

    async def serve(self, work_us: int, *, urgent: bool = False) -> None:
        """Wait for a worker, and be served for `work_us` of work at speed 1."""
        if self._idle > 0:
            self._idle -= 1
        else:
            await self._wait(urgent)
        try:
            begin_us = self._world.elapsed_us
            end_us = self._speed_profile.end_us(begin_us, work_us)
            await self._world.sleep_us(end_us - begin_us)
        finally:
            self._free()

    @property
    def busy(self) -> int:
        """Workers at work."""
        return self.workers - self._idle

    @property
    def queued(self) -> int:
        """Pieces of work that wait, urgent ones included."""
        return len(self._queue) + len(self._urgent)

    async def _wait(self, urgent: bool) -> None:
        queue = self._urgent if urgent else self._queue
        if not urgent and self._queue_max is not None and len(queue) >= self._queue_max:
            raise Unavailable(self.name, f"its queue of {self._queue_max} is full")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(waiter)
        self.queue_peak = max(self.queue_peak, self.queued)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._free()  # its turn had come
            else:
                with suppress(ValueError):  # a worker may have passed it by
                    queue.remove(waiter)
            raise

    def _free(self) -> None:
        for queue in (self._urgent, self._queue):
            while queue:
                waiter = queue.popleft()
                if not waiter.done():
                    waiter.set_result(None)  # the worker takes the next
                    return
        self._idle += 1
