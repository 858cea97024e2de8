"""Read paths: a store, and what stands on a node between it and its readers.

Wiring, and no policy. `ShieldedReads` joins `hot_key` and `coalesce` as in their guide; each can
be taken out. Every read path answers the same two questions: what is cached (`look`, which waits
for nothing), and if that is not enough, `fetch` it. The store knows the version of each key: a read
travels, waits for a worker, is served, reads the version of that instant, and travels back; a write
does the same and makes the next version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.request import Request
from sluicegate.lab.backend import Backend
from sluicegate.lab.durations import Duration
from sluicegate.lab.world import World
from sluicegate.policies.cache.coalesce import Coalesce, CoalesceSettings, Flight
from sluicegate.policies.cache.hot_key import (
    COLD,
    FRESH,
    MISS,
    NEGATIVE,
    STALE,
    Fill,
    HotKey,
    HotKeySettings,
    OfferedLoad,
)

Get: TypeAlias = Callable[[str], Awaitable[int]]  # a key's version, from the store
Lookup: TypeAlias = tuple[int, int | None]  # a state of `hot_key`, and the version if there is one

SERVED: Final = (FRESH, NEGATIVE)  # nothing has to be fetched
VALUE_BYTES: Final = 200


class ReadPath(Protocol):
    """A node's way to its data."""

    def look(self, key: str) -> Lookup:
        """Return what is cached of the key, without waiting."""
        ...

    async def fetch(self, request: Request, looked: Lookup) -> int:
        """Return the version from the store."""
        ...

    def invalidate(self, key: str) -> None:
        """Void what is older than a write that is done and not yet acknowledged."""
        ...


@final
class ShieldedReads:
    """The product's own: keep what is worth it at the load of the store, and share fetches.

    `busy` returns the load of the store, from 0 to 1; without it each saved read counts as on a
    full store. Parts to leave out: `hot_key`, `coalesce`.
    """

    def __init__(
        self,
        clock: Clock,
        chance: Chance,
        get: Get,
        busy: Callable[[], float] | None = None,
        *,
        hot: HotKeySettings | None = None,
        hot_key: bool = True,
        coalesce: bool = True,
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._get = get
        self._busy = busy
        self.load: OfferedLoad | None = None if busy is None else OfferedLoad()
        self.hot: HotKey[int] | None = None
        self.shared: Coalesce[int] | None = None
        if hot_key:
            self.hot = HotKey(hot or HotKeySettings())
        if coalesce:
            self.shared = Coalesce(CoalesceSettings())

    def look(self, key: str) -> Lookup:
        """Return the state of the key and its cached version."""
        if self.hot is None:
            return MISS, None
        if self._busy is not None and self.load is not None:
            self.load.seen += self._busy()
        return self.hot.look(key, self._clock.now_us(), self._chance.draw(), self.load)

    async def fetch(self, request: Request, looked: Lookup) -> int:
        """Read from the store with all others who wait; if that fails, return a stale version."""
        state, stale = looked
        try:
            if self.shared is None or state == COLD:
                return await self._load(request.key, state)

            async def load(flight: Flight[int]) -> int:
                return await self._load(flight.key, state)

            return await self.shared.share(request.key, request, self._clock, load)
        except Unavailable:
            if state == STALE and stale is not None:
                return stale
            raise

    def invalidate(self, key: str) -> None:
        """Void what is cached and what is being fetched."""
        if self.hot is not None:
            self.hot.invalidate(key)
        if self.shared is not None:
            self.shared.invalidate(key)

    async def _load(self, key: str, state: int) -> int:
        clock = self._clock
        hot = None if state == COLD else self.hot
        begun_us = clock.now_us()
        fill: Fill[int] | None = None
        if hot is not None:
            fill = hot.begin(key, begun_us, self.load)
        version = await self._get(key)
        if fill is not None:
            fill.put(version, VALUE_BYTES, now_us=clock.now_us(), draw=self._chance.draw())
        return version


@final
class VersionedStore:
    """Workers behind a wire; `on_read` is called for each read that arrives."""

    __slots__ = ("_half_us", "_on_read", "_world", "backend", "versions")

    def __init__(
        self,
        world: World,
        service: Duration,
        *,
        workers: int,
        rtt_us: int,
        on_read: Callable[[str], object] | None = None,
    ) -> None:
        self._world = world
        self._half_us = rtt_us // 2
        self.backend = Backend(world, service, name="store", workers=workers)
        self._on_read = on_read
        self.versions: dict[str, int] = {}

    def load(self) -> float:
        """Return the share of busy workers; 1 while reads are queued."""
        return self.backend.busy / self.backend.workers

    async def get(self, key: str) -> int:
        """Return the version of the key, 0 if it was never written."""
        await self._world.sleep_us(self._half_us)
        if self._on_read is not None:
            self._on_read(key)
        await self.backend.serve(self.backend.draw_us())
        version = self.versions.get(key, 0)
        await self._world.sleep_us(self._half_us)
        return version
