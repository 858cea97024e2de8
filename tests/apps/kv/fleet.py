"""A fleet of dispatchers that spend from one store, on virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import final

from sluicegate.apps.kv.admission import BLOCKS_AWAITED
from sluicegate.apps.kv.quota_leases import QuotaLeases, QuotaLeasesSettings
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.store import Charge, PartialTake, Ruling, Store
from sluicegate.kernels.verdict import Verdict
from sluicegate.policies.quota.leased_budget import LeasedBudget, LeasedBudgetSettings
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.testing import SeededChance
from tests.policies.virtual import START_US, VirtualLoop, pause_us

EPOCH_US = 1_000_000
RU = 1_000


@final
class SkewedClock:
    """A clock of the loop's time that is wrong."""

    def __init__(self, loop: VirtualLoop, skew_us: int = 0) -> None:
        self._loop = loop
        self._skew_us = skew_us

    def now_us(self) -> int:
        return self._loop.now_us() + self._skew_us


@final
class FarStore:
    """A memory store at some distance; it can be gone."""

    def __init__(self, clock: Callable[[], int], trip_us: int = 600) -> None:
        self.inner = MemoryStore(clock)
        self.trip_us = trip_us
        self.down = False
        self.calls = 0
        self.paused_us = 0  # length of a pause at the beginning of each half second
        self._clock = clock

    async def _trip(self) -> None:
        await pause_us(self.trip_us // 2)
        if self.paused_us:
            await pause_us(max(self.paused_us - self._clock() % 500_000, 0))
        if self.down:
            raise Unavailable("store", "gone")

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        self.calls += 1
        await self._trip()
        ruling = await self.inner.take(charges, keep=keep, count_refused=count_refused)
        await self._trip()
        return ruling

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        self.calls += 1
        await self._trip()
        grant = await self.inner.take_some(charge, ladder)
        await self._trip()
        return grant

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        await self.inner.settle(charges, taken_us)

    async def reset(self, charges: Sequence[Charge]) -> None:
        await self.inner.reset(charges)

    async def close(self) -> None:
        await self.inner.close()


@final
class Dispatcher:
    """A budget, its keeper, and what has been admitted in each epoch of true time."""

    def __init__(
        self,
        loop: VirtualLoop,
        store: Store | None,
        settings: LeasedBudgetSettings,
        *,
        skew_us: int = 0,
        keeper: QuotaLeasesSettings | None = None,
    ) -> None:
        self._loop = loop
        self.clock = SkewedClock(loop, skew_us)
        self.budget = LeasedBudget(settings)
        self.leases = QuotaLeases(self.budget, self.clock, store=store, settings=keeper)
        self.admitted: Counter[tuple[str, int]] = Counter()
        self.refused: Counter[tuple[str, int]] = Counter()
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self.tasks.append(self._loop.create_task(self.leases.run()))

    async def kill(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def ask(self, caller: str, mru: int) -> Verdict:
        """As a dispatcher asks: wait if nothing is here, and again if it was refused."""
        waiting = self.leases.before(caller, self.clock.now_us())
        if waiting is not None:
            await waiting
        verdict = self.budget.charge(caller, mru, self.clock.now_us())
        for _ in range(BLOCKS_AWAITED):
            waiting = None if verdict.allowed else self.leases.more(caller)
            if waiting is None or not await waiting:
                break
            verdict = self.budget.charge(caller, mru, self.clock.now_us())
        epoch = (self._loop.now_us() - START_US) // EPOCH_US
        (self.admitted if verdict.allowed else self.refused)[(caller, epoch)] += mru
        return verdict

    def offer(self, caller: str, ru_an_epoch: int, seed: int, mru: int = RU) -> None:
        """A stream of requests, from now on."""
        self.tasks.append(self._loop.create_task(self._stream(caller, ru_an_epoch, seed, mru)))

    async def _stream(self, caller: str, ru_an_epoch: int, seed: int, mru: int) -> None:
        chance = SeededChance(seed)
        mean_us = EPOCH_US * mru / (ru_an_epoch * RU)
        while True:
            await pause_us(1 + int(mean_us * 2 * chance.draw()))
            await self.ask(caller, mru)


def admitted(fleet: Sequence[Dispatcher], caller: str, epoch: int) -> int:
    """What all of them let in, in whole request units."""
    return sum(one.admitted[(caller, epoch)] for one in fleet) // RU
