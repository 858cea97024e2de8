"""Orders of waiters, one step at a time, and the pool that uses them."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.lab.baselines.queues import (
    ORDERS,
    BoundedOrder,
    CodelOrder,
    FifoOrder,
    QueuedPermit,
    QueuedPool,
    TokenOrder,
    Waiter,
)
from sluicegate.lab.virtual_loop import VirtualLoop
from sluicegate.lab.world import World, run
from tests.lab.rigs import small

MS = 1_000


LOOP = VirtualLoop()


def waiter(arrived_us: int) -> Waiter:
    return Waiter(arrived_us, asyncio.Future(loop=LOOP))


@pytest.mark.parametrize("name", ORDERS)
def test_order_returns_what_it_took_and_is_empty_then(name: str) -> None:
    order = ORDERS[name](small(1))
    waiters = [waiter(number) for number in range(5)]
    assert all(order.arrive(each, number) for number, each in enumerate(waiters))
    served = [order.take(10) for _ in range(5)]
    assert {id(each) for each in served} == {id(each) for each in waiters}
    assert order.take(11) is None


def test_folly_rejects_in_an_overloaded_interval_what_waited_twice_the_target() -> None:
    order = CodelOrder()
    old = [waiter(0) for _ in range(60)]
    for each in old:
        order.arrive(each, 0)
    for now_ms in range(20, 140, 20):  # the first interval only looks
        assert order.take(now_ms * MS) is not None
    order.arrive(waiter(139 * MS), 139 * MS)
    assert order.take(140 * MS) is not None  # the first of an interval always passes
    assert not any(each.started.done() for each in old)
    newest = order.take(141 * MS)
    assert newest is not None
    assert newest.arrived_us == 139 * MS
    assert sum(each.started.done() for each in old) == 53


def test_token_bucket_admits_a_burst_and_then_its_rate() -> None:
    order = TokenOrder(10, 2)
    assert [order.arrive(waiter(number), number) for number in range(5)] == [True] * 2 + [False] * 3
    assert order.arrive(waiter(100_000), 100_000)
    assert len(order.waiters) == 3


def test_full_bounded_order_rejects() -> None:
    order = BoundedOrder(2)
    assert [order.arrive(waiter(0), 0) for _ in range(3)] == [True, True, False]


def test_pool_hands_its_slot_to_the_next_that_still_waits() -> None:
    async def main(world: World) -> list[str]:
        pool, ended = QueuedPool(1, FifoOrder()), list[str]()

        async def call(name: str) -> None:
            permit = await pool.admit(Request(name), world.clock)
            assert isinstance(permit, QueuedPermit)
            await world.sleep_us(10)
            ended.append(name)
            assert permit.end(Outcome.SUCCESS, world.clock.now_us())
            assert not permit.end(Outcome.SUCCESS, world.clock.now_us())

        tasks = [world.spawn(call(name), name) for name in "abc"]
        await world.sleep_us(5)
        tasks[1].cancel()
        await asyncio.wait(tasks)
        return ended

    assert run(main, 0).value == ["a", "c"]


def test_pool_tells_a_waiter_that_its_order_rejects() -> None:
    async def main(world: World) -> bool:
        pool = QueuedPool(1, BoundedOrder(1))
        await pool.admit(Request("a"), world.clock)
        held = world.spawn(pool.admit(Request("b"), world.clock), "b")
        await world.sleep_us(1)
        rejected = await pool.admit(Request("c"), world.clock)
        held.cancel()
        await asyncio.wait([held])
        return isinstance(rejected, Decision)

    assert run(main, 0).value
