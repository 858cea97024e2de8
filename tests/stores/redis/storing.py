"""What tests of the store share: an open store, a clock for it, and the memory store beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Charge
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.stores.redis.settings import parse_url
from sluicegate.stores.redis.store import RedisStore
from sluicegate.testing import HandClock, SeededChance
from tests.stores.redis.live import PATIENT_US

SECOND = 1_000_000
MINUTE = 60 * SECOND


@asynccontextmanager
async def stored(
    url: str, *, timeout_us: int = PATIENT_US, **options: Any
) -> AsyncIterator[RedisStore]:
    """A connected store."""
    settings = replace(parse_url(url), timeout_us=timeout_us)
    store = RedisStore(settings, SeededChance(1), **options)
    try:
        await store.connect()
        yield store
    finally:
        await store.close()


def at(store: RedisStore, now_us: int | None) -> None:
    """Have the server believe this instant from now on; None gives it its own clock back."""
    store.batches.now = b"" if now_us is None else b"%d" % now_us


class Pair:
    """The Redis store and the memory store, at the same instants."""

    def __init__(self, store: RedisStore) -> None:
        self.clock = HandClock()
        self.redis = store
        self.memory = MemoryStore(self.clock.now_us)
        at(store, self.clock.now_us())

    def advance(self, **spans: float) -> None:
        """Move both."""
        self.clock.advance(**spans)  # type: ignore[arg-type]
        at(self.redis, self.clock.now_us())

    async def take(self, *charges: Charge, **how: bool) -> bool:
        """Ask both, and see that they say the same; whether it was admitted."""
        ruling = await self.redis.take(charges, **how)
        expected = await self.memory.take(charges, **how)
        assert ruling.at_us == expected.at_us
        assert list(ruling.decisions) == list(expected.decisions), charges
        return ruling.allowed

    async def take_some(self, charge: Charge, *ladder: int) -> int:
        """Likewise; how much was taken."""
        grant = await self.redis.take_some(charge, ladder)
        assert grant == await self.memory.take_some(charge, ladder)
        return grant.units

    async def settle(self, *charges: Charge, taken_us: int | None = None) -> None:
        """Settle in both."""
        await self.redis.settle(charges, taken_us)
        await self.memory.settle(charges, taken_us)

    async def reset(self, *charges: Charge) -> None:
        """Reset in both."""
        await self.redis.reset(charges)
        await self.memory.reset(charges)


def limit_of(algorithm: Algorithm, count: int = 10, period_us: int = MINUTE) -> Limit:
    """A limit of that algorithm."""
    return Limit(count, period_us=period_us, algorithm=algorithm)
