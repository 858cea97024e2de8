"""The memory store is put through the suite that users are given."""

from __future__ import annotations

from sluicegate.contracts.store import Store
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.system import now_us
from sluicegate.testing import HandClock
from sluicegate.testing.stores import StoreSuite


class TestMemoryByHand(StoreSuite):
    def open_store(self) -> Store:
        self.clock = HandClock()
        return MemoryStore(self.clock.now_us)

    async def pass_time(self, us: int) -> None:
        self.clock.advance(us=us)


class TestMemoryOnRealTime(StoreSuite):
    def open_store(self) -> Store:
        return MemoryStore(now_us)
