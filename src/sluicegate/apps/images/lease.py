"""Lease: one process collects at a time, and each run has a unique number.

The lease is a record that is swapped: taken when it is over, renewed by its holder, given back at
the end. Each time it is taken its number rises by one, and a run removes only what it has marked
with this number itself. So a holder that paused, or whose clock is wrong, duplicates work, but
removes nothing that is referred to (`collect.py`).
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.apps.images.maps import ImageMaps
from sluicegate.apps.images.records import LeaseRecord, encode
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Unavailable

LEASE_US: Final = 30_000_000  # how long a killed collector blocks the others
RENEW_US: Final = LEASE_US // 3
WHAT: Final = "the collection"


@final
class CollectorLease:
    """The lease, for one run."""

    def __init__(self, maps: ImageMaps, clock: Clock, holder: str) -> None:
        self._maps = maps
        self._clock = clock
        self._holder = holder
        self._mine = LeaseRecord(0)
        self._renewed_us = 0

    async def take(self) -> int:
        """The number of this run; `Unavailable` while another process collects."""
        raw, held = await self._maps.lease()
        now_us = self._clock.now_us()
        # More than a whole lease ahead is another clock, whose lease may be long over.
        if held is not None and 0 < held.until_us - now_us <= LEASE_US:
            left_s = -(-(held.until_us - now_us) // 1_000_000)
            raise Unavailable(WHAT, f"{held.holder} collects; try again in {left_s} s")
        self._mine = LeaseRecord(1 if held is None else held.run + 1, self._holder)
        await self._put(raw)
        return self._mine.run

    async def renew(self) -> None:
        """Keep it; `Unavailable` if another process has taken it."""
        if not 0 <= self._clock.now_us() - self._renewed_us < RENEW_US:
            await self._put(encode(self._mine))

    async def give_back(self) -> None:
        """Let the next one collect."""
        free = self._mine._replace(until_us=0)
        await self._maps.swap_lease(encode(self._mine), free)

    async def _put(self, expected: bytes | None) -> None:
        now_us = self._clock.now_us()
        mine = self._mine._replace(until_us=now_us + LEASE_US)
        if not await self._maps.swap_lease(expected, mine):
            raise Unavailable(WHAT, "another process collects")
        self._mine, self._renewed_us = mine, now_us
