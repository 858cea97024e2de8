"""Fronts: what stands on a node between those who read and the store.

Wiring, and no policy. `Shield` joins `hot_key` and `coalesce` as their guide says; each can be
taken out. Every front is asked the same two questions: what do you have (`look`, which waits for
nothing), and if that is not enough, `fetch` it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Refused, Unavailable
from sluicegate.contracts.request import Request
from sluicegate.policies.coalesce import Coalesce, CoalesceSettings, Flight
from sluicegate.policies.hot_key import (
    COLD,
    FRESH,
    NEGATIVE,
    REFRESH,
    STALE,
    Fill,
    HotKey,
    HotKeySettings,
)

Get: TypeAlias = Callable[[str], Awaitable[int]]  # a key's version, from the store
Looked: TypeAlias = tuple[int, int | None]  # a state of `hot_key`, and the version if there is one

SERVED: Final = (FRESH, NEGATIVE)  # nothing has to be fetched
VALUE_BYTES: Final = 200


class Front(Protocol):
    """A node's read path."""

    def look(self, key: str) -> Looked:
        """What is there."""
        ...

    async def fetch(self, request: Request, looked: Looked) -> int:
        """What is not."""
        ...

    def wrote(self, key: str) -> None:
        """A write is done, and not yet acknowledged."""
        ...


@final
class Shield:
    """The product's own: notice, keep, refresh ahead, and one fetch for all who ask.

    What can be taken out: `hot_key`; `coalesce`, or only for what is cold (`cold_too`); `epochs`,
    the notice that a fill is older than a write; `parted`, that nobody joins a fetch from before.
    """

    __slots__ = ("_chance", "_clock", "_cold_too", "_epochs", "_get", "_parted", "hot", "shared")

    def __init__(
        self,
        clock: Clock,
        chance: Chance,
        get: Get,
        *,
        hot: HotKeySettings | None = None,
        hot_key: bool = True,
        coalesce: bool = True,
        cold_too: bool = True,
        epochs: bool = True,
        parted: bool = True,
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._get = get
        self._cold_too = cold_too
        self._epochs = epochs
        self._parted = parted
        self.hot: HotKey[int] | None = None
        self.shared: Coalesce[int] | None = None
        if hot_key:
            self.hot = HotKey(hot or HotKeySettings())
        if coalesce:
            self.shared = Coalesce(CoalesceSettings())

    def look(self, key: str) -> Looked:
        """What the cache has of it."""
        if self.hot is None:
            return COLD, None
        return self.hot.look(key, self._clock.now_us(), self._chance.draw())

    async def fetch(self, request: Request, looked: Looked) -> int:
        """From the store, with all others who want it; a stale answer if that fails."""
        state, stale = looked
        try:
            if self.shared is None or (state == COLD and not self._cold_too):
                return await self._bring(request.key, state)

            async def bring(flight: Flight[int]) -> int:
                return await self._bring(flight.key, state)

            return await self.shared.share(request.key, request, self._clock, bring)
        except Unavailable:
            if state == STALE and stale is not None:
                return stale
            raise

    def wrote(self, key: str) -> None:
        """Void what is kept and what is in the air."""
        if self.hot is not None:
            self.hot.wrote(key)
        if self.shared is not None and self._parted:
            self.shared.wrote(key)

    async def _bring(self, key: str, state: int) -> int:
        clock = self._clock
        hot = None if state == COLD else self.hot
        begun_us = clock.now_us()
        fill: Fill[int] | None = None
        if hot is not None and self._epochs:
            fill = hot.begin(key, begun_us)
        version = await self._get(key)
        if hot is not None and fill is None:
            fill = hot.begin(key, begun_us)  # the mistake: what was written meanwhile goes unseen
        if fill is not None:
            fill.put(version, VALUE_BYTES, now_us=clock.now_us(), draw=self._chance.draw())
        return version


async def read(front: Front, request: Request) -> int:
    """One read, as a handler does it: who is sent ahead is answered at once all the same."""
    looked = state, version = front.look(request.key)
    if version is not None and state in SERVED:
        return version
    if version is not None and state == REFRESH:
        # Nobody waits for it, so it has no deadline of theirs. The loop holds it until it is done.
        ahead = Request(request.key, arrived_us=request.arrived_us)
        asyncio.get_running_loop().create_task(_ahead(front, ahead, looked))
        return version
    return await front.fetch(request, looked)


async def _ahead(front: Front, request: Request, looked: Looked) -> None:
    try:
        await front.fetch(request, looked)
    except (Unavailable, Refused):
        return  # the next reader is sent
