"""Engine: a shape played through the dispatcher's chain, with its way in and out.

The chain, its quotas and `Admission` are those of a process of `sluicegate kv`. The socket, the
codec and the shield of hot keys are left out. Several dispatchers share one engine.
A caller that hangs up closes its connection, which cancels its request.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from math import ceil
from typing import Final, final

from sluicegate.apps.kv.admission import Admission, attributes_of
from sluicegate.apps.kv.chain import GET, MULTI_GET, PolicyChain, default_weights
from sluicegate.apps.kv.loop_lateness import LoopLateness
from sluicegate.apps.kv.quotas import Quotas
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.usage import CallerUsage
from sluicegate.contracts.access import Identity
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.key_values import CallContext
from sluicegate.lab.world import World, run
from sluicegate.lab.zoo.outcome import Record
from sluicegate.lab.zoo.player import make_resources, starve
from sluicegate.lab.zoo.shape import DEADLINE, HANGUP, SECOND_US, ShapeTraffic, ZooRequest, ZooShape
from sluicegate.policies.admission.fleet import FleetShare, beat_us
from sluicegate.policies.admission.fleet_limit import SharedLoad, sum_of
from sluicegate.service.background import measure_lag

VALUE_BYTES: Final = 100
QUOTA_RU: Final = 100_000_000  # far above any need


def settings_of(shape: ZooShape, known: bool) -> KvSettings:
    """Return the settings of a dispatcher: the defaults, and the slots where they are known."""
    return KvSettings(slots=shape.known if known else 0, members=shape.dispatchers)


def join(chains: Sequence[PolicyChain], world: World) -> None:
    """Let the dispatchers know the load at all of them, each at its own time in a beat."""
    shares = [
        FleetShare(chain.gate, world.chance(f"fleet/{number}"))
        for number, chain in enumerate(chains)
        if chain.gate is not None
    ]
    told: list[dict[str, SharedLoad]] = [{} for _ in shares]
    slots: dict[str, int] = {}
    every_us = beat_us(len(shares))

    def beat(number: int) -> None:
        for name, load in shares[number].tell(world.clock.now_us()).items():
            told[number][name] = load
        if number == 0:
            slots.clear()
            slots.update(shares[0].found())
        fleet = {
            name: sum_of([one[name] for one in told if name in one], slots.get(name, 0))
            for name in sorted({name for one in told for name in one})
        }
        now_us = world.clock.now_us()
        shares[number].hear(told[number], fleet, len(shares), now_us, leads=number == 0)
        world.call_at_us(world.elapsed_us + every_us, beat, number)

    for number in range(len(shares)):
        world.call_at_us(every_us * number // len(shares), beat, number)


def play_engine(shape: ZooShape, load: Sequence[ZooRequest], seed: int, *, known: bool) -> Record:
    """Play the load on the engine, behind its dispatchers."""
    record = Record(shape, load)

    async def main(world: World) -> None:
        fleet = _Fleet(world, record, known)
        starve(world, shape)
        for ask in load:
            world.call_at_us(ask.at_us, fleet.arrive, ask)
        await world.until_us(shape.span_us)
        await world.cancel_others()

    run(main, seed)
    return record


@final
class _Fleet:
    """The dispatchers, and the engine behind all of them."""

    def __init__(self, world: World, record: Record, known: bool) -> None:
        self._world = world
        self._record = record
        self._shape = shape = record.shape
        self._resources = make_resources(world, shape)
        quotas = _quotas(shape, record.load)
        self._admissions: list[Admission] = []
        chains = []
        for number in range(shape.dispatchers):
            chain, admission = self._dispatcher(settings_of(shape, known), quotas, number)
            chains.append(chain)
            self._admissions.append(admission)
        if shape.dispatchers > 1 and (shape.known or not known):
            join(chains, world)

    def _dispatcher(
        self, settings: KvSettings, quotas_ru: dict[str, int], number: int
    ) -> tuple[PolicyChain, Admission]:
        chance = self._world.chance(f"dispatcher/{number}")
        quotas = Quotas(settings, 0, self._world.clock, chance)
        quotas.set_quotas(quotas_ru)
        chain = PolicyChain(
            settings, CallerUsage(), budget=quotas.spent_from, weights=default_weights()
        )
        chain.replace_classes(
            {
                _caller(kind, caller): kind.criticality
                for kind in self._shape.traffic
                for caller in range(kind.callers)
            }
        )
        lateness = LoopLateness()

        def report(late_us: int) -> None:
            chain.set_lag(late_us)
            lateness.record(late_us, self._world.clock.now_us())

        self._world.spawn(measure_lag(report), "loop lag")
        admission = Admission(chain, self._world.clock, quotas.supply, lateness=lateness)
        return chain, admission

    def arrive(self, ask: ZooRequest) -> None:
        """Begin a request."""
        kind = self._shape.traffic[ask.kind]
        task = self._world.spawn(self._answer(ask, kind), kind.name)
        if kind.tells == HANGUP and kind.patience_us:
            self._world.call_at_us(ask.at_us + kind.patience_us, self._leave, ask, task)

    def _leave(self, ask: ZooRequest, task: asyncio.Task[None]) -> None:
        if self._record.leave(ask):
            task.cancel()

    async def _answer(self, ask: ZooRequest, kind: ShapeTraffic) -> None:
        world, record = self._world, self._record
        now_us = world.clock.now_us()
        told = kind.tells == DEADLINE and kind.patience_us > 0
        admission = self._admissions[ask.dispatcher]
        call = CallContext(
            Identity(_caller(kind, ask.caller), (), criticality=kind.criticality),
            deadline_us=now_us + kind.patience_us if told else None,
            arrived_us=now_us,
        )
        request = admission.request(
            GET if kind.rows == 1 else MULTI_GET,
            kind.name,
            f"{kind.name}:k{ask.number}",
            f"s{self._shape.resource_of(ask.shard)}",
            call,
            attributes_of(kind.rows, kind.rows * VALUE_BYTES),
        )
        try:
            permit = await admission.later(request)
            record.begun[ask.number] = True
            began_us = world.clock.now_us()
            await admission.in_time(permit, self._work(ask))
        except Refused:
            record.refuse(ask, world.elapsed_us)
            return
        admission.done(permit, began_us, kind.rows, kind.rows * VALUE_BYTES)
        record.answer(ask, world.elapsed_us)
        record.end(ask)

    def _work(self, ask: ZooRequest) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended() -> None:
            if not done.done():
                done.set_result(None)

        self._resources[self._shape.resource_of(ask.shard)].submit(ask.work_us, ended)
        return done


def _quotas(shape: ZooShape, load: Sequence[ZooRequest]) -> dict[str, int]:
    """Return the quota of each caller at one dispatcher."""
    counts = Counter((ask.kind, ask.caller) for ask in load)
    found = {}
    for number, kind in enumerate(shape.traffic):
        weights = default_weights()[GET if kind.rows == 1 else MULTI_GET]
        cost_ru = (
            weights.base_ru
            + weights.row_ru * kind.rows
            + weights.byte_ru * kind.rows * VALUE_BYTES
            + weights.ms_ru * kind.work.mean_us / 1_000
        )
        for caller in range(kind.callers):
            per_s = counts[number, caller] * SECOND_US / shape.until_us / shape.dispatchers
            need_ru = max(1, ceil(shape.quota * per_s * cost_ru))
            found[_caller(kind, caller)] = need_ru if shape.quota else QUOTA_RU
    return found


def _caller(kind: ShapeTraffic, number: int) -> str:
    return f"{kind.name}-{kind.criticality.name}-{number}"
