"""Fleet: dispatchers share the slots of a resource by what waits at each."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final, final

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.admission.fleet import BEAT_US, SILENT_US, FleetShare
from sluicegate.policies.admission.fleet_limit import SharedLoad, sum_of
from sluicegate.policies.admission.gate import LIMIT_MAX, Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.testing.chance import SeededChance
from tests.policies.virtual import VirtualLoop, pause_us, run

MS: Final = 1_000
S: Final = 1_000_000
WORK_MS: Final = 200
CRITICAL, BULK = Criticality.CRITICAL, Criticality.BULK


@final
class Fleet:
    """Gates in front of one engine, which serves `slots` units at a time."""

    def __init__(
        self,
        loop: VirtualLoop,
        members: int,
        slots: int,
        *,
        told: bool = True,
        known: bool = True,
    ) -> None:
        self.loop = loop
        settings = GateSettings(slots=slots if known else 0, members=members)
        self.gates = [Gate(settings) for _ in range(members)]
        self.shares = [
            FleetShare(gate, SeededChance(number)) for number, gate in enumerate(self.gates)
        ]
        self.told: list[dict[str, SharedLoad]] = [{} for _ in self.gates]
        self.engine = asyncio.Semaphore(slots)
        self.served: Counter[Criticality] = Counter()
        self.inflight = 0
        self.inflights: list[int] = []
        self.beats = [asyncio.get_running_loop().create_task(self._beat())] if told else []

    async def _beat(self) -> None:
        while True:
            await pause_us(BEAT_US)
            for number, share in enumerate(self.shares):
                self.told[number] |= share.tell(self.loop.now_us())
            slots = self.shares[0].found()
            fleet = {
                name: sum_of([told[name] for told in self.told if name in told], slots.get(name, 0))
                for name in sorted({name for told in self.told for name in told})
            }
            now_us = self.loop.now_us()
            for number, share in enumerate(self.shares):
                share.hear(self.told[number], fleet, len(self.gates), now_us, leads=number == 0)
            self.inflights.append(self.inflight)

    async def do(self, number: int, of: Criticality = CRITICAL, patience_us: int = S) -> None:
        """Work through one of the gates."""
        now_us = self.loop.now_us()
        request = Request("k", arrived_us=now_us, criticality=of, deadline_us=now_us + patience_us)
        permit = await self.gates[number].admit(request, self.loop)
        if isinstance(permit, Decision):
            return
        self.inflight += 1
        async with self.engine:
            await pause_us(WORK_MS * MS)
        self.inflight -= 1
        permit.end(Outcome.SUCCESS, self.loop.now_us())
        self.served[of] += self.loop.now_us() <= now_us + patience_us

    async def load(self, per_s: int, seconds: int) -> None:
        """Ask each gate in turn; one unit in four is CRITICAL."""
        tasks = []
        for number in range(per_s * seconds):
            of = CRITICAL if number % 4 == 0 else BULK
            at = number * 7 % len(self.gates)
            tasks.append(asyncio.get_running_loop().create_task(self.do(at, of)))
            await pause_us(S // per_s)
        await asyncio.gather(*tasks)
        for task in self.beats:
            task.cancel()


@pytest.mark.parametrize("members", [4, 16, 64])
def test_a_fleet_uses_what_a_slow_shard_can_do_for_critical_work(members: int) -> None:
    """Two slots of 200 ms serve ten a second; forty ask, of whom ten are CRITICAL."""

    async def story(loop: VirtualLoop) -> tuple[Counter[Criticality], list[int]]:
        fleet = Fleet(loop, members, 2)
        await fleet.load(40, 20)
        return fleet.served, fleet.inflights[100:-40]

    served, inflights = run(story)
    assert served.total() >= 0.8 * 200, served
    assert served[CRITICAL] >= 0.7 * 200, served
    assert sum(inflights) / len(inflights) < 4


def test_without_news_of_each_other_a_large_fleet_serves_little() -> None:
    """Each has one slot, and the two of the engine make all of them wait."""

    async def story(loop: VirtualLoop) -> Counter[Criticality]:
        fleet = Fleet(loop, 64, 2, told=False)
        await fleet.load(40, 20)
        return fleet.served

    assert run(story).total() < 0.5 * 200


def test_a_busy_dispatcher_uses_the_slots_that_idle_ones_leave() -> None:
    async def story(loop: VirtualLoop) -> int:
        fleet = Fleet(loop, 4, 8)
        busy = [asyncio.ensure_future(fleet.do(0, patience_us=60 * S)) for _ in range(100)]
        busy.append(asyncio.ensure_future(fleet.do(1)))
        await pause_us(20 * BEAT_US)
        inflight = fleet.gates[0].inflight
        for task in [*busy, *fleet.beats]:
            task.cancel()
        await asyncio.gather(*busy, *fleet.beats, return_exceptions=True)
        return inflight

    assert run(story) >= 7


def test_silence_leaves_an_equal_part() -> None:
    async def story(loop: VirtualLoop) -> list[int]:
        gate = Gate(GateSettings(slots=8, members=4))
        share = FleetShare(gate, SeededChance(1))
        resource = gate.resource(Request("k"))
        found = [resource.limit]
        fleet = {"": SharedLoad(1, 0, 0, 0, (0,) * 8)}
        share.hear({}, fleet, 4, loop.now_us())
        found.append(resource.limit)
        await pause_us(SILENT_US + 1)
        share.forget(4, loop.now_us())
        found.append(resource.limit)
        return found

    assert run(story) == [2, 7, 2]


@pytest.mark.parametrize("members", [4, 16, 64])
def test_a_fleet_finds_a_limit_that_is_not_known(members: int) -> None:
    """As above; each of a large fleet alone sees a unit end every few seconds."""

    async def story(loop: VirtualLoop) -> tuple[Counter[Criticality], list[int]]:
        fleet = Fleet(loop, members, 2, known=False)
        await fleet.load(40, 30)
        return fleet.served, fleet.inflights[200:-40]

    served, inflights = run(story)
    assert served.total() >= 0.7 * 300, served
    assert served[CRITICAL] >= 0.5 * 300, served
    assert sum(inflights) / len(inflights) < 8


def test_without_news_of_each_other_a_fleet_fills_the_engine() -> None:
    async def story(loop: VirtualLoop) -> Counter[Criticality]:
        fleet = Fleet(loop, 64, 2, told=False, known=False)
        await fleet.load(40, 30)
        return fleet.served

    assert run(story).total() < 0.2 * 300


def test_a_fleet_at_a_load_that_is_carried_has_no_limit() -> None:
    async def story(loop: VirtualLoop) -> tuple[int, set[int]]:
        fleet = Fleet(loop, 4, 8, known=False)
        await fleet.load(20, 20)
        return fleet.served.total(), {gate.resource(Request("k")).limit for gate in fleet.gates}

    assert run(story) == (400, {LIMIT_MAX})


def test_a_limit_that_was_found_is_followed_and_ends_with_the_news() -> None:
    async def story(loop: VirtualLoop) -> list[int]:
        gate = Gate(GateSettings(slots=0))
        share = FleetShare(gate, SeededChance(1))
        resource = gate.resource(Request("k"))
        found = [resource.limit]
        for slots in (6, 0, 6):
            load = SharedLoad(2, 9, 9 * S, 9 * S, (0,) * 8, slots)
            share.hear({}, {"": load}, 4, loop.now_us())
            found.append(resource.limit)
        permit = gate.admit_now(Request("k"), loop.now_us())
        assert not isinstance(permit, Decision)
        permit.end(Outcome.SUCCESS, loop.now_us())
        found.append(resource.limit)  # what one dispatcher sees does not change it
        await pause_us(SILENT_US + 1)
        share.forget(4, loop.now_us())
        found.append(resource.limit)
        return found

    assert run(story) == [LIMIT_MAX, 4, LIMIT_MAX, 4, 4, LIMIT_MAX]


def test_a_limit_found_alone_remains_when_others_join() -> None:
    async def story(loop: VirtualLoop) -> list[int]:
        gate = Gate(GateSettings(slots=0))
        share = FleetShare(gate, SeededChance(1))
        resource = gate.resource(Request("k"))
        assert resource.found is not None
        resource.found.follow(5)
        load = SharedLoad(2, 9, 9 * S, 9 * S, (0,) * 8)
        share.hear({}, {"": load}, 2, loop.now_us(), leads=True)
        return [resource.limit, share.found().get("", 0)]

    assert run(story) == [3, 5]


def test_what_has_ended_is_told_until_the_fleet_has_heard() -> None:
    async def story(loop: VirtualLoop) -> list[dict[str, SharedLoad]]:
        gate = Gate(GateSettings(slots=2))
        share = FleetShare(gate, SeededChance(1))
        permit = gate.admit_now(Request("k"), loop.now_us())
        assert not isinstance(permit, Decision)
        told = [share.tell(loop.now_us())]
        share.hear(told[0], told[0], 2, loop.now_us())
        permit.end(Outcome.SUCCESS, loop.now_us())
        told.append(share.tell(loop.now_us()))  # the fleet does not answer
        told.append(share.tell(loop.now_us()))
        share.hear(told[2], told[2], 2, loop.now_us())
        return [*told, share.tell(loop.now_us())]

    none = (0,) * 8
    ended = {"": SharedLoad(0, 1, 0, 0, none)}
    assert run(story) == [{"": SharedLoad(1, 0, 0, 0, none)}, ended, ended, {}]
