"""Shipped: what users start, before the workers of a station, with the settings it comes with.

*dispatcher* is the chain of `sluicegate kv` with its way in and out (`Admission`, which gives work
up at its deadline while the engine goes on with it). It finds its places by itself; only an engine
of more workers than it has places by default is said to it. Its callers have a quota that they
never meet.

*protect* is what `sluicegate.resilience` puts before an application, with as many slots as there
are workers, the one number that everybody sets. An answer that comes too late is an error, and its
work is not taken back.

Both are told which callers may claim to be CRITICAL: those of the critical kinds. What is left out
of either is the socket and the codec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from sluicegate.apps.kv.admission import Admission, attributes_of
from sluicegate.apps.kv.chain import GET, PolicyChain, default_weights
from sluicegate.apps.kv.quotas import Quotas
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.usage import CallerUsage
from sluicegate.contracts.access import Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.key_values import CallContext
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.lab.backend import Backend
from sluicegate.lab.clients import Call, run_callers
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.rigs.server_chain import clamp
from sluicegate.lab.scenario import Candidate
from sluicegate.lab.station_candidates import StationCandidate, policy_candidate
from sluicegate.lab.world import World, run
from sluicegate.policies.admission.gate import GatePermit
from sluicegate.resilience.overload_mark import OverloadMark
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience
from sluicegate.testing import START_US

QUOTA_RU: Final = 100_000_000
VALUE_BYTES: Final = 100
_NOBODY: Final[Mapping[str, Criticality]] = {}


def dispatcher_settings(rig: Rig) -> KvSettings:
    """Return the settings it comes with: it finds its limit by itself."""
    return KvSettings()


def run_dispatcher(rig: Rig, seed: int) -> RunLedger:
    """Run the rig with the dispatcher's chain."""

    async def main(world: World) -> RunLedger:
        server = _DispatcherServer(world, rig)
        calls = [(kind, server.door(number, kind)) for number, kind in enumerate(rig.kinds)]
        await run_callers(world, calls, until_us=rig.span_us)
        return server.ledger

    return run(main, seed).value


@final
class _DispatcherServer:
    """The parts of a process, and the workers behind them."""

    def __init__(self, world: World, rig: Rig) -> None:
        self._world = world
        self._backend = Backend(
            world, rig.service, workers=rig.workers, speed_profile=rig.speed_profile
        )
        self._refusal_us = round(rig.refusal_cost * rig.service.mean_us)
        self.ledger = RunLedger(rig.kinds, warm_us=rig.warm_us, span_us=rig.span_us)
        self._inside = 0
        self._workers = rig.workers
        settings, chance = dispatcher_settings(rig), world.chance("dispatcher")
        quotas = Quotas(settings, 0, world.clock, chance)
        names = [f"{kind.name}-{one}" for kind in rig.kinds for one in range(kind.callers)]
        quotas.set_quotas(dict.fromkeys(names, QUOTA_RU))
        chain = PolicyChain(
            settings,
            CallerUsage(),
            budget=quotas.spent_from,
            weights=default_weights(),
        )
        chain.replace_classes(clamp(rig).callers)
        self._admission = Admission(chain, world.clock, quotas.supply)

    def door(self, number: int, kind: WorkKind) -> Call:
        """Return what the callers of a kind call."""
        numbers = {f"{kind.name}-{caller}": caller for caller in range(kind.callers)}

        async def attempt(request: Request) -> bool:
            return await self._answer(request, number, numbers[request.caller])

        return attempt

    async def _answer(self, asked: Request, kind: int, caller: int) -> bool:
        world, ledger = self._world, self.ledger
        arrived_us = world.elapsed_us
        ledger.record_offer(kind, arrived_us, retry=False)
        self._inside += 1
        ledger.queue_peak = max(ledger.queue_peak, self._inside - self._workers)
        call = CallContext(
            Identity(asked.caller, (), criticality=asked.criticality),
            deadline_us=asked.deadline_us,
            arrived_us=asked.arrived_us,
        )
        request = self._admission.request(
            GET, "lab", asked.key, asked.shard, call, attributes_of(1, VALUE_BYTES)
        )
        try:
            permit = await self._admission.later(request)
        except Refused:
            if self._refusal_us:
                await self._backend.serve(self._refusal_us, urgent=True)
            ledger.record_refusal(kind, arrived_us, world.elapsed_us)
            return False
        finally:
            self._inside -= 1
        began_us = world.clock.now_us()
        try:
            await self._admission.in_time(permit, self._work(asked, kind, caller, arrived_us))
        except Refused:
            return False  # its work goes on, and is recorded when it ends
        self._admission.done(permit, began_us, 1, VALUE_BYTES)
        return True

    async def _work(self, asked: Request, kind: int, caller: int, arrived_us: int) -> None:
        work_us = self._backend.draw_us(cost=asked.cost, shard=asked.shard)
        await self._backend.serve(work_us)
        now_us = self._world.elapsed_us
        in_time = asked.deadline_us is None or now_us + START_US <= asked.deadline_us
        self.ledger.record_answer(kind, caller, arrived_us, now_us, work_us, in_time)


@final
class ProtectedStation:
    """A protection as the policy of a station."""

    __slots__ = ("_protection",)

    def __init__(self, protection: Protection) -> None:
        self._protection = protection

    async def admit(self, request: Request, clock: Clock) -> _ProtectedPermit | Decision:
        """Hand over what a door reads of a request."""
        now_us = clock.now_us()
        left_us = request.remaining_us(now_us)
        inside = self._protection.begin(
            request.operation,
            now_us,
            left_us=-1 if left_us is None else left_us,
            criticality=request.criticality,
            caller=request.caller,
        )
        admitted = await self._protection.admit(inside, now_us)
        if isinstance(admitted, Decision):
            return admitted
        return _ProtectedPermit(self._protection, request, admitted)

    def mark_of(self, decision: Decision, request: Request) -> OverloadMark | None:
        """What a door adds to a refusal."""
        return self._protection.mark_of(decision, request)


@final
class _ProtectedPermit:
    """What an admitted request holds, and what was measured of it."""

    __slots__ = ("_permit", "_protection", "_request")

    def __init__(self, protection: Protection, request: Request, permit: GatePermit) -> None:
        self._protection = protection
        self._request = request
        self._permit = permit

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """End it, once."""
        self._permit.request.measured = self._request.measured
        return self._protection.end(self._permit, outcome)


def protected_station(
    world: World, slots: int, callers: Mapping[str, Criticality] = _NOBODY
) -> ProtectedStation:
    """Return a protection with these slots (0: found), and these callers of their classes."""
    settings = Resilience(slots=slots, callers=callers)
    return ProtectedStation(Protection(settings, clock=world.clock, chance=world.chance("protect")))


def protect(rig: Rig, world: World) -> ProtectedStation:
    """Return what stands before an application whose slots are known."""
    return protected_station(world, rig.workers, clamp(rig).callers)


SHIPPED: Final[dict[str, StationCandidate]] = {
    "dispatcher": Candidate(run_dispatcher),
    "protect": policy_candidate(protect),
}
