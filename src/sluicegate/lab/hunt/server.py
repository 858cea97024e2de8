"""Server: the chain of a service in front of shards with workers, and who comes.

Whoever comes is of any class, may claim another, may give up at any await, and may need a shard
that is slow, paused or failing. The stage keeps its own count of who is where, and compares.
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
from sluicegate.contracts.reasons import BULKHEAD_FULL
from sluicegate.contracts.request import Measured, Request
from sluicegate.lab.backend import Backend
from sluicegate.lab.hunt.chain import REQUEST_BYTES, Chain
from sluicegate.lab.hunt.setup import Load, Setup
from sluicegate.lab.hunt.stage import (
    COURSE_US,
    MS,
    Crowd,
    JumpClock,
    active,
    courses_of,
    sample_us,
    second_look,
    settled,
)
from sluicegate.lab.hunt.tale import AT_WORK, CANCELLED, DONE, REFUSED, Tale, Unit
from sluicegate.lab.spans import Exponential
from sluicegate.lab.world import World
from sluicegate.policies.queue.queue import WAITER_BYTES
from sluicegate.policies.stack import StackPermit
from sluicegate.testing import START_US

SPITE: Final = 0.05
PAYERS_MIN: Final = 50  # of a load, before what it paid is compared
PATIENCE: Final = 5  # a deadline of so many mean services is missed by 1 in 150
WASTED_MAX: Final = 0.02  # twice what a rule at the p99 lets through
LEARNED_US: Final = 1_000_000  # by then the rule knows how long work takes
CHANCE_SIGMAS: Final = 6.0
RESTED_US: Final = 3_000_000
SLOW_PERMILLE: Final = 200
NOTICED_US: Final = 10_000_000
CALM_US: Final = 600_000_000


@final
class Server:
    """The chain, the shards, and who is where."""

    def __init__(self, world: World, setup: Setup, tale: Tale) -> None:
        self.world, self.setup, self.tale = world, setup, tale
        self.clock = JumpClock(world)
        self.waiting = self.at_work = self.entered = 0
        knob = setup.knob
        workers = knob("workers", 8)
        self.shards = [f"s{number}" for number in range(knob("shards", 1))]
        service = Exponential(float(knob("service_us", 10_000)))
        courses = courses_of(setup, self.shards)
        each = max(workers // len(self.shards), 1)
        self.backends = {
            shard: Backend(world, service, name=shard, workers=each, course=courses[shard])
            for shard in self.shards
        }
        self.chain = Chain(world, setup, tale, self.shards)
        self.at_work_of = dict.fromkeys(self.shards, 0)
        self.true_mru: dict[str, int] = {}
        self.done_of: dict[str, int] = {}
        self.admitted_lately = 0
        self.fickle: dict[asyncio.Task[object], None] = {}  # who wait, and may give up
        self.spite = world.chance("spite")
        self.known_slow = False
        self.limit_seen, self.busiest, self.rest_us = 0, 0, 0
        self.calls_begun: dict[str, int] = {}

    async def one(self, number: int, load: Load) -> None:
        """One unit of work, from its arrival to its end."""
        draw = self.world.chance(f"who/{load.name}").draw
        request = self._request(load, int(draw() * load.callers), draw())
        unit = Unit(number, request.arrived_us, request.deadline_us)
        unit.shard = request.shard
        self.tale.units.append(unit)
        came_us = self.world.elapsed_us
        self.entered += 1
        self.waiting += 1
        task = asyncio.current_task()
        if task is not None and load.cancelled_permille:
            self.fickle[task] = None
        try:
            admission = await self.chain.stack.admit(request, self.clock)
        except asyncio.CancelledError:
            unit.fate = CANCELLED
            raise
        finally:
            self.waiting -= 1
            if task is not None:
                self.fickle.pop(task, None)
            unit.criticality = request.criticality
            unit.ended_us = self.clock.now_us()
            unit.waited_us = self.world.elapsed_us - came_us
        if isinstance(admission, Decision):
            unit.fate = REFUSED
            reason = admission.reason
            if reason is BULKHEAD_FULL:
                self._really_full(request.shard)
            unit.reason = "" if reason is None else reason.name
            return
        await self._work(request, load, unit, admission)

    async def _work(self, request: Request, load: Load, unit: Unit, permit: StackPermit) -> None:
        tale, shard = self.tale, request.shard
        unit.fate, unit.begun_us = AT_WORK, self.clock.now_us()
        self.at_work += 1
        self.at_work_of[shard] += 1
        self.admitted_lately += 1
        self.busiest = max(self.busiest, self.at_work)
        self.calls_begun[request.caller] = self.calls_begun.get(request.caller, 0) + 1
        tale.level("work at once", self.at_work)
        tale.level("places taken", self.chain.queue.inflight)
        tale.level("past the gate", self.chain.gate.inflight)
        tale.level("work in all shards", self.at_work)
        tale.level(f"work in {shard}", self.at_work_of[shard])
        if request.criticality < load.allowed:
            sentence = f"{request.caller} was admitted as {request.criticality.name}"
            tale.odd("clamped", unit.begun_us, f"{sentence}, and may be {load.allowed.name}")
        outcome = Outcome.IGNORE
        unit.fate = CANCELLED
        began_us = self.world.elapsed_us
        try:
            work_us = max(self.backends[shard].draw_us(cost=load.rows), 1)
            await self.backends[shard].serve(work_us)
            self._perhaps_fail(load, shard)
            outcome, unit.fate = Outcome.SUCCESS, DONE
            service_us = self.world.elapsed_us - began_us
            request.measured = Measured(service_us=service_us, rows=load.rows)
            self._count(load)
        except Unavailable:
            outcome, unit.fate = Outcome.DROPPED, DONE
        finally:
            now_us = unit.ended_us = self.clock.now_us()
            self.at_work -= 1
            self.at_work_of[shard] -= 1
            permit.end(outcome, now_us)
            self._give_up_now()
            if self.world.chance("twice").draw() < 0.1 and permit.end(Outcome.SUCCESS, now_us):
                tale.odd("ends once", now_us, "a permit ended twice")
            if self.chain.adaptive and not self.chain.gated:
                self._resize(request, outcome, now_us - unit.begun_us, now_us)

    def _give_up_now(self) -> None:
        """Now and then one gives up at the very instant at which somebody is given a place."""
        if self.fickle and self.spite.draw() < SPITE:
            waiting = list(self.fickle)
            waiting[int(self.spite.draw() * len(waiting))].cancel()

    def _resize(self, request: Request, outcome: Outcome, took_us: int, now_us: int) -> None:
        """The number of places is the limit that `concurrency` finds; only its number is used."""
        if outcome is Outcome.IGNORE:
            return
        dropped = outcome is Outcome.DROPPED
        number, before = self.chain.gate.number, self.chain.gate.limit
        number.learn(took_us, self.at_work + 1, dropped, now_us, self.chain.gate.chance)
        if number.limit != before:
            self.chain.queue.resize(number.limit, now_us)

    def _request(self, load: Load, caller: int, draw: float) -> Request:
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

    def _perhaps_fail(self, load: Load, shard: str) -> None:
        fault = active(self.setup, "fail", self.world.elapsed_us, shard)
        if fault is not None and self.world.chance("fail").draw() * 1_000 < fault.much:
            raise Unavailable(shard, "it was told to fail")

    def _count(self, load: Load) -> None:
        weights = self.chain.units.settings.weights
        mru = weights.cost_mru(load.rows, 0, 0.0)
        self.true_mru[load.name] = self.true_mru.get(load.name, 0) + mru
        self.done_of[load.name] = self.done_of.get(load.name, 0) + 1

    def look_at_picture(self) -> None:
        """Once it is known that everything is slow, that stays known while it lasts."""
        now_us = self.world.elapsed_us
        fault = active(self.setup, "slow", now_us, "")
        if fault is None or fault.where or fault.much > SLOW_PERMILLE:
            self.known_slow = False
            return
        if now_us - fault.from_ms * MS < NOTICED_US:
            return
        slow = self.chain.stress.read(self.clock.now_us()).slow
        if self.known_slow and not slow:
            since_s = (now_us - fault.from_ms * MS) / 1e6
            sentence = f"all is {1_000 // fault.much} times as slow, and after {since_s:.0f} s"
            self.tale.odd("known as slow", now_us, f"{sentence} that counts as healthy")
        self.known_slow = slow

    def look_at_limit(self) -> None:
        """Over three of the limit's windows with less than half of it used it must not rise."""
        if not self.chain.adaptive and not self.chain.gated:
            return
        limit, now_us = self.chain.gate.limit, self.world.elapsed_us
        if limit > self.limit_seen or 2 * self.busiest >= self.limit_seen:
            rested_us = now_us - self.rest_us
            if self.limit_seen and limit > self.limit_seen and rested_us > RESTED_US:
                sentence = f"the limit rose from {self.limit_seen} to {limit} after a rest of"
                self.tale.odd("no growth at rest", now_us, f"{sentence} {rested_us:,} us")
            self.rest_us = now_us
        self.limit_seen, self.busiest = limit, self.at_work

    def _really_full(self, shard: str) -> None:
        cap = self.chain.bulkhead.limit(shard)
        if self.at_work_of[shard] < cap and self.at_work < self.chain.pool:
            sentence = f"{shard} refused with {self.at_work_of[shard]} of {cap} at work"
            self.tale.odd("refused for a reason", self.world.elapsed_us, sentence)

    # What must be so at any instant.

    def disagreements(self) -> Iterator[str]:
        """Counts that do not agree with what the callers see."""
        stack, queue = self.chain.stack.stats(), self.chain.queue.stats()
        inside = self.waiting + self.at_work
        gated = self.chain.gate.inflight
        pairs = (
            ("entered the stack", stack.entered, self.entered),
            ("entering it", stack.entering, self.waiting),
            ("under way in it", stack.under_way, self.at_work),
            ("waiting in the queue", queue.queued, self.waiting),
            ("in places of the queue", queue.inflight, self.at_work),
            ("past the gate", gated, self.at_work if self.chain.gated else 0),
            ("in the bulkhead", self.chain.bulkhead.inflight, self.at_work),
            ("under way for the deadline", self.chain.deadline.stats().under_way, inside),
            ("under way for request units", self.chain.units.stats().under_way, inside),
        )
        for name, theirs, ours in pairs:
            if theirs != ours:
                yield f"{name}: the policy says {theirs:,}, and there are {ours:,}"

    def idle_hands(self) -> Iterator[str]:
        """Who waits while a place is free."""
        queue = self.chain.queue
        if queue.inflight < queue.places and queue.stats().queued:
            taken = f"{queue.inflight} of {queue.places} places are taken"
            yield f"{queue.stats().queued} wait, and {taken}"


async def play_server(world: World, setup: Setup, tale: Tale) -> None:
    """The whole play."""
    server = Server(world, setup, tale)
    for fault in setup.faults:
        if fault.what == "jump":
            world.call_at_us(fault.from_ms * MS, server.clock.jump, fault.much * MS)
        elif fault.what == "reshard":
            for at_ms, cap in ((fault.from_ms, fault.much), (fault.until_ms, server.chain.cap)):
                world.call_at_us(at_ms * MS, server.chain.reshard, server.shards, cap, tale)
    over = False

    async def sample() -> None:
        course = tale.courses.setdefault("what is admitted in half a second", [])
        tale.step_us = COURSE_US
        next_us = COURSE_US
        while not over:
            await world.sleep_us(sample_us(setup))
            queue = server.chain.queue.stats()
            tale.level("units in line", queue.queued)
            tale.level("bytes in line", queue.queued * (WAITER_BYTES + REQUEST_BYTES))
            server.look_at_limit()
            server.look_at_picture()
            for sentence in await second_look(server.disagreements):
                tale.odd("conserved", world.elapsed_us, sentence)
            for sentence in await second_look(server.idle_hands):
                tale.odd("no idle hands", world.elapsed_us, sentence)
            if world.elapsed_us >= next_us:
                course.append((world.elapsed_us, server.admitted_lately))
                server.admitted_lately = 0
                next_us += COURSE_US

    watching = world.spawn(sample(), "sampler")
    await Crowd(world, setup).come(server.one)
    over = True
    await watching
    # A quota that is filled each second passes in gusts; that is what it is, and no controller's.
    if setup.knob("workers", 8) >= 4 and not server.chain.epoch_us:
        tale.settled = settled(setup, 6_000_000, 6_000_000)
    await _end(server)


async def _end(server: Server) -> None:
    """When all has ended, and after a long calm."""
    world, tale = server.world, server.tale
    for sentence in await second_look(server.disagreements):
        tale.odd("conserved", world.elapsed_us, sentence)
    left = tale.left
    left["waiting"], left["at work"] = server.waiting, server.at_work
    if not server.chain.parts_adapt:  # those keep what they have learned
        left["bulkhead compartments"] = server.chain.bulkhead.stats().shards
    left["past the gate"] = server.chain.gate.inflight
    left["bytes in line"] = server.chain.queue.stats().queued_bytes
    paid_of: dict[str, int] = {}
    for caller, mru in server.chain.budget.paid_mru.items():
        load = caller.rpartition("-")[0]
        paid_of[load] = paid_of.get(load, 0) + mru
    for load, true_mru in server.true_mru.items():
        if server.done_of[load] >= PAYERS_MIN and 2 * paid_of.get(load, 0) < true_mru:
            sentence = f"{load} paid {paid_of.get(load, 0):,} mRU for work of {true_mru:,}"
            tale.odd("who reads pays", world.elapsed_us, sentence)
    for caller, paid_mru in server.chain.budget.paid_mru.items():
        if paid_mru and caller not in server.calls_begun:
            sentence = f"{caller} paid {paid_mru:,} mRU, and nothing of it was begun"
            tale.odd("who reads pays", world.elapsed_us, sentence)
    _look_at_waste(server)
    await world.sleep_us(CALM_US)
    now_us = server.clock.now_us()
    for member in Criticality:
        price = server.chain.prices.price_milli(member, now_us)
        if price != 1_000:
            sentence = f"a unit costs {member.name} {price:,} thousandths after ten calm minutes"
            tale.odd("let go", world.elapsed_us, sentence)
    quiet = Request("quiet", caller="quiet", criticality=Criticality.BULK)
    if isinstance(server.chain.shed.admit(quiet, now_us), Decision):
        tale.odd("let go", world.elapsed_us, "BULK is shed after ten calm minutes")


def _look_at_waste(server: Server) -> None:
    """Where places are workers and a deadline is many services long, the slack rule leaves 1%."""
    setup, service_us = server.setup, server.setup.knob("service_us", 10_000)
    if setup.faults or setup.knob("shards", 1) > 1 or setup.knob("adaptive", 0):
        return
    if setup.knob("places", 0) > setup.knob("workers", 8):
        return
    for number, load in enumerate(setup.loads):
        if load.timeout_ms * MS < PATIENCE * service_us * load.rows:
            continue
        ended = [
            unit
            for unit in server.tale.units
            if unit.load == number
            and unit.fate == DONE
            and unit.deadline_us is not None
            and unit.arrived_us >= START_US + LEARNED_US
        ]
        late = sum(unit.ended_us > (unit.deadline_us or 0) for unit in ended)
        if late > WASTED_MAX * len(ended) + CHANCE_SIGMAS * sqrt(WASTED_MAX * len(ended)):
            sentence = f"{late:,} of {len(ended):,} units of {load.name} ended after their deadline"
            server.tale.odd("not in vain", server.world.elapsed_us, sentence)
