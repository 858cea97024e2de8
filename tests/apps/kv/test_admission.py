"""How work enters: what it waits for besides the queue is not delay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import final

import pytest

from sluicegate.apps.kv.admission import Admission, attributes_of
from sluicegate.apps.kv.chain import GET, PolicyChain, default_weights
from sluicegate.apps.kv.loop_lateness import LoopLateness
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
from sluicegate.service.background import LAG_TICK_US

MS = 1_000


@final
class _SlowStore:
    """A block of the quota is on its way, for so long."""

    def __init__(self, world: World, us: int) -> None:
        self._world = world
        self._us = us

    def before(self, caller: str, now_us: int) -> Awaitable[bool]:
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
    return PolicyChain(settings, usage, budget=quotas.spent_from, weights=default_weights())


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


def charged_of(took_us: int, late_us: int, count: int = 40) -> list[int]:
    """Read `count` times from an engine of 5 ms; return the charge of each read.

    The last answer is handled after `took_us`, of which the loop was late for `late_us`.
    """
    charged: list[int] = []

    async def main(world: World) -> None:
        chain = chain_of(world, 100_000, CallerUsage())
        lateness = LoopLateness()
        admission = Admission(chain, world.clock, None, lateness=lateness)

        async def engine(us: int, late: int) -> None:
            if late:
                lateness.record(0, world.clock.now_us())
                await world.sleep_us(us - late)
                lateness.record(late, world.clock.now_us() + late)
                await world.sleep_us(late)
            else:
                await world.sleep_us(us)

        for number in range(count):
            call = CallContext(Identity("a", ()), arrived_us=world.clock.now_us())
            request = admission.request(GET, "t", "t:k", "s", call)
            permit = await admission.later(request)
            began_us = world.clock.now_us()
            last = number == count - 1
            await admission.in_time(
                permit, engine(took_us if last else 5 * MS, late_us if last else 0)
            )
            admission.done(permit, began_us, 1, 100)
            charged.append(request.cost_mru)

    run(main, 1)
    return charged


def test_lateness_of_own_loop_is_not_charged() -> None:
    *usual, late = charged_of(15 * MS, 10 * MS)
    assert late == usual[-1]


def test_slower_engine_within_band_is_charged() -> None:
    *usual, slow = charged_of(7 * MS, 0)
    assert slow == usual[-1] + 200


def test_lateness_counts_what_timer_has_not_reported_yet() -> None:
    lateness = LoopLateness()
    assert lateness.total_us(1_000_000) == 0  # no timer runs
    lateness.record(300, 1_000_000)
    assert lateness.total_us(1_000_000 + LAG_TICK_US) == 300
    assert lateness.total_us(1_000_000 + LAG_TICK_US + 40) == 340
    lateness.record(40, 1_000_000 + LAG_TICK_US + 40)
    assert lateness.total_us(1_000_000 + LAG_TICK_US + 50) == 340


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
