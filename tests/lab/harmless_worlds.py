"""Worlds of a dispatcher in which nothing is to be refused, each a function of its seed.

All that a world may have is drawn at once: 1 to 256 slots, work of 0.2 to 100 ms, even or
memoryless, one caller or one of each class, steady or in bursts, with a deadline of a few times the
work, a long one or none, a quota of little more than its busiest second needs or none, scans
beside, several dispatchers; an engine, or a shard of it, that becomes slow, before or after it is
known what is usual; a clock that jumps. Room is left for all of it. Nothing here is a test.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final, cast

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.arrivals import Arrivals, Even, OnOff, Poisson
from sluicegate.lab.hunt.stage import JumpClock
from sluicegate.lab.rigs.dispatcher import US, EngineSpell, KvCaller, KvEnd, KvRig, KvRun, play_in
from sluicegate.lab.world import World, run
from tests.lab.dispatcher_worlds import PLACES, SHIPPED

PER_S_MAX: Final = 300.0
SIGMAS: Final = 4.0  # a quota is for the busiest second
ROOM_SIGMAS: Final = 6.0  # and a burst fits into the engine
SLOWER_CHARGED: Final = 1.25  # as slow work is
REFUSED_MAX: Final = 0.01
JUMP_US: Final = 20 * US


@dataclass(frozen=True, slots=True)
class HarmlessWorld:
    """One, and by how much its clock jumps."""

    rig: KvRig
    jump_us: int = 0

    def play(self, seed: int) -> KvRun:
        """Play it."""
        found = KvRun(self.rig)

        async def main(world: World) -> None:
            jumps = _JumpWorld(world)
            if self.jump_us:
                world.call_at_us(JUMP_US, jumps.clock.jump, self.jump_us)
            await play_in(cast("World", jumps), found)

        run(main, seed)
        return found

    def harm(self, found: KvRun) -> list[str]:
        """What was done to anybody."""
        harm = []
        for number, caller in enumerate(self.rig.callers):
            ends = [one for one in found.ends if one.caller == number and not self._jumped(one)]
            refused = [one for one in ends if not one.served]
            most = max(1.0, REFUSED_MAX * len(ends))
            if len(refused) > (0 if caller.criticality is Criticality.CRITICAL else most):
                reasons = sorted({one.reason for one in refused})
                harm.append(f"{caller.name}: {len(refused)} of {len(ends)} refused: {reasons}")
        return harm

    def _jumped(self, one: KvEnd) -> bool:
        """It was under way when the clock jumped, so its deadline was over."""
        return bool(self.jump_us) and one.due_us < JUMP_US <= one.due_us + one.took_us


class _JumpWorld:
    """A world with a clock that jumps."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.clock = JumpClock(world)

    def __getattr__(self, name: str) -> object:
        return getattr(self._world, name)


def harmless(seed: int) -> HarmlessWorld:
    """A world with room for all."""
    chance = random.Random(seed)
    slots = chance.choice((1, 2, 4, 8, 16, 64, 256))
    shards = chance.choice((1, 1, 2, 10))
    by_shard = shards > 1 and chance.random() < 0.5
    dispatchers = chance.choice((1, 1, 1, 2, 4))
    slow = 10.0 ** chance.uniform(0.3, 1.5) if chance.random() < 0.5 else 1.0
    slow_shard = chance.randrange(shards) if by_shard and slow > 1.0 else -1
    even = chance.random() < 0.5
    # At work at a time, while it is slow: a burst of it fits into the slots, and the places.
    places = min(slots, PLACES if shards == 1 else PLACES // 2)
    fits = (sqrt(ROOM_SIGMAS**2 / 4 + places) - ROOM_SIGMAS / 2) ** 2
    busy = max(fits, 0.1 * places) * chance.uniform(0.1, 1.0)
    work_us = 10.0 ** chance.uniform(2.3, 5.0) / slow
    per_s = min(busy * US / (work_us * slow) * (shards if by_shard else 1), PER_S_MAX)
    members = list(Criticality) if chance.random() < 0.8 else [chance.choice(list(Criticality))]
    patience = chance.choice((10, 30, 100, 1_000, None) if places >= 4 else (100, 1_000, None))
    longest_us = work_us * slow * (1 if even else 3)  # one of 20,000 takes ten times the mean
    deadline_us = None if patience is None else round(longest_us * patience)
    quota_times = chance.choice((1.1, 1.5, 0.0))
    scans = chance.random() < 0.2
    begin_us = chance.choice((0, 65 * US)) if slow > 1.0 else 0
    usual_us = work_us * (1.0 if begin_us else slow)  # nobody can know that it is not
    read_ru = 1.125 + 0.1 * usual_us / 1_000 * SLOWER_CHARGED * (1 if even else 3)
    callers = []
    for member in members:
        each = per_s / len(members)
        arrivals: Arrivals = Poisson(each)
        draw = chance.random()
        if draw < 0.3:
            arrivals = OnOff(on_per_s=each, on_us=chance.randrange(200_000, 3 * US), off_us=US)
        elif draw < 0.5:
            arrivals = Even(each)
        part = each / dispatchers
        need = dispatchers * (part + SIGMAS * sqrt(part) + 1) * read_ru
        rows = 50 if scans and member is members[-1] else 0
        callers.append(
            KvCaller(
                name=member.name,
                arrivals=arrivals,
                criticality=member,
                deadline_us=deadline_us,
                quota_ru=1_000_000 if rows or not quota_times else ceil(quota_times * need),
                rows=rows,
            )
        )
    spell = EngineSpell(begin_us, times=slow)
    if slow_shard >= 0:
        spell = EngineSpell(begin_us, slow_shard=slow_shard, slow_times=slow)
    span_us = begin_us + 30 * US
    return HarmlessWorld(
        KvRig(
            callers=tuple(callers),
            span_us=span_us,
            settings=SHIPPED,
            dispatchers=dispatchers,
            shards=shards,
            slots=slots,
            slots_by_shard=by_shard,
            work_us=max(1, round(work_us)),
            even_work=even,
            course=(spell, EngineSpell(span_us - 10 * US)) if slow > 1.0 else (),
        ),
        chance.choice((0, 0, 0, 30 * US, 3_600 * US)),
    )
