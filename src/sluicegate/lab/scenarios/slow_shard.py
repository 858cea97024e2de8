"""Slow shard: one of ten is fifty times slower, and the dispatcher has 200 places in all.

With one pool for all, what waits for the slow shard fills it, and nine healthy shards are not asked
any more. The goal is that they do not notice, and that the slow one never has more of the pool than
its cap. A breaker alone helps from its threshold on; until then, and in each probe, the pool is
full.

The rig: one dispatcher, many backends behind it, some of them slow for a while.

A call is given up when its deadline has passed, in whatever line it stands, and the shard is told.
What is counted as inflight is what the dispatcher has open at a shard, by the rig itself, whatever
the candidate says of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final, TypeAlias, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import WaitingPolicy
from sluicegate.contracts.request import Measured, Request
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.backend import Backend
from sluicegate.lab.baselines.queues import FifoPool
from sluicegate.lab.clients import run_callers
from sluicegate.lab.durations import Duration, Exponential
from sluicegate.lab.goals import Goal
from sluicegate.lab.ledger import BUCKET_US
from sluicegate.lab.measures import quantile, timeline
from sluicegate.lab.rig import WorkKind
from sluicegate.lab.scenario import (
    Curves,
    Figures,
    PlotSpec,
    Scenario,
    candidate_maker,
)
from sluicegate.lab.speed_profile import STEADY, SpeedProfile
from sluicegate.lab.world import World, run
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.settings import within

SHARDS_MAX: Final = 1_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """`shards` alike, asked `per_s` in all; the first `slow` of them go by `course`."""

    speed_profile: SpeedProfile
    shards: int = 10
    slow: int = 1
    per_s: float = 8_000.0
    workers: int = 32  # of each
    service: Duration = Exponential(10_000.0)  # noqa: RUF009 - frozen
    timeout_us: int = 500_000
    span_us: int = 5_000_000
    warm_us: int = 1_000_000

    def __post_init__(self) -> None:
        within("shards", self.shards, 1, SHARDS_MAX)
        within("slow", self.slow, 0, self.shards)


MakeGate: TypeAlias = Callable[[Shards, World], WaitingPolicy]


@final
class ShardCounts:
    """What became of the calls for one shard, of those that came after the warm-up."""

    def __init__(self, buckets: int) -> None:
        self.good = 0
        self.failed = 0  # given up
        self.refused = 0
        self.good_us: list[int] = []  # from arrival to answer
        self.inflight = 0
        self.inflight_peak = 0
        self.inflight_at = [0] * buckets  # the most in each tenth of a second
        self.good_at = [0] * buckets

    def success(self) -> float:
        """Of the calls that ended, those that were answered in time; none if none did."""
        ended = self.good + self.failed + self.refused
        return self.good / ended if ended else 0.0


def play(rig: Shards, make_gate: MakeGate, seed: int) -> list[ShardCounts]:
    """One run: the counts of every shard."""

    async def main(world: World) -> list[ShardCounts]:
        gate = make_gate(rig, world)
        counts: list[ShardCounts] = []
        calls: list[tuple[WorkKind, _ShardCalls]] = []
        for number in range(rig.shards):
            name = f"shard-{number}"
            kind = WorkKind(
                name=name,
                arrivals=Poisson(rig.per_s / rig.shards),
                timeout_us=rig.timeout_us,
                operation="get",
                shard=name,
            )
            course = rig.speed_profile if number < rig.slow else STEADY
            backend = Backend(
                world, rig.service, name=name, workers=rig.workers, speed_profile=course
            )
            shard = ShardCounts(rig.span_us // BUCKET_US + 1)
            call = _ShardCalls(world, rig, gate, shard, backend)
            counts.append(shard)
            calls.append((kind, call))
        await run_callers(world, calls, until_us=rig.span_us)
        return counts

    return run(main, seed).value


@final
class _ShardCalls:
    """Sends what its gate admits to one shard."""

    def __init__(
        self, world: World, rig: Shards, gate: WaitingPolicy, shard: ShardCounts, backend: Backend
    ) -> None:
        self._world = world
        self._rig = rig
        self._gate = gate
        self._shard = shard
        self._backend = backend

    async def __call__(self, request: Request) -> None:
        """One call, until its answer or its deadline."""
        shard = self._shard
        counted = self._world.elapsed_us >= self._rig.warm_us
        left_us = request.remaining_us(self._world.clock.now_us())
        try:
            async with asyncio.timeout(None if left_us is None else left_us / 1e6):
                admitted = await self._send(request)
        except TimeoutError:
            shard.failed += counted
            return
        if not admitted:
            shard.refused += counted
            return
        if counted:
            shard.good += 1
            shard.good_us.append(self._world.clock.now_us() - request.arrived_us)
        shard.good_at[self._world.elapsed_us // BUCKET_US] += 1

    async def _send(self, request: Request) -> bool:
        world, shard, backend = self._world, self._shard, self._backend
        permit = await self._gate.admit(request, world.clock)
        if isinstance(permit, Decision):
            return False
        shard.inflight += 1
        shard.inflight_peak = max(shard.inflight_peak, shard.inflight)
        at = world.elapsed_us // BUCKET_US
        shard.inflight_at[at] = max(shard.inflight_at[at], shard.inflight)
        begun_us, outcome = world.elapsed_us, Outcome.DROPPED
        try:
            await backend.serve(backend.draw_us())
            outcome = Outcome.SUCCESS
        finally:
            shard.inflight -= 1
            request.measured = Measured(world.elapsed_us - begun_us)
            permit.end(outcome, world.clock.now_us())
        return True


def measure(rig: Shards, shards: list[ShardCounts]) -> Figures:
    """The healthy, the worst of them, and what the slow ones hold."""
    slow, healthy = shards[: rig.slow], shards[rig.slow :]
    return {
        "success.healthy": min((shard.success() for shard in healthy), default=inf),
        "success.slow": min((shard.success() for shard in slow), default=inf),
        "p99_ms.healthy": quantile([us for shard in healthy for us in shard.good_us], 0.99) / 1000,
        "slow_inflight_peak": float(max((shard.inflight_peak for shard in slow), default=0)),
        "inflight_peak": float(sum(shard.inflight_peak for shard in shards)),
    }


def curves(rig: Shards, shards: list[ShardCounts]) -> Curves:
    """Answers of the healthy, and what the slow ones hold, for each tenth of a second."""
    per_s = 1e6 / BUCKET_US
    slow, healthy = shards[: rig.slow], shards[rig.slow :]
    answers = zip(*(shard.good_at for shard in healthy), strict=True)
    inflight = zip(*(shard.inflight_at for shard in slow), strict=True)
    series = {
        "healthy_per_s": [per_s * sum(counts) for counts in answers],
        "slow_inflight": [float(sum(counts)) for counts in inflight],
    }
    return timeline(series, BUCKET_US, rig.span_us)


candidate: Final = candidate_maker(play)


POOL: Final = 200
CAP: Final = 40
SPEED: Final = 1 / 50


def gate(rig: Shards, world: World) -> Gate:
    """One queue and one limit for each shard."""
    return Gate(GateSettings(slots=CAP))


def found(rig: Shards, world: World) -> Gate:
    """The same, with limits that are found."""
    return Gate(GateSettings())


def shared_pool(rig: Shards, world: World) -> FifoPool:
    """One pool, first come, first served."""
    return FifoPool(POOL)


SCENARIO: Final = Scenario(
    number=16,
    name="slow-shard",
    title="One shard of ten fifty times slower",
    why="A shard that is slow fills its own queue, and the others are served.",
    rigs={
        "slow": Shards(speed_profile=SpeedProfile(((0, SPEED),))),
        "turns": Shards(speed_profile=SpeedProfile(((2_000_000, SPEED), (4_000_000, 1.0)))),
        "two": Shards(speed_profile=SpeedProfile(((0, SPEED),)), slow=2),
    },
    candidates={
        "gate": candidate(gate),
        "found": candidate(found),
        "shared-pool": candidate(shared_pool),
    },
    ours="gate",
    must_fail=("shared-pool",),
    goals=(
        Goal(figure="success.healthy", at_least=0.999),
        Goal(figure="slow_inflight_peak", at_most=CAP),
        Goal(figure="p99_ms.healthy", at_most=60),
    ),
    measure=measure,
    columns=(
        "success.healthy",
        "p99_ms.healthy",
        "success.slow",
        "slow_inflight_peak",
        "inflight_peak",
    ),
    curves=curves,
    plots=(
        PlotSpec("Healthy shards", "healthy_per_s", "answers a second"),
        PlotSpec("At the slow shard", "slow_inflight", "calls open"),
    ),
    scale="8,000 calls a second over ten shards; 200 places in the dispatcher, 40 a shard.",
)
