"""Worlds of a dispatcher, each a function of its seed. Nothing here is a test."""

from __future__ import annotations

import random
from math import ceil, sqrt
from typing import Final

from sluicegate.apps.kv.settings import KvSettings
from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.rigs.dispatcher import US, EngineSpell, KvCaller, KvRig, KvRun

SHIPPED: Final = KvSettings()
KNOWN_US: Final = 65 * US  # after a minute it is known what is usual
SLOW_END_US: Final = KNOWN_US + 15 * US
RELAXED_US: Final = SLOW_END_US + 3 * US
STALL_US: Final = 4 * US
WELL_US_MAX: Final = US
STALL_OVER_US_MAX: Final = US
FOUND_US: Final = 2 * US
COLD_US: Final = 8 * US
BACKLOG_US: Final = 16 * US  # 64 units at one slot, with which it begins, and a little
SCANS_KNOWN_US: Final = 4 * US  # by then it is known what they do to reads
KNOWN_SHORT_US: Final = 2 * US  # by then the time of work is known
GOODPUT_MIN: Final = 0.85
CRITICAL_MIN: Final = 0.95
SIGMAS_FREE: Final = 6.0
PLACES: Final = 64  # by default, and half of them for a shard


def callers(per_s: float, work_us: int, sigmas: float = 3.0) -> tuple[KvCaller, ...]:
    """One of each class, with a quota of 1.5 times what its busiest second needs."""
    each = per_s / len(Criticality)
    busiest = each + sigmas * sqrt(each)
    read_ru = 1.0 + 0.1 + 0.025 + 0.1 * work_us / 1_000
    return tuple(
        KvCaller(
            name=member.name,
            arrivals=Poisson(each),
            criticality=member,
            quota_ru=ceil(1.5 * busiest * read_ru),
        )
        for member in Criticality
    )


def neighbours(*, slots: int = 8, scans_per_s: float = 64.5, quota_ru: int = 200) -> KvRig:
    """Reads at 320 a second, and scans of 110 ms; by default at ten times their quota."""
    reads_per_s = 320
    return KvRig(
        callers=(
            KvCaller(
                name="reader",
                arrivals=Poisson(reads_per_s),
                deadline_us=US // 2,
                quota_ru=ceil(1.5 * reads_per_s * 2.125),
            ),
            KvCaller(
                name="scanner",
                arrivals=Poisson(scans_per_s),
                deadline_us=5 * US,
                quota_ru=quota_ru,
                rows=200,
            ),
        ),
        span_us=SCANS_KNOWN_US + 10 * US,
        slots=slots,
        row_us=500,
    )


def slow_slots(slots: int) -> KvRig:
    """Slots of 200 ms, and at seven times what they can do callers who wait for half a second."""
    per_s = 7 * slots * 5
    return KvRig(
        callers=tuple(
            KvCaller(
                name=member.name,
                arrivals=Poisson(per_s / len(Criticality)),
                criticality=member,
                deadline_us=US // 2,
            )
            for member in Criticality
        ),
        span_us=BACKLOG_US + 20 * US,
        slots=slots,
        work_us=200_000,
    )


def critical_crowd() -> KvRig:
    """CRITICAL alone asks for nearly twice what can be done, and the others for as much."""
    return KvRig(
        callers=tuple(
            KvCaller(
                name=member.name, arrivals=Poisson(1_400), criticality=member, deadline_us=US // 2
            )
            for member in Criticality
        ),
        span_us=26 * US,
    )


def slow_goodput(run: KvRun) -> float:
    """Return the share that they serve of what they can do, once the first backlog is gone."""
    ends = run.of(BACKLOG_US, run.rig.span_us)
    can = (run.rig.span_us - BACKLOG_US) * run.rig.slots / run.rig.work_us
    return sum(one.served for one in ends) / can


def read_p99_ms(run: KvRun) -> float:
    """Return the p99 of its first caller, once it is known what scans do to it."""
    ends = run.of(SCANS_KNOWN_US, run.rig.span_us, 0)
    assert all(one.served for one in ends)
    return sorted(one.took_us for one in ends)[len(ends) * 99 // 100] / 1e3


def slow_down(seed: int, settings: KvSettings | None = None) -> KvRig:
    """An engine, or a shard of it, that becomes slow for 15 s and has capacity to spare.

    That is: work fills at most 60% of its slots, and where there are compartments, which have no
    line, a burst of six standard deviations fits into each.
    """
    chance = random.Random(seed)
    per_s = 10.0 ** chance.uniform(1.2, 2.0)
    times = 10.0 ** chance.uniform(0.3, 2.0)
    slots = chance.choice((4, 8, 16, 64))
    shards = chance.choice((1, 2, 10))
    one = shards > 1 and chance.random() < 0.5
    room = min(slots, PLACES // 2 if one else PLACES) * chance.uniform(0.05, 0.6)
    if shards > 1:
        compartment = sqrt(SIGMAS_FREE**2 / 4 + PLACES // 2) - SIGMAS_FREE / 2
        room = min(room, compartment**2 * (1 if one else shards))
    work_us = min(max(room * US / (per_s * times) * (shards if one else 1), 200), 30_000)
    slow = (
        EngineSpell(KNOWN_US, slow_shard=chance.randrange(shards), slow_times=times)
        if one
        else EngineSpell(KNOWN_US, times=times)
    )
    return KvRig(
        callers=callers(per_s, round(work_us)),
        span_us=RELAXED_US + US,
        settings=settings or SHIPPED,
        shards=shards,
        slots=slots,
        slots_by_shard=one,
        work_us=round(work_us),
        course=(slow, EngineSpell(SLOW_END_US)),
    )


def stall(seed: int, settings: KvSettings | None = None) -> KvRig:
    """An engine that stands still for 1 to 30 s, and callers with deadlines, or without."""
    chance = random.Random(seed)
    slots = chance.choice((4, 8, 16, 32))
    work_us = round(10.0 ** chance.uniform(3.0, 4.3))
    capacity = slots * US / work_us
    per_s = min(10.0 ** chance.uniform(1.3, 2.8), 0.75 * capacity)
    deadline_us = chance.choice((100_000, 200_000, 500_000, 1_000_000, None))
    stall_us = round(chance.uniform(1, 30) * US)
    rest = tuple(
        KvCaller(
            name=member.name,
            arrivals=Poisson(per_s / len(Criticality)),
            criticality=member,
            deadline_us=deadline_us,
        )
        for member in Criticality
    )
    return KvRig(
        callers=rest,
        span_us=STALL_US + stall_us + 4 * US,
        settings=settings or SHIPPED,
        slots=slots,
        work_us=work_us,
        course=(EngineSpell(STALL_US, stalled=True), EngineSpell(STALL_US + stall_us)),
    )


def stalls(per_s: float = 20.0, settings: KvSettings = SHIPPED) -> KvRig:
    """One caller with 1.5 times the quota it needs, and stalls of 0.3, 2 and 5 s, 4 s apart."""
    spells, at_us, work_us = list[EngineSpell](), 3 * US, 10_000
    for stall_us in (300_000, 2 * US, 5 * US):
        spells += [EngineSpell(at_us, stalled=True), EngineSpell(at_us + stall_us)]
        at_us += stall_us + 4 * US
    return KvRig(
        callers=(
            KvCaller(
                name="reader",
                arrivals=Poisson(per_s),
                quota_ru=ceil(1.5 * per_s * (1.125 + 0.1 * work_us / 1_000)),
            ),
        ),
        span_us=at_us,
        settings=settings,
        work_us=work_us,
        course=tuple(spells),
    )


def overload(seed: int, settings: KvSettings | None = None) -> KvRig:
    """Two to four times what a few slots can do, of which a fifth is CRITICAL; memoryless work."""
    chance = random.Random(seed)
    slots = chance.choice((4, 8, 16))
    work_us = round(10.0 ** chance.uniform(3.3, 4.0))
    per_s = chance.uniform(2.0, 4.0) * slots * US / work_us
    shares = zip(Criticality, (0.2, 0.2, 0.3, 0.3), strict=True)
    return KvRig(
        callers=tuple(
            KvCaller(
                name=member.name,
                arrivals=Poisson(share * per_s),
                criticality=member,
                deadline_us=100_000,
            )
            for member, share in shares
        ),
        span_us=FOUND_US + 4 * US,
        settings=settings or SHIPPED,
        slots=slots,
        work_us=work_us,
        even_work=False,
    )


def cold(seed: int, settings: KvSettings | None = None) -> KvRig:
    """A dispatcher that begins with no costs learned, at 85 to 92% of what its engine can do."""
    chance = random.Random(seed)
    slots = chance.choice((4, 8, 16))
    capacity_per_s = chance.uniform(400, 1_000)
    work_us = round(slots * US / capacity_per_s)
    return KvRig(
        callers=callers(chance.uniform(0.85, 0.92) * capacity_per_s, work_us, sigmas=1.0),
        span_us=COLD_US,
        settings=settings or SHIPPED,
        slots=slots,
        work_us=work_us,
    )


def short_deadline(deadline_us: int, settings: KvSettings = SHIPPED) -> KvRig:
    """Memoryless work at nine tenths of the capacity, of which a fifth has a short deadline."""
    per_s = 0.9 * 8 * US / 10_000
    shares = zip(Criticality, (0.2, 0.2, 0.3, 0.3), strict=True)
    return KvRig(
        callers=tuple(
            KvCaller(
                name=member.name,
                arrivals=Poisson(share * per_s),
                criticality=member,
                deadline_us=deadline_us if member is Criticality.DEGRADED else None,
            )
            for member, share in shares
        ),
        span_us=KNOWN_SHORT_US + 3 * US,
        settings=settings,
        slots=8,
        work_us=10_000,
        even_work=False,
    )


def harm_of_beginning(found: KvRun) -> list[str]:
    """Who was refused, though there was room for all."""
    harm = []
    for number, caller in enumerate(found.rig.callers):
        ends = found.of(0, COLD_US - US, number)
        refused = [one for one in ends if not one.served]
        # Until the usual time is known, a queue inside the engine counts as time.
        if len(refused) > max(1, 0.03 * len(ends)):
            reasons = sorted({one.reason for one in refused})
            harm.append(f"{caller.name}: {len(refused)} of {len(ends)} refused: {reasons}")
    return harm


def losses_of_overload(found: KvRun) -> list[str]:
    """What was lost of what the engine could do, once there was time to find its limit."""
    rig = found.rig
    end_us = rig.span_us - 200_000
    capacity = rig.slots * US / rig.work_us
    served = sum(one.served for one in found.of(FOUND_US, end_us)) * US / (end_us - FOUND_US)
    critical = found.served(FOUND_US, end_us, 0)
    losses = []
    if served < GOODPUT_MIN * capacity:
        losses.append(f"{served / capacity:.1%} of the capacity")
    if critical < CRITICAL_MIN:
        losses.append(f"{critical:.1%} of CRITICAL")
    return losses


def harm_of_slowness(found: KvRun) -> list[str]:
    """What a slow-down with capacity to spare has done to anybody."""
    harm = []
    for number, caller in enumerate(found.rig.callers):
        ends = found.of(KNOWN_US, RELAXED_US, number)
        refused = [one for one in ends if not one.served]
        # The first requests of a slow-down of less than 4 times are charged for all of their time.
        if len(refused) > max(1, 0.04 * len(ends)):
            reasons = sorted({one.reason for one in refused})
            harm.append(f"{caller.name}: {len(refused)} of {len(ends)} refused: {reasons}")
    return harm


def recovery_us(found: KvRun) -> int:
    """How long after the end of its stall 95% were served, and stayed so."""
    return found.well_again_us(found.rig.course[-1].at_us)
