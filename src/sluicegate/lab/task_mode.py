"""Task mode: a task for each request, and the production policies as they are.

It runs a rig into a ledger, in a world: a request arrives, the
policy admits or refuses it, a backend with as many workers as the rig serves it, its permit ends. A
refusal takes a worker for as long as the rig says a refusal costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome, Permit
from sluicegate.contracts.policy import WaitingPolicy
from sluicegate.contracts.request import Measured, Request
from sluicegate.lab.backend import Backend
from sluicegate.lab.clients import AGAIN, Call, RetryingCall, run_callers
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.retries import Retrier
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.world import Run, World, run
from sluicegate.testing import START_US

MakePolicy: TypeAlias = Callable[[Rig, World], WaitingPolicy]


def run_policy(rig: Rig, make_policy: MakePolicy, seed: int) -> RunLedger:
    """Run the rig with that policy, and return the ledger."""
    return run_world(rig, make_policy, seed).value


def run_world(rig: Rig, make_policy: MakePolicy, seed: int) -> Run[RunLedger]:
    """Run the rig with that policy, and return the ledger with the digest of the run."""

    async def main(world: World) -> RunLedger:
        ledger = RunLedger(rig.kinds, warm_us=rig.warm_us, span_us=rig.span_us)
        server = PolicyServer(world, rig, make_policy(rig, world), ledger)
        calls = [(kind, server.door(number, kind)) for number, kind in enumerate(rig.kinds)]
        await run_callers(world, calls, until_us=rig.span_us)
        return ledger

    return run(main, seed)


@final
class PolicyServer:
    """A policy, the backend behind it, and the ledger of every end."""

    __slots__ = ("_backend", "_ledger", "_policy", "_refusal_us", "_rig", "_world", "inside")

    def __init__(self, world: World, rig: Rig, policy: WaitingPolicy, ledger: RunLedger) -> None:
        self._world = world
        self._rig = rig
        self._policy = policy
        self._ledger = ledger
        self._refusal_us = round(rig.refusal_cost * rig.service.mean_us)
        self._backend = Backend(
            world, rig.service, workers=rig.workers, speed_profile=rig.speed_profile
        )
        self.inside = 0  # requests with a task that has not ended

    def door(self, number: int, kind: WorkKind) -> Call:
        """Return what the callers of a kind call."""
        waiting_callers = {f"{kind.name}-{caller}": caller for caller in range(kind.callers)}

        async def attempt(request: Request) -> bool:
            return await self._answer(request, number, waiting_callers[request.caller])

        if self._rig.retries is None:
            return attempt
        chance = self._world.chance(f"retries/{kind.name}")
        return RetryingCall(self._world, attempt, Retrier(self._rig.retries, chance))

    async def _answer(self, request: Request, kind: int, caller: int) -> bool:
        ledger, world = self._ledger, self._world
        arrived_us = world.elapsed_us
        ledger.record_offer(kind, arrived_us, retry=request.attributes is AGAIN)
        self.inside += 1
        if self.inside > ledger.queue_peak + self._rig.workers:
            ledger.queue_peak = self.inside - self._rig.workers
        try:
            admission = await self._policy.admit(request, world.clock)
            if isinstance(admission, Decision):
                if self._refusal_us:
                    await self._backend.serve(self._refusal_us, urgent=True)
                ledger.record_refusal(kind, arrived_us, world.elapsed_us)
                return False
            return await self._work(request, admission, kind, caller)
        finally:
            self.inside -= 1

    async def _work(self, request: Request, permit: Permit, kind: int, caller: int) -> bool:
        ledger, world = self._ledger, self._world
        begun_us = world.elapsed_us
        arrived_us = request.arrived_us - START_US
        if arrived_us >= ledger.warm_us:
            ledger.served += 1
            ledger.waited_us += begun_us - arrived_us
        work_us = self._backend.draw_us(cost=request.cost, shard=request.shard)
        outcome = Outcome.IGNORE  # cancelled
        try:
            await self._backend.serve(work_us)
            now_us = world.elapsed_us
            in_time = request.deadline_us is None or now_us + START_US <= request.deadline_us
            outcome = Outcome.SUCCESS if in_time else Outcome.DROPPED
            ledger.record_answer(kind, caller, arrived_us, now_us, work_us, in_time)
            return in_time
        finally:
            request.measured = Measured(service_us=world.elapsed_us - begun_us)
            permit.end(outcome, world.clock.now_us())
