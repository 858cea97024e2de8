"""The memory store is put through the suite that users are given."""

from __future__ import annotations

from headgate.contracts.store import Store
from headgate.stores.memory.store import MemoryStore
from headgate.system import now_us
from headgate.testing import HandClock
from headgate.testing.stores import StoreSuite


class TestMemoryByHand(StoreSuite):
    def open_store(self) -> Store:
        self.clock = HandClock()
        return MemoryStore(self.clock.now_us)

    async def pass_time(self, us: int) -> None:
        self.clock.advance(us=us)


class TestMemoryOnRealTime(StoreSuite):
    def open_store(self) -> Store:
        return MemoryStore(now_us)
