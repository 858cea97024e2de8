"""How work enters: what it waits for besides the queue is not delay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import final

import pytest

from sluicegate.apps.kv.admission import HELD_US_MAX, Admission, attributes_of
from sluicegate.apps.kv.chain import GET, PolicyChain, default_weights
from sluicegate.apps.kv.quotas import Quotas
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.usage import CallerUsage
from sluicegate.contracts.access import Identity
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.key_values import CallContext
from sluicegate.contracts.reasons import QUOTA_SPENT
from sluicegate.lab.world import World, run
from sluicegate.policies.stack import StackPermit

MS = 1_000


@final
class _SlowStore:
    """A block of the quota is on its way, for so long."""

    def __init__(self, world: World, us: int) -> None:
        self._world = world
        self._us = us

    def before(self, caller: str) -> Awaitable[bool]:
        return self._bring()

    def more(self, caller: str) -> None:
        return None

    async def _bring(self) -> bool:
        await self._world.sleep_us(self._us)
        return True


def chain_of(world: World, quota_ru: int, usage: CallerUsage) -> PolicyChain:
    """What ships, with a quota for the caller `a`."""
    settings = KvSettings()
    quotas = Quotas(settings, 0, world.clock, world.chance("quotas"))
    quotas.set_quotas({"a": quota_ru})
    return PolicyChain(
        settings,
        world.chance("chain"),
        usage,
        budget=quotas.spent_from,
        weights=default_weights(),
        shard_places=64,
    )


def test_waiting_for_a_block_of_a_quota_is_no_queue() -> None:
    """Else a slow store would have everybody shed for a delay that less load cannot shorten."""
    delays: list[int] = []

    async def main(world: World) -> None:
        chain = chain_of(world, 1_000, CallerUsage())
        admission = Admission(chain, world.clock, _SlowStore(world, 300 * MS))
        now_us = world.clock.now_us()
        call = CallContext(Identity("a", ()), arrived_us=now_us - 7 * MS)
        request = admission.request(GET, "t", "t:k", "s", call, attributes_of(1, 100))
        permit = await admission.later(request)
        assert isinstance(permit, StackPermit)
        delays.append(world.clock.now_us() - request.arrived_us)
        admission.done(permit, world.clock.now_us(), 1, 100)
        await asyncio.sleep(0)

    run(main, 1)
    assert delays == [7 * MS]  # what it waited in its socket, and no more


HUGE = 1_000_000  # bytes, some 245 units


def read_at_once(count: int, size: int, took_us: int) -> list[int]:
    """When each of so many reads began, of a caller that has read small rows beside huge ones."""
    began: list[int] = []

    async def main(world: World) -> None:
        chain = chain_of(world, 400, CallerUsage())
        admission = Admission(chain, world.clock, None)
        assert chain.units.estimates is not None
        chain.units.estimates.learn_table("t", 1, HUGE, world.clock.now_us())

        async def read(size: int) -> None:
            now_us = world.clock.now_us()
            call = CallContext(Identity("a", ()), arrived_us=now_us)
            request = admission.request(GET, "t", "t:k", "s", call, attributes_of(1))
            try:
                if admission.prompt(request, now_us):
                    permit = admission.now(request, now_us)
                else:
                    permit = await admission.later(request)
            except Refused:
                return
            assert permit is not None
            began.append(world.elapsed_us)
            work_us = world.clock.now_us()
            await world.sleep_us(took_us)
            admission.done(permit, work_us, 1, size)

        for _ in range(100):
            await read(10)
            await world.sleep_us(20 * MS)
        began.clear()
        begin_us = world.elapsed_us
        await asyncio.gather(*(read(size) for _ in range(count)))
        began[:] = [one - begin_us for one in began]

    run(main, 1)
    return began


def test_who_has_read_small_rows_may_not_begin_many_huge_ones_before_one_has_ended() -> None:
    began = read_at_once(64, HUGE, 5 * MS)
    assert 10 <= len(began) <= 16  # of 245 units each, in a second of 400 with a debt of as much


@pytest.mark.parametrize("took_ms", [5, 51])
def test_small_rows_beside_huge_ones_are_all_read_and_wait_for_a_moment_at_most(
    took_ms: int,
) -> None:
    began = read_at_once(60, 10, took_ms * MS)
    assert len(began) == 60
    assert max(began) <= HELD_US_MAX


def test_an_answer_from_memory_that_is_refused_counts_in_the_class_of_its_caller() -> None:
    """It was on no page that shows refusals by class: of hot reads, most of them."""
    usage = CallerUsage()

    async def main(world: World) -> None:
        chain = chain_of(world, 1, usage)
        admission = Admission(chain, world.clock, None)
        now_us = world.clock.now_us()
        calls = [
            CallContext(Identity("a", (), criticality=Criticality.CRITICAL)),
            CallContext(Identity("a", ()), criticality=Criticality.BULK),
        ]
        for _ in range(10):
            admission.cached("a", now_us, calls[0])
        for call in calls:
            with pytest.raises(Refused):
                admission.cached("a", now_us, call)

    run(main, 1)
    spent = QUOTA_SPENT.name
    assert usage.refusals() == {(spent, Criticality.CRITICAL): 1, (spent, Criticality.BULK): 1}
    assert usage.reasons == {spent: 2}
