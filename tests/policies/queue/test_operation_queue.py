"""Heavy work has a line of its own, and quick work never waits behind it."""

from __future__ import annotations

import asyncio

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import NOTHING_HELD
from sluicegate.contracts.request import Request
from sluicegate.policies.queue.operation_queue import OperationQueue
from sluicegate.policies.queue.queue import QueuePermit, QueueSettings
from sluicegate.policies.stack import Stack, StackPermit, waits
from sluicegate.testing import HandClock


def scan() -> Request:
    return Request("k", operation="scan")


def test_only_what_is_named_takes_a_place_of_the_lane() -> None:
    clock = HandClock()
    lane = OperationQueue(["scan"], QueueSettings(places=1))
    now_us = clock.now_us()
    assert lane.ready(scan(), now_us)
    permit = lane.admit_now(scan(), now_us)
    assert isinstance(permit, QueuePermit)
    assert not lane.ready(scan(), now_us)
    quick = Request("k", operation="get")
    assert lane.ready(quick, now_us)
    assert lane.admit_now(quick, now_us) is NOTHING_HELD
    assert asyncio.run(lane.admit(quick, clock)) is NOTHING_HELD
    assert lane.stats().inflight == 1
    permit.end(Outcome.SUCCESS, now_us)
    assert lane.ready(scan(), now_us)


def test_a_class_is_owed_there_only_what_would_wait_there() -> None:
    async def story() -> None:
        clock = HandClock()
        lane = OperationQueue(["scan"], QueueSettings(places=1, floor_permille=333))
        now_us = clock.now_us()
        holder = lane.admit_now(Request("k", operation="scan"), now_us)
        assert not lane.has_line(scan())
        waiting = [
            asyncio.ensure_future(lane.admit(Request("k", operation="scan"), clock))
            for _ in range(5)
        ]
        for one in waiting[:4]:
            await asyncio.sleep(0)
            assert isinstance(holder, QueuePermit)
            holder.end(Outcome.SUCCESS, now_us)
            holder = await one
        low = Request("k", operation="scan", criticality=Criticality.BULK)
        assert lane.has_line(low)
        assert lane.owes(low)
        quick = Request("k", operation="get", criticality=Criticality.BULK)
        assert not lane.has_line(quick)
        assert not lane.owes(quick)
        assert isinstance(holder, QueuePermit)
        holder.end(Outcome.SUCCESS, now_us)
        await waiting[4]

    asyncio.run(story())


def test_what_waits_in_it_waits_for_its_own_kind_and_nobody_hears_of_it() -> None:
    class Ear:
        delays: list[int] = []  # noqa: RUF012 - one ear, one list

        def record_wait(self, request: Request, delay_us: int, now_us: int) -> None:
            self.delays.append(delay_us)

        def record_refusal(
            self, request: Request, stage: str, decision: Decision, now_us: int
        ) -> None: ...

        def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None: ...

    async def story() -> None:
        clock = HandClock()
        lane = OperationQueue(["scan"], QueueSettings(places=1, wait_us_max=10_000_000))
        plain = OperationQueue(["scan", "get"], QueueSettings(places=9))
        stack = Stack(waits("lane", lane, observe=False), waits("line", plain), observers=[Ear()])
        first = await stack.admit(scan(), clock)
        assert isinstance(first, StackPermit)
        later = scan()
        later.arrived_us = clock.now_us()
        waiting = asyncio.ensure_future(stack.admit(later, clock))
        await asyncio.sleep(0)
        clock.advance(us=3_000)
        first.end(Outcome.SUCCESS, clock.now_us())
        assert isinstance(await waiting, StackPermit)
        assert Ear.delays == [0, 0]

    asyncio.run(story())
