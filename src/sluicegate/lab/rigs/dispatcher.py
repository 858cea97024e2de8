"""Dispatcher: what `sluicegate kv` ships, on virtual time, before an engine of slots.

The settings are `KvSettings()`, and nothing of them is set again here but what a rig names. The
chain, its quotas, the way in and out of it (`Admission`, which gives work up at its deadline) and
the engine's slots are those of a process; what is left out is the socket, the shield of hot keys
and the codec. So what this refuses, for whom and for how long, is what users would see of the
policies on a machine that is never late.

Several dispatchers stand before the same engine, each with a part of every quota; none of them sees
what the others have at work there.

An engine's course is a tuple of spells: from an instant on it is so many times as slow as before,
or one shard of it is, or it stands still. What it has begun it goes on with though nobody waits for
it any more, as engines do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from math import ceil, log
from typing import Final, NamedTuple, final

from sluicegate.apps.kv.admission import Admission, attributes_of, next_part
from sluicegate.apps.kv.chain import GET, SCAN, PolicyChain, default_weights
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.usage import CallerUsage
from sluicegate.contracts.access import Identity
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.key_values import CallContext
from sluicegate.contracts.request import Request
from sluicegate.kernels.token_bucket import PRICE_ONE_MILLI
from sluicegate.lab.arrivals import Arrivals
from sluicegate.lab.world import World, run
from sluicegate.policies.settings import within
from sluicegate.stores.engines.faulty.slots import WorkSlots
from sluicegate.testing import START_US

US: Final = 1_000_000
VALUE_BYTES: Final = 100
LOOK_US: Final = 250_000
SHARDS_MAX: Final = 1_000
DISPATCHERS_MAX: Final = 100


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KvCaller:
    """One caller, and how it reads: single rows, or ranges of so many, a chunk at a time."""

    name: str
    arrivals: Arrivals
    criticality: Criticality = Criticality.DEGRADED
    deadline_us: int | None = None  # that it names; none is the dispatcher's own
    quota_ru: int = 1_000_000  # a second
    shard: int | None = None  # the one that it reads; None: all, at random
    dispatcher: int | None = None  # that it comes through; None: all, in turn
    rows: int = 0  # of a range; 0: single rows


class EngineSpell(NamedTuple):
    """How the engine is, from an instant on."""

    at_us: int
    times: float = 1.0  # as slow as it was
    slow_shard: int = -1
    slow_times: float = 1.0
    stalled: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KvRig:
    """Callers, dispatchers with their settings, and an engine with a course."""

    callers: tuple[KvCaller, ...]
    span_us: int
    settings: KvSettings = field(default_factory=KvSettings)
    dispatchers: int = 1
    shards: int = 1
    slots: int = 8  # of the whole engine, or of each shard
    slots_by_shard: bool = False
    work_us: int = 10_000
    even_work: bool = True  # else its time is drawn, memoryless
    row_us: int = 0  # that each row of a range takes besides
    course: tuple[EngineSpell, ...] = ()

    def __post_init__(self) -> None:
        within("rig.dispatchers", self.dispatchers, 1, DISPATCHERS_MAX)
        within("rig.shards", self.shards, 1, SHARDS_MAX)
        within("rig.slots", self.slots, 1, 1 << 20)
        within("rig.work_us", self.work_us, 1, US)

    def entered(self, caller: KvCaller) -> Sequence[int]:
        """Return which dispatchers a caller comes through."""
        return range(self.dispatchers) if caller.dispatcher is None else (caller.dispatcher,)


class KvEnd(NamedTuple):
    """What became of one request."""

    due_us: int
    caller: int
    shard: int
    took_us: int
    reason: str  # of its refusal; empty if it was served
    begun_us: int = -1  # when it was admitted to the engine; before that it was refused

    @property
    def served(self) -> bool:
        """Whether it was."""
        return not self.reason


class KvLook(NamedTuple):
    """The dispatcher at an instant."""

    at_us: int
    dearest_milli: int  # of all classes and shards
    penalized: Set[str]  # callers that pay a penalty


@final
@dataclass(slots=True)
class KvRun:
    """A run: requests as they ended, and looks in between."""

    rig: KvRig
    ends: list[KvEnd] = field(default_factory=list)
    looks: list[KvLook] = field(default_factory=list)

    def of(self, begin_us: int, end_us: int, caller: int | None = None) -> list[KvEnd]:
        """Return those due between the two instants, of one caller or all."""
        return [
            one
            for one in self.ends
            if begin_us <= one.due_us < end_us and caller in (None, one.caller)
        ]

    def served(self, begin_us: int, end_us: int, caller: int | None = None) -> float:
        """Return the share that was served of those due between the two; 1 of none."""
        found = self.of(begin_us, end_us, caller)
        return sum(one.served for one in found) / len(found) if found else 1.0

    def well_again_us(self, end_us: int, share: float = 0.95, within_us: int = 500_000) -> int:
        """Return how long after `end_us` it is well and stays so: no later window has less."""
        last = end_us
        step_us = within_us // 5
        for begin_us in range(end_us, self.rig.span_us - within_us + 1, step_us):
            if self.served(begin_us, begin_us + within_us) < share:
                last = begin_us + step_us
        return last - end_us


def play(rig: KvRig, seed: int) -> KvRun:
    """Play one run."""
    found = KvRun(rig)

    async def main(world: World) -> None:
        await play_in(world, found)

    run(main, seed)
    return found


async def play_in(world: World, found: KvRun) -> None:
    """Play its rig in this world."""
    await _Fleet(world, found.rig, found).play()


@final
class _SlotEngine:
    """Slots on virtual time, and their course."""

    def __init__(self, world: World, rig: KvRig) -> None:
        self._world = world
        self._rig = rig
        lines = rig.shards if rig.slots_by_shard else 1
        self._lines = [WorkSlots(rig.slots) for _ in range(lines)]
        self._draw = world.chance("work").draw
        self._spell = EngineSpell(0)
        for spell in rig.course:
            world.call_at_us(spell.at_us, self._turn, spell)

    def serve(self, shard: int, rows: int = 0) -> asyncio.Future[None]:
        """Begin to read from a shard; who gives up takes no work back."""
        rig, spell = self._rig, self._spell
        work_us = (rig.work_us + rig.row_us * rows) * spell.times
        if not rig.even_work:
            work_us *= -log(1.0 - self._draw())
        if shard == spell.slow_shard:
            work_us *= spell.slow_times
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines[shard % len(self._lines)]
        if spell.stalled:
            line.enqueue(round(work_us), done, self._world.elapsed_us)
        else:
            line.enter(round(work_us), done, self._world.elapsed_us)
            self._wake(line)
        return done

    def _turn(self, spell: EngineSpell) -> None:
        now_us, before = self._world.elapsed_us, self._spell
        for line in self._lines:
            if before.stalled:
                line.pause(now_us - before.at_us, now_us)
            else:
                line.advance(now_us)
        self._spell = spell
        for line in self._lines:
            if not spell.stalled:
                line.advance(now_us)
                self._wake(line)

    def _wake(self, line: WorkSlots) -> None:
        next_us = line.next_us()
        if next_us is not None:
            self._world.call_at_us(next_us, self._advance, line)

    def _advance(self, line: WorkSlots) -> None:
        now_us, next_us = self._world.elapsed_us, line.next_us()
        if self._spell.stalled or next_us is None or next_us > now_us:
            return
        line.advance(now_us)
        self._wake(line)


@final
class _Dispatcher:
    """The parts of a process, in its order; of a quota it has its part."""

    def __init__(self, world: World, rig: KvRig, name: str) -> None:
        # Its store needs a driver, and scenarios are listed without.
        from sluicegate.apps.kv.quotas import Quotas  # noqa: PLC0415

        settings = rig.settings
        chance = world.chance(name)
        quotas = Quotas(settings, 0, world.clock, chance)
        quotas.set_quotas(
            {one.name: ceil(one.quota_ru / len(rig.entered(one))) for one in rig.callers}
        )
        self.chain = PolicyChain(
            settings,
            CallerUsage(),
            budget=quotas.spent_from,
            weights=default_weights(),
        )
        self.chain.replace_classes({one.name: one.criticality for one in rig.callers})
        self.admission = Admission(self.chain, world.clock, quotas.supply)


@final
class _Fleet:
    """Callers, the dispatchers that they come through, and the engine behind all of them."""

    def __init__(self, world: World, rig: KvRig, found: KvRun) -> None:
        self._world = world
        self._rig = rig
        self._found = found
        names = ["dispatcher", *(f"dispatcher/{one}" for one in range(1, rig.dispatchers))]
        self._dispatchers = [_Dispatcher(world, rig, name) for name in names]
        self._engine = _SlotEngine(world, rig)

    async def play(self) -> None:
        """Send all, and look now and then."""
        world, rig = self._world, self._rig
        for number, caller in enumerate(rig.callers):
            world.spawn(self._send(number, caller), f"caller/{caller.name}")
        for at_us in range(LOOK_US, rig.span_us, LOOK_US):
            world.call_at_us(at_us, self._look)
        await world.until_us(rig.span_us)
        await world.cancel_others()

    async def _send(self, number: int, caller: KvCaller) -> None:
        world, rig = self._world, self._rig
        pick = world.chance(f"shards/{caller.name}").draw
        entered = rig.entered(caller)
        for turn, at_us in enumerate(
            caller.arrivals.instants_us(world.chance(f"arrivals/{caller.name}"))
        ):
            if at_us >= rig.span_us:
                return
            await world.until_us(at_us)
            shard = int(pick() * rig.shards) if caller.shard is None else caller.shard
            admission = self._dispatchers[entered[turn % len(entered)]].admission
            world.spawn(self._answer(number, caller, shard, admission), caller.name)

    async def _answer(
        self, number: int, caller: KvCaller, shard: int, admission: Admission
    ) -> None:
        world = self._world
        now_us = world.clock.now_us()
        deadline_us = None if caller.deadline_us is None else now_us + caller.deadline_us
        call = CallContext(
            Identity(caller.name, (), criticality=caller.criticality),
            deadline_us=deadline_us,
            arrived_us=now_us,
        )
        reason, begun_us, left = "", -1, caller.rows
        chain = self._dispatchers[0].chain
        try:
            while True:
                request, rows = self._part(chain, admission, shard, call, left)
                permit = await admission.later(request)
                began_us = world.clock.now_us()
                begun_us = began_us - START_US
                await admission.in_time(permit, self._engine.serve(shard, rows))
                admission.done(permit, began_us, max(1, rows), max(1, rows) * VALUE_BYTES)
                left -= rows
                if left <= 0:
                    break
                call = next_part(call, request)
        except Refused as refused:
            found = refused.decision.reason
            if left == caller.rows:  # else what was read of a range is a page
                reason = "refused" if found is None else found.name
        end_us = world.clock.now_us()
        due_us = now_us - START_US
        self._found.ends.append(KvEnd(due_us, number, shard, end_us - now_us, reason, begun_us))

    def _part(
        self, chain: PolicyChain, admission: Admission, shard: int, call: CallContext, left: int
    ) -> tuple[Request, int]:
        """One row; or the next chunk of a range and its rows, as in `operations/scan.py`."""
        if not left:
            known = attributes_of(1, VALUE_BYTES)
            key = f"drill:k{shard}"
            return admission.request(GET, "drill", key, f"s{shard}", call, known), 0
        known = attributes_of(left)
        request = admission.request(SCAN, "drill", "drill", f"s{shard}", call, known)
        rows = min(left, chain.units.chunk_rows(request, self._rig.settings.chunk_ru))
        request.attributes = attributes_of(rows)
        return request, rows

    def _look(self) -> None:
        at_us = self._world.clock.now_us() - START_US
        dearest, penalized = PRICE_ONE_MILLI, set[str]()
        for one in self._dispatchers:
            dearest = max((dearest, *one.chain.prices_milli))
            if one.chain.mussel is not None:
                penalized |= {*one.chain.mussel.prices.penalized()}
        self._found.looks.append(KvLook(at_us, dearest, penalized))
