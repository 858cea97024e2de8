"""A far store in this process, for tests: one store, and "processes" with clocks of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import Charge, PartialTake, Ruling, Store
from sluicegate.limits.outage_watch import OutageWatch
from sluicegate.limits.remote_keys import RemoteKeys
from sluicegate.limits.reservation import Reservation
from sluicegate.limits.rule import Failure, Mode
from sluicegate.limits.stores import LimitStores
from sluicegate.limits.terms import Terms
from sluicegate.limits.wait_lines import ThreadTicket, Ticket
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.testing import HandClock


class SlowStore:
    """A store that is reached after a while, answers after a while, and may be gone."""

    def __init__(self, clock: HandClock, *, there_us: int = 0, back_us: int = 0) -> None:
        self.clock = clock
        self.there_us = there_us
        self.back_us = back_us
        self.down = False
        self.calls = 0
        self.taken_us = 0  # when it last decided
        self._store = MemoryStore(clock.now_us)

    def _reach(self) -> None:
        self.calls += 1
        self.clock.advance(us=self.there_us)
        if self.down:
            raise Unavailable("the store", "it is gone")

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        self._reach()
        self.taken_us = self.clock.now_us()
        ruling = await self._store.take(charges, keep=keep, count_refused=count_refused)
        self.clock.advance(us=self.back_us)
        return ruling

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        self._reach()
        self.taken_us = self.clock.now_us()
        grant = await self._store.take_some(charge, ladder)
        self.clock.advance(us=self.back_us)
        return grant

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        self._reach()
        await self._store.settle(charges, taken_us)

    async def reset(self, charges: Sequence[Charge]) -> None:
        self._reach()
        await self._store.reset(charges)

    async def close(self) -> None:
        await self._store.close()


class OneStore:
    """Stands where `LimitStores` does."""

    def __init__(self, store: Store) -> None:
        self.blocking = store
        self.swept: list[RemoteKeys] = []
        self.watch = OutageWatch()

    def here(self) -> Store:
        return self.blocking

    def ticket(self, store: Store) -> Ticket:
        return ThreadTicket()

    def sweep(self, store: Store, keys: RemoteKeys) -> None:
        self.swept.append(keys)


class Process:
    """One process: its keys of one rule, and its own wrong clock."""

    def __init__(
        self,
        store: SlowStore,
        *limits: Limit,
        lease: str | int | None = None,
        failure: Failure = Failure.OPEN,
        local_share: float = 1.0,
        mode: Mode = Mode.ENFORCE,
        count_refused: bool = False,
        wrong_us: int = 0,
        name: str = "",
    ) -> None:
        self.clock = store.clock
        self.wrong_us = wrong_us
        terms = Terms(
            name or "rule",
            [(name or f"rule {number}", limit) for number, limit in enumerate(limits)],
            failure=failure,
            local_share=local_share,
            lease=lease,
            mode=mode,
            count_refused=count_refused,
        )
        self.stores = OneStore(cast("Store", store))
        self.keys = RemoteKeys(
            cast("LimitStores", self.stores), terms, MemoryStore(self.now_us), self.now_us
        )

    def now_us(self) -> int:
        return self.clock.now_us() + self.wrong_us

    def reserve(self, key: str, cost: int) -> Reservation:
        decision, taken_us = self.keys.estimate(key, cost, self.now_us())
        return Reservation(decision, cost, self.keys, key, taken_us, self.now_us)

    def take(self, key: str = "a", cost: int = 1) -> bool:
        return self.keys.take(key, cost, self.now_us()).allowed
