"""Link: how a client reaches the service. The real one is a fleet of its workers.

A question goes to any worker, except what belongs to a lease: that goes to the worker that gave it,
for only that one may know it.
"""

from __future__ import annotations

from typing import Any, Protocol, cast, final

from sluicegate.contracts.chance import Chance
from sluicegate.stores.redis.node import RedisNode
from sluicegate.stores.redis.settings import RedisSettings
from sluicegate.stores.service.fleet import WorkerFleet


class ServiceLink(Protocol):
    """A way to a service; bound to the event loop it is first used in."""

    async def ask(self, payload: bytes, via: object = None) -> Any:
        """The reply to a command; `Unavailable` if there is none, `BadValue` if it makes none."""

    async def ask_one(self, payload: bytes) -> tuple[Any, object]:
        """The same, and the worker that answered, for whoever must ask that one again."""

    async def connect(self) -> None:
        """Return when a worker has answered, or raise what prevents it."""

    async def close(self) -> None:
        """End it."""


@final
class FleetLink:
    """Over RESP, to the workers that a URL names."""

    __slots__ = ("_fleet",)

    def __init__(self, settings: RedisSettings, chance: Chance) -> None:
        self._fleet = WorkerFleet(settings, chance)

    async def ask(self, payload: bytes, via: object = None) -> Any:
        """Ask `via`, or any worker."""
        return await self._fleet.ask(payload, cast("RedisNode | None", via))

    async def ask_one(self, payload: bytes) -> tuple[Any, object]:
        """Ask one worker; if it is gone, none."""
        if not self._fleet.ready:
            await self._fleet.await_first()
        via = self._fleet.pick()
        return await self.ask(payload, via), via

    async def connect(self) -> None:
        """Connect."""
        await self._fleet.connect()

    async def close(self) -> None:
        """Close."""
        await self._fleet.close()
