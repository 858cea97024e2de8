"""Dispatcher: what `sluicegate kv` ships, whole, before an engine of slots, and its callers.

Nothing is composed here: the chain, its quotas and its settings are those of a process
(`lab/rigs/dispatcher.py`). Callers have quotas of 1.5 times what their busiest second needs. What
goes wrong is the engine: it is slow, a shard of it is, or it stands still. So what breaks here is
what users would see: harm done by the defence.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, sqrt
from typing import Final, final

from sluicegate.apps.kv.settings import KvSettings
from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.hunt.record import DONE, REFUSED, HuntRecord, HuntUnit
from sluicegate.lab.hunt.setup import HuntLoad, Setup
from sluicegate.lab.hunt.stage import MS, arrivals_of
from sluicegate.lab.rigs.dispatcher import US, EngineSpell, KvCaller, KvEnd, KvRig, KvRun, play_in
from sluicegate.lab.world import World

QUOTA_TIMES: Final = 1.5
SIGMAS: Final = 3.0  # a quota is for the busiest second
ROOM: Final = 0.6  # of the slots of a shard that its work may fill, for it to be uncrowded
ROOM_SIGMAS: Final = 5.0  # and at no time more than all of its places
# Of what a class asks of a healthy shard. The bar of the drills is a thousandth; a few by chance.
REFUSED_MAX: Final = 0.01
FEW: Final = 3
AFTER_US: Final = 1 * US  # what a fault of everything leaves behind is over by then
# 1% of what is shed passes, and the queue owes each class as much of what is served, and one unit
# after four seconds of an engine that does little. An engine of 5 a second before 32 places, which
# are as many as there are at first, breaks it: what it has begun lasts for 6 s.
SAMPLE_US_MAX: Final = 10 * US
ASKED_MIN: Final = 100  # meanwhile; who asks seldom may have no luck


def rig_of(setup: Setup) -> KvRig:
    """The rig that a setup says: a caller for each load, an engine with its faults."""
    knob = setup.knob
    shards = knob("shards", 1)
    work_us = knob("service_us", 10_000)
    memoryless = bool(
        knob("memoryless", 0)
    )  # its p95, which is what is charged, is 3 times its mean
    return KvRig(
        callers=tuple(_caller(load, work_us * (3 if memoryless else 1)) for load in setup.loads),
        span_us=setup.span_us,
        settings=KvSettings(),
        shards=shards,
        slots=knob("slots", 8),
        slots_by_shard=shards > 1,
        work_us=work_us,
        even_work=not memoryless,
        course=tuple(_course(setup)),
    )


def _caller(load: HuntLoad, work_us: int) -> KvCaller:
    busiest = load.per_s + SIGMAS * sqrt(load.per_s)
    read_ru = 1.0 + 0.1 + 0.025 + 0.1 * work_us / 1_000
    return KvCaller(
        name=load.name,
        arrivals=arrivals_of(load),
        criticality=load.allowed,
        deadline_us=load.timeout_ms * MS or None,
        quota_ru=ceil(QUOTA_TIMES * busiest * read_ru),
    )


def _course(setup: Setup) -> Iterator[EngineSpell]:
    """How the engine is from each change on; where two faults overlap the last one counts."""
    instants = sorted({ms for one in setup.faults for ms in (one.from_ms, one.until_ms)})
    for ms in instants:
        spell = EngineSpell(ms * MS)
        for fault in setup.faults:
            if not fault.from_ms <= ms < fault.until_ms:
                continue
            if fault.what == "pause":
                spell = EngineSpell(ms * MS, stalled=True)
            elif fault.what == "slow":
                times = 1_000 / max(fault.much, 1)
                if fault.where:
                    shard = int(fault.where.removeprefix("s"))
                    spell = EngineSpell(ms * MS, slow_shard=shard, slow_times=times)
                else:
                    spell = EngineSpell(ms * MS, times=times)
        yield spell


@final
class _Judge:
    """Looks at a run that is over."""

    def __init__(self, setup: Setup, run: KvRun, record: HuntRecord) -> None:
        self._setup, self._run, self._record = setup, run, record
        self._rig = run.rig

    def units(self) -> None:
        """Record each as the other stages do."""
        for one in self._run.ends:
            caller = self._rig.callers[one.caller]
            deadline_us = None if caller.deadline_us is None else one.due_us + caller.deadline_us
            unit = HuntUnit(one.caller, one.due_us, deadline_us, caller.criticality)
            unit.shard, unit.reason = f"s{one.shard}", one.reason
            unit.begun_us, unit.ended_us = one.begun_us, one.due_us + one.took_us
            unit.waited_us = one.took_us
            unit.status = DONE if one.begun_us >= 0 else REFUSED
            self._record.units.append(unit)

    def healthy_shards(self) -> None:
        """Where a shard is healthy, and has room for all, each class is served."""
        rig, setup = self._rig, self._setup
        if any(load.on_ms and load.off_ms for load in setup.loads):
            return  # in a burst it may well be crowded
        at_work = sum(load.per_s for load in setup.loads) / rig.shards * rig.work_us / US
        if at_work > ROOM * rig.slots or at_work + ROOM_SIGMAS * sqrt(at_work) > rig.slots:
            return
        ill = {fault.where for fault in setup.faults if fault.what == "slow" and fault.where}
        spells = [
            (fault.from_ms * MS, fault.until_ms * MS + AFTER_US)
            for fault in setup.faults
            if not fault.where
        ]
        asked: dict[int, int] = {}
        refused: dict[int, list[KvEnd]] = {}
        for one in self._run.ends:
            if f"s{one.shard}" in ill or any(begin <= one.due_us < end for begin, end in spells):
                continue
            asked[one.caller] = asked.get(one.caller, 0) + 1
            if not one.served:
                refused.setdefault(one.caller, []).append(one)
        for number, them in refused.items():
            if len(them) > FEW + REFUSED_MAX * asked[number]:
                reasons = ", ".join(sorted({one.reason for one in them}))
                self._record.add_violation(
                    "healthy shards serve",
                    f"{rig.callers[number].name} was refused {len(them)} of {asked[number]:,} on"
                    f" shards that are healthy and uncrowded: {reasons}",
                )

    def samples(self) -> None:
        """Some of each class reach the engine while anything does, unless CRITICAL fills it."""
        rig = self._rig
        capacity = rig.slots * (rig.shards if rig.slots_by_shard else 1) * US / rig.work_us
        critical = sum(
            load.per_s for load in self._setup.loads if load.allowed is Criticality.CRITICAL
        )
        if self._setup.faults or critical > ROOM * capacity:
            return
        since: dict[Criticality, int] = {}  # the last sample
        asked: dict[Criticality, int] = {}  # after it
        for one in sorted(self._run.ends):
            member = rig.callers[one.caller].criticality
            asked[member] = asked.get(member, 0) + 1
            begun_us = max(one.begun_us, since.get(member, 0))
            if (
                asked[member] > ASKED_MIN
                and max(begun_us, one.due_us) - since.get(member, 0) > SAMPLE_US_MAX
            ):
                waited_s = SAMPLE_US_MAX // US
                sentence = (
                    f"none of {asked[member]:,} of {member.name} was admitted in {waited_s} s"
                )
                self._record.add_violation("every class has samples", sentence)
                return
            if one.begun_us >= 0:
                since[member], asked[member] = begun_us, 0


async def play_dispatcher(world: World, setup: Setup, record: HuntRecord) -> None:
    """The whole play."""
    run = KvRun(rig_of(setup))
    await play_in(world, run)
    judge = _Judge(setup, run, record)
    judge.units()
    judge.healthy_shards()
    judge.samples()
