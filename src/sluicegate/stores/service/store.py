"""Service store: limits counted by a rate-limit service, behind the contract of a store.

A limiter whose store this is keeps its own rules, keys, leases, denials and failure policies; only
its counts are elsewhere. What is asked in one tick of the loop leaves in one write. A request that
may have been carried out is never repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.store import Charge, PartialTake, Ruling
from sluicegate.stores.redis.connection import Reply
from sluicegate.stores.redis.settings import RedisSettings
from sluicegate.stores.service.commands import PREFIX_DEFAULT, StoreCommands, grant_of, ruling_of
from sluicegate.stores.service.fleet import WorkerFleet
from sluicegate.stores.service.settings import parse_service_url


@final
class ServiceStore:
    """A `contracts.store.Store`; make it within the loop that uses it."""

    __slots__ = ("_closed", "_fleet", "_words", "what")

    def __init__(
        self, where: str | RedisSettings, chance: Chance, *, prefix: str = PREFIX_DEFAULT
    ) -> None:
        settings = parse_service_url(where) if isinstance(where, str) else where
        self._fleet = WorkerFleet(settings, chance)
        self._words = StoreCommands(prefix)
        self._closed = False
        self.what = self._fleet.what

    async def connect(self) -> None:
        """Return when connected, or raise what prevents it. The first request does it too."""
        await self._fleet.connect()

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        """Take every charge or none."""
        payload = self._words.take(charges, keep=keep, count_refused=count_refused)
        if not charges:
            self._check_open()
            return Ruling(0, [])
        return ruling_of(await self._ask(payload), charges)

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        """Take the first cost of `ladder` that fits."""
        return grant_of(await self._ask(self._words.take_some(charge, ladder)), charge)

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        """Correct what was taken at `taken_us`, by the service's clock; None is now."""
        if charges:
            await self._ask(self._words.settle(charges, taken_us))

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget what each charge's key has taken."""
        if charges:
            await self._ask(self._words.forget(charges))

    def unavailable(self, charges: Sequence[Charge]) -> Unavailable | None:
        """What asking for these would raise at once; any thread may ask, without the loop."""
        reason = self._fleet.unavailable_reason()
        return Unavailable(self.what, reason) if reason else None

    async def close(self) -> None:
        """Fail what is under way with `Unavailable`, and give back what is held."""
        self._closed = True
        await self._fleet.close()

    async def _ask(self, payload: bytes) -> Reply:
        self._check_open()
        return await self._fleet.ask(payload)

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(self.what, "the store is closed")
