"""Store: where the answers are; it knows the version of each key, and has no policy.

A read travels, waits for a worker, is served, sees the version of that instant, and travels back. A
write does the same and makes the next version. `heard` is told of each read that arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from sluicegate.lab.backend import Backend
from sluicegate.lab.spans import Span
from sluicegate.lab.world import World


@final
class Store:
    """Workers behind a wire."""

    __slots__ = ("_half_us", "_heard", "_world", "backend", "versions")

    def __init__(
        self,
        world: World,
        service: Span,
        *,
        workers: int,
        rtt_us: int,
        heard: Callable[[str], object] | None = None,
    ) -> None:
        self._world = world
        self._half_us = rtt_us // 2
        self.backend = Backend(world, service, name="store", workers=workers)
        self._heard = heard
        self.versions: dict[str, int] = {}

    async def get(self, key: str) -> int:
        """The version of the key, 0 if it was never written."""
        await self._world.sleep_us(self._half_us)
        if self._heard is not None:
            self._heard(key)
        await self.backend.serve(self.backend.draw_us())
        version = self.versions.get(key, 0)
        await self._world.sleep_us(self._half_us)
        return version

    async def put(self, key: str) -> int:
        """Write the key, and return the version that it has now."""
        await self._world.sleep_us(self._half_us)
        await self.backend.serve(self.backend.draw_us())
        version = self.versions[key] = self.versions.get(key, 0) + 1
        await self._world.sleep_us(self._half_us)
        return version
