"""What a capture keeps of what callers ask: each request once, as it ended, for its own price."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import final

import pytest

from sluicegate.apps.kv.admission import Admission, Supply
from sluicegate.apps.kv.chain import GET, PolicyChain, default_weights
from sluicegate.apps.kv.quota_capture import CapturedBudget
from sluicegate.apps.kv.quotas import Quotas
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.usage import CallerUsage
from sluicegate.apps.quota.replay import Asks, asks_of
from sluicegate.contracts.access import Identity
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.key_values import CallContext
from sluicegate.lab.world import World, run
from sluicegate.shadow.capture.reader import read_capture
from sluicegate.shadow.capture.recorder import Capture
from sluicegate.shadow.capture.settings import CaptureSettings
from sluicegate.shadow.traffic import ALL

SECOND_US = 1_000_000


@final
class _Blocks:
    """A block of the quota comes a moment after it was missed: here another epoch."""

    def __init__(self, world: World) -> None:
        self._world = world

    def before(self, caller: str, now_us: int) -> None:
        return None

    def more(self, caller: str) -> Awaitable[bool]:
        return self._bring()

    async def _bring(self) -> bool:
        await self._world.sleep_us(SECOND_US)
        return True


@final
class _Captured:
    """A dispatcher's way in, before a caller with 100 RU/s, and what was captured of it."""

    def __init__(self, world: World, folder: Path, *, waits: bool = False) -> None:
        settings = KvSettings()
        quotas = Quotas(settings, 0, world.clock, world.chance("quotas"))
        quotas.set_quotas({"a": 100})
        bounds = CaptureSettings(folder=str(folder), share=ALL, redact=False)
        self.capture = Capture(bounds, clock=world.clock)
        budget = CapturedBudget(quotas.spent_from, self.capture)
        chain = PolicyChain(settings, CallerUsage(), budget=budget, weights=default_weights())
        chain.units.penalize(budget)
        supply: Supply | None = _Blocks(world) if waits else None
        self._world = world
        self.usage = chain.usage
        self.admission = Admission(chain, world.clock, supply, asked=budget)

    async def read(self, size_bytes: int) -> bool:
        """Whether a read was admitted; it finds so much."""
        clock = self._world.clock
        call = CallContext(Identity("a", ()), arrived_us=clock.now_us())
        request = self.admission.request(GET, "t", "t:k", "s", call)
        try:
            permit = await self.admission.later(request)
        except Refused:
            return False
        await self._world.sleep_us(100)
        self.admission.done(permit, clock.now_us() - 100, 1, size_bytes)
        return True


def asks(folder: Path) -> Asks:
    return asks_of(read_capture(folder).traffic)["a"]


def refused(found: Asks) -> list[int]:
    return [mru for mru, kind in zip(found.mru, found.kinds, strict=True) if kind == 1]


@pytest.mark.parametrize("size_bytes", [600_000, 900_000])
def test_what_an_estimate_left_is_no_part_of_what_each_refused_request_asks(
    tmp_path: Path, size_bytes: int
) -> None:
    """Else it would count with every one of them, and only a huge quota would refuse nothing."""

    async def main(world: World) -> None:
        captured = _Captured(world, tmp_path)
        for _ in range(10):  # small ones, by which the large one is estimated
            assert await captured.read(1)
        assert await captured.read(size_bytes)  # 147 or 221 RU, charged as one
        answers = [await captured.read(1) for _ in range(30)]
        assert answers.count(False) > 10
        captured.capture.close()

    run(main, 1)
    found = asks(tmp_path)
    assert len(refused(found)) > 10
    assert max(refused(found)) < 40_000


def test_a_request_that_waits_for_a_block_of_its_quota_is_asked_once_and_not_refused(
    tmp_path: Path,
) -> None:
    async def main(world: World) -> None:
        captured = _Captured(world, tmp_path, waits=True)
        for _ in range(200):
            assert await captured.read(1)
        captured.capture.close()
        used = captured.usage.now()["a"]
        assert (used.admitted, used.refused, used.refused_mru) == (200, 0, 0)
        assert not captured.usage.refusals()
        stats = captured.admission.stats()
        assert (stats.entered, stats.admitted, stats.refused) == (200, 200, 0)

    run(main, 1)
    found = asks(tmp_path)
    assert refused(found) == []
    assert len([kind for kind in found.kinds if kind == 0]) == 200
