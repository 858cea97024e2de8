"""Guarded: an application's way to its store, through the product's `coalesce` and `queue`.

Wiring, and no policy: one fetch for all who want a key, in its turn, and the cache is filled by the
fetch and not by those who wait for it.
"""

from __future__ import annotations

from typing import final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Measured, Request
from sluicegate.lab.rigs.look_aside import Fetch, Fill, LookAside
from sluicegate.lab.world import World
from sluicegate.policies.coalesce import Coalesce, CoalesceSettings, Flight
from sluicegate.policies.queue.queue import Queue, QueueSettings


@final
class Guarded:
    """`coalesce`, and `queue` with as many places as the store has workers; either is left out."""

    def __init__(
        self,
        world: World,
        rig: LookAside,
        fetch: Fetch,
        fill: Fill,
        *,
        coalesce: bool = True,
        queue: bool = True,
    ) -> None:
        self._clock = world.clock
        self._fetch = fetch
        self._fill = fill
        self._queue = Queue(QueueSettings(places=rig.workers)) if queue else None
        self._shared: Coalesce[int] | None = None
        if coalesce:
            raised = self._queue.requeue if self._queue is not None else None
            self._shared = Coalesce(CoalesceSettings(), raised)

    async def fetch(self, request: Request) -> int:
        """One fetch for all who want it, in its turn."""
        if self._shared is None:
            return await self._bring(request)
        return await self._shared.share(request.key, request, self._clock, self._fly)

    async def _fly(self, flight: Flight[int]) -> int:
        return await self._bring(flight.request)

    async def _bring(self, request: Request) -> int:
        if self._queue is None:
            version = await self._fetch(request.key)
        else:
            version = await self._in_turn(self._queue, request)
        self._fill(request.key, version)
        return version

    async def _in_turn(self, queue: Queue, request: Request) -> int:
        permit = await queue.admit(request, self._clock)
        if isinstance(permit, Decision):
            raise Refused(permit)
        begun_us = self._clock.now_us()
        outcome = Outcome.IGNORE
        try:
            version = await self._fetch(request.key)
            outcome = Outcome.SUCCESS
            return version
        finally:
            now_us = self._clock.now_us()
            request.measured = Measured(service_us=now_us - begun_us)
            permit.end(outcome, now_us)
