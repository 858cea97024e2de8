"""Server: the chain of a service in front of shards with workers, and its callers.

A caller is of any class, may claim another, may give up at any await, and may need a shard
that is slow, paused or failing. The stage keeps its own counts of waiting and work, and compares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from math import sqrt
from typing import Final, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Measured, Request
from sluicegate.lab.backend import Backend
from sluicegate.lab.durations import Exponential
from sluicegate.lab.hunt.chain import REQUEST_BYTES, HuntChain
from sluicegate.lab.hunt.record import AT_WORK, CANCELLED, DONE, REFUSED, HuntRecord, HuntUnit
from sluicegate.lab.hunt.setup import HuntLoad, Setup
from sluicegate.lab.hunt.stage import (
    COURSE_US,
    MS,
    JumpClock,
    active,
    play_callers,
    recheck,
    settled,
    speeds_of,
)
from sluicegate.lab.world import World
from sluicegate.policies.admission.settings import WAITER_BYTES
from sluicegate.policies.stack import StackPermit
from sluicegate.testing import START_US

CANCEL_SHARE: Final = 0.05
PAYERS_MIN: Final = 50  # of a load, before what it paid is compared
PATIENCE: Final = 5  # a deadline of so many mean services is missed by 1 in 150
WASTED_MAX: Final = 0.02  # twice what a rule at the p99 lets through
LEARNED_US: Final = 1_000_000  # by then the rule knows how long work takes
CHANCE_SIGMAS: Final = 6.0
CALM_US: Final = 600_000_000


@final
class _Server:
    """The chain, the shards, and where each unit is."""

    def __init__(self, world: World, setup: Setup, record: HuntRecord) -> None:
        self.world, self.setup, self.record = world, setup, record
        self.clock = JumpClock(world)
        self.waiting = self.at_work = self.entered = 0
        knob = setup.knob
        workers = knob("workers", 8)
        self.shards = [f"s{number}" for number in range(knob("shards", 1))]
        service = Exponential(float(knob("service_us", 10_000)))
        courses = speeds_of(setup, self.shards)
        each = max(workers // len(self.shards), 1)
        self.backends = {
            shard: Backend(world, service, name=shard, workers=each, speed_profile=courses[shard])
            for shard in self.shards
        }
        self.chain = HuntChain(world, setup, record, self.shards)
        self.at_work_of = dict.fromkeys(self.shards, 0)
        self.true_mru: dict[str, int] = {}
        self.done_of: dict[str, int] = {}
        self.admitted_lately = 0
        self.cancellable: dict[asyncio.Task[object], None] = {}  # waiters that may give up
        self.cancel_chance = world.chance("spite")
        self.calls_begun: dict[str, int] = {}

    async def one(self, number: int, load: HuntLoad) -> None:
        """One unit of work, from its arrival to its end."""
        draw = self.world.chance(f"who/{load.name}").draw
        request = self._request(load, int(draw() * load.callers), draw())
        unit = HuntUnit(number, request.arrived_us, request.deadline_us)
        unit.shard = request.shard
        self.record.units.append(unit)
        arrived_at_us = self.world.elapsed_us
        self.entered += 1
        self.waiting += 1
        task = asyncio.current_task()
        if task is not None and load.cancelled_permille:
            self.cancellable[task] = None
        try:
            admission = await self.chain.stack.admit(request, self.clock)
        except asyncio.CancelledError:
            unit.status = CANCELLED
            raise
        finally:
            self.waiting -= 1
            if task is not None:
                self.cancellable.pop(task, None)
            unit.criticality = request.criticality
            unit.ended_us = self.clock.now_us()
            unit.waited_us = self.world.elapsed_us - arrived_at_us
        if isinstance(admission, Decision):
            unit.status = REFUSED
            reason = admission.reason
            unit.reason = "" if reason is None else reason.name
            return
        await self._work(request, load, unit, admission)

    async def _work(
        self, request: Request, load: HuntLoad, unit: HuntUnit, permit: StackPermit
    ) -> None:
        record, shard = self.record, request.shard
        unit.status, unit.begun_us = AT_WORK, self.clock.now_us()
        self.at_work += 1
        self.at_work_of[shard] += 1
        self.admitted_lately += 1
        self.calls_begun[request.caller] = self.calls_begun.get(request.caller, 0) + 1
        record.level(f"work in {shard}", self.at_work_of[shard])
        if request.criticality < load.allowed:
            sentence = f"{request.caller} was admitted as {request.criticality.name}"
            record.add_violation("clamped", f"{sentence}, and may be {load.allowed.name}")
        outcome = Outcome.IGNORE
        unit.status = CANCELLED
        began_us = self.world.elapsed_us
        try:
            work_us = max(self.backends[shard].draw_us(cost=load.rows), 1)
            await self.backends[shard].serve(work_us)
            self._fail_by_fault(load, shard)
            outcome, unit.status = Outcome.SUCCESS, DONE
            service_us = self.world.elapsed_us - began_us
            request.measured = Measured(service_us=service_us, rows=load.rows)
            self._count(load)
        except Unavailable:
            outcome, unit.status = Outcome.DROPPED, DONE
        finally:
            now_us = unit.ended_us = self.clock.now_us()
            self.at_work -= 1
            self.at_work_of[shard] -= 1
            permit.end(outcome, now_us)
            self._cancel_a_waiter()
            if self.world.chance("twice").draw() < 0.1 and permit.end(Outcome.SUCCESS, now_us):
                record.add_violation("ends once", "a permit ended twice")

    def _cancel_a_waiter(self) -> None:
        """Cancel a waiter now and then, at the very instant at which another gets a place."""
        if self.cancellable and self.cancel_chance.draw() < CANCEL_SHARE:
            waiting = list(self.cancellable)
            waiting[int(self.cancel_chance.draw() * len(waiting))].cancel()

    def _request(self, load: HuntLoad, caller: int, draw: float) -> Request:
        now_us = self.clock.now_us()
        attributes = {"criticality": load.claimed.name, "rows": str(load.rows_said or load.rows)}
        return Request(
            f"k{int(draw * load.keys)}",
            caller=f"{load.name}-{caller}",
            criticality=load.claimed,
            arrived_us=now_us,
            deadline_us=now_us + load.timeout_ms * MS if load.timeout_ms else None,
            operation=load.name,
            shard=self.shards[int(draw * len(self.shards))],
            attributes=attributes,
        )

    def _fail_by_fault(self, load: HuntLoad, shard: str) -> None:
        fault = active(self.setup, "fail", self.world.elapsed_us, shard)
        if fault is not None and self.world.chance("fail").draw() * 1_000 < fault.much:
            raise Unavailable(shard, "it was set to fail")

    def _count(self, load: HuntLoad) -> None:
        weights = self.chain.units.settings.weights
        mru = weights.cost_mru(load.rows, 0, 0.0)
        self.true_mru[load.name] = self.true_mru.get(load.name, 0) + mru
        self.done_of[load.name] = self.done_of.get(load.name, 0) + 1

    # What must be so at any instant.

    def disagreements(self) -> Iterator[str]:
        """Yield counts that do not agree with what the callers have."""
        stack, gate = self.chain.stack.stats(), self.chain.gate.stats()
        inside = self.waiting + self.at_work
        pairs = (
            ("entered the stack", stack.entered, self.entered),
            ("entering it", stack.entering, self.waiting),
            ("under way in it", stack.under_way, self.at_work),
            ("waiting in the queue", gate.queued, self.waiting),
            ("in slots of the queue", gate.inflight, self.at_work),
            ("under way for request units", self.chain.units.stats().under_way, inside),
        )
        for name, theirs, ours in pairs:
            if theirs != ours:
                yield f"{name}: the policy says {theirs:,}, and there are {ours:,}"

    def idle_places(self) -> Iterator[str]:
        """Yield it when a unit waits while a slot is free."""
        for shard, resource in self.chain.gate.resources.items():
            waiting = resource.queue.waiting
            if waiting and resource.inflight < resource.limit:
                slots = f"{resource.inflight} of {resource.limit} slots of {shard} are taken"
                yield f"{waiting} wait, and {slots}"


async def play_server(world: World, setup: Setup, record: HuntRecord) -> None:
    """The whole play."""
    server = _Server(world, setup, record)
    for fault in setup.faults:
        if fault.what == "jump":
            world.call_at_us(fault.from_ms * MS, server.clock.jump, fault.much * MS)
    course = record.courses.setdefault("what is admitted in half a second", [])
    record.step_us = COURSE_US

    async def sample() -> None:
        queue = server.chain.gate.stats()
        record.level("units in line", queue.queued)
        record.level("bytes in line", queue.queued * (WAITER_BYTES + REQUEST_BYTES))
        for sentence in await recheck(server.disagreements):
            record.add_violation("conserved", sentence)
        for sentence in await recheck(server.idle_places):
            record.add_violation("no idle hands", sentence)
        if world.elapsed_us >= (len(course) + 1) * COURSE_US:
            course.append((world.elapsed_us, server.admitted_lately))
            server.admitted_lately = 0

    await play_callers(world, setup, server.one, sample)
    # A quota that is filled each second passes in gusts; that is what it is, and no controller's.
    if setup.knob("workers", 8) >= 4 and not server.chain.epoch_us:
        record.settled = settled(setup, 6_000_000, 6_000_000)
    await _end(server)


async def _end(server: _Server) -> None:
    """When all has ended, and after a long calm."""
    world, record = server.world, server.record
    for sentence in await recheck(server.disagreements):
        record.add_violation("conserved", sentence)
    left = record.left
    left["waiting"], left["at work"] = server.waiting, server.at_work
    left["in slots"] = server.chain.gate.inflight
    left["bytes in line"] = server.chain.gate.queued_bytes
    paid_of: dict[str, int] = {}
    for caller, mru in server.chain.budget.paid_mru.items():
        load = caller.rpartition("-")[0]
        paid_of[load] = paid_of.get(load, 0) + mru
    for load, true_mru in server.true_mru.items():
        if server.done_of[load] >= PAYERS_MIN and 2 * paid_of.get(load, 0) < true_mru:
            sentence = f"{load} paid {paid_of.get(load, 0):,} mRU for work of {true_mru:,}"
            record.add_violation("who reads pays", sentence)
    for caller, paid_mru in server.chain.budget.paid_mru.items():
        if paid_mru and caller not in server.calls_begun:
            sentence = f"{caller} paid {paid_mru:,} mRU, and nothing of it was begun"
            record.add_violation("who reads pays", sentence)
    _check_waste(server)
    await world.sleep_us(CALM_US)
    now_us = server.clock.now_us()
    for member in Criticality:
        price = server.chain.prices.price_milli(Request("quiet", criticality=member), now_us)
        if price != 1_000:
            sentence = f"a unit costs {member.name} {price:,} thousandths after ten calm minutes"
            record.add_violation("let go", sentence)


def _check_waste(server: _Server) -> None:
    """Where places are workers and a deadline is many services long, the slack rule leaves 1%."""
    setup, service_us = server.setup, server.setup.knob("service_us", 10_000)
    if setup.faults or setup.knob("shards", 1) > 1 or not setup.knob("slots", 0):
        return
    if setup.knob("slots", 0) > setup.knob("workers", 8):
        return
    for number, load in enumerate(setup.loads):
        if load.timeout_ms * MS < PATIENCE * service_us * load.rows:
            continue
        ended = [
            unit
            for unit in server.record.units
            if unit.load == number
            and unit.status == DONE
            and unit.deadline_us is not None
            and unit.arrived_us >= START_US + LEARNED_US
        ]
        late = sum(unit.ended_us > (unit.deadline_us or 0) for unit in ended)
        if late > WASTED_MAX * len(ended) + CHANCE_SIGMAS * sqrt(WASTED_MAX * len(ended)):
            sentence = f"{late:,} of {len(ended):,} units of {load.name} ended after their deadline"
            server.record.add_violation("not in vain", sentence)
