"""Partitions on virtual time: they bind only when all is taken, and then each has its share."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.partitions import PartitionSettings, PlaceShares
from sluicegate.policies.queue.queue import Queue, QueueSettings
from tests.policies.virtual import VirtualLoop, pause_us, run

SHARES = {
    "shop": PartitionSettings(share=0.5, endpoints=("/pay", "/cart")),
    "mobile": PartitionSettings(share=0.25, callers=("mobile",)),
}
SECOND_US = 1_000_000


class Gate:
    """A queue of so many places, whose units are held by hand or for a time."""

    def __init__(
        self,
        loop: VirtualLoop,
        places: int = 8,
        settings: Mapping[str, PartitionSettings] = SHARES,
    ) -> None:
        self.loop = loop
        self.partitions = PlaceShares(settings)
        form = QueueSettings(places=places, form="none", wait_us_max=100 * SECOND_US)
        self.queue = Queue(form, partition=self.partitions.of)

    async def work(
        self,
        endpoint: str,
        took_us: int,
        caller: str = "",
        criticality: Criticality = Criticality.DEGRADED,
    ) -> int:
        """Return how long it waited; -1 if it was refused."""
        began_us = self.loop.now_us()
        request = Request(endpoint, caller=caller, operation=endpoint, criticality=criticality)
        permit = await self.queue.admit(request, self.loop)
        if isinstance(permit, Decision):
            return -1
        waited_us = self.loop.now_us() - began_us
        try:
            await pause_us(took_us)
        finally:
            permit.end(Outcome.SUCCESS, self.loop.now_us())
        return waited_us

    def at_work(self) -> list[int]:
        return [one.inflight for one in self.partitions.all]


async def begun(*coroutines: object) -> list[asyncio.Task[int]]:
    tasks = [asyncio.ensure_future(one) for one in coroutines]  # type: ignore[call-overload]
    await pause_us(1)
    return tasks


def test_a_partition_has_the_whole_while_nobody_else_asks() -> None:
    async def story(loop: VirtualLoop) -> tuple[list[int], int]:
        gate = Gate(loop)
        tasks = await begun(*(gate.work("/pay", SECOND_US) for _ in range(12)))
        seen = gate.at_work(), gate.queue.queued
        await asyncio.gather(*tasks)
        assert gate.queue.inflight == 0
        return seen

    assert run(story) == ([8, 0], 4)


def test_what_fills_the_whole_takes_nothing_of_another_ones_share() -> None:
    """Slow work of nobody's fills all; a share begins at once, and what is above it waits."""

    async def story(loop: VirtualLoop) -> list[int]:
        gate = Gate(loop)
        slow = await begun(*(gate.work("/slow", 10 * SECOND_US) for _ in range(20)))
        shop = await begun(*(gate.work("/pay", SECOND_US) for _ in range(6)))
        mobile = await begun(*(gate.work("/slow", SECOND_US, "mobile") for _ in range(2)))
        assert (gate.at_work(), gate.queue.inflight) == ([4, 2], 14)
        waited = await asyncio.gather(*shop, *mobile)
        await asyncio.gather(*slow)
        assert (gate.at_work(), gate.queue.inflight, gate.queue.queued) == ([0, 0], 0, 0)
        return [one // SECOND_US for one in waited]

    assert run(story) == [0, 0, 0, 0, 1, 1, 0, 0]  # nobody waits for the slow ones


def test_of_a_partition_what_matters_most_begins_first_and_the_oldest_of_it() -> None:
    async def story(loop: VirtualLoop) -> list[int]:
        gate = Gate(loop, places=2)
        slow = await begun(*(gate.work("/slow", 60 * SECOND_US) for _ in range(9)))
        classes = [Criticality.DEGRADED, Criticality.BULK, Criticality.BULK, Criticality.CRITICAL]
        shop = await begun(*(gate.work("/pay", SECOND_US, criticality=one) for one in classes))
        waited = await asyncio.gather(*shop)
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        return [one // SECOND_US for one in waited]

    assert run(story) == [0, 2, 3, 1]


def test_while_all_ask_for_too_much_each_has_its_share_and_no_place_is_idle() -> None:
    """Callers that come again at once, so that everybody waits; slow work has no share at all."""

    async def story(loop: VirtualLoop) -> tuple[list[int], int, int]:
        gate = Gate(loop)
        chance = random.Random(1)
        ends_us = loop.now_us() + 20 * SECOND_US

        async def caller(endpoint: str, took_us: int, name: str = "") -> None:
            while loop.now_us() < ends_us:
                await gate.work(endpoint, chance.randrange(took_us, 2 * took_us), name)

        tasks = [asyncio.ensure_future(caller("/slow", SECOND_US)) for _ in range(20)]
        tasks += [asyncio.ensure_future(caller("/pay", 10_000)) for _ in range(20)]
        tasks += [asyncio.ensure_future(caller("/x", 30_000, "mobile")) for _ in range(20)]
        least, fewest, most = [99, 99], 99, 0
        await pause_us(SECOND_US)
        while loop.now_us() < ends_us - 5 * SECOND_US:
            await pause_us(3_337)
            least = [min(pair) for pair in zip(least, gate.at_work(), strict=True)]
            fewest = min(fewest, gate.queue.inflight)
            most = max(most, gate.queue.inflight)
        await asyncio.gather(*tasks)
        assert (gate.at_work(), gate.queue.inflight, gate.queue.queued) == ([0, 0], 0, 0)
        return least, fewest, most

    least, fewest, most = run(story)
    assert least == [4, 2]
    assert fewest >= 8
    assert most <= 14


def test_a_share_is_one_of_the_number_that_is_found_now() -> None:
    async def story(loop: VirtualLoop) -> list[list[int]]:
        gate = Gate(loop)
        seen = []
        tasks = await begun(*(gate.work("/slow", 90 * SECOND_US) for _ in range(40)))
        for places in (2, 20, 1):
            gate.queue.resize(places, loop.now_us())
            shop = await begun(*(gate.work("/pay", SECOND_US) for _ in range(30)))
            seen.append(gate.at_work())
            for task in shop:
                task.cancel()
            await asyncio.gather(*shop, return_exceptions=True)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (gate.at_work(), gate.queue.inflight, gate.queue.queued) == ([0, 0], 0, 0)
        return seen

    assert run(story) == [[1, 0], [10, 0], [1, 0]]


@pytest.mark.parametrize("seed", range(5))
def test_callers_that_are_cancelled_at_any_instant_leave_nothing_behind(seed: int) -> None:
    async def story(loop: VirtualLoop) -> None:
        gate, chance = Gate(loop, places=3), random.Random(seed)
        tasks: list[asyncio.Task[int]] = []
        for _ in range(400):
            endpoint = chance.choice(["/pay", "/cart", "/slow"])
            caller = chance.choice(["", "mobile"])
            work = gate.work(endpoint, chance.randrange(1, 50_000), caller)
            tasks.append(asyncio.ensure_future(work))
            if chance.random() < 0.3:
                chance.choice(tasks).cancel()
            if chance.random() < 0.1:
                gate.queue.resize(chance.randrange(1, 8), loop.now_us())
            await pause_us(chance.randrange(1, 9_000))
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (gate.at_work(), gate.queue.inflight, gate.queue.queued) == ([0, 0], 0, 0)
        assert not any(line for one in gate.partitions.all for line in one.waiting)

    run(story)


def test_a_partition_of_nobody_and_shares_of_more_than_all_are_named() -> None:
    with pytest.raises(BadValue, match=r"partition\.endpoints"):
        PartitionSettings(share=0.5)
    with pytest.raises(BadValue, match=r"partition\.share"):
        PartitionSettings(share=0.0, callers=("a",))
