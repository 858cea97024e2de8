"""Slow shard: one of ten is fifty times slower, and the dispatcher has 200 places in all.

With one pool for all, what waits for the slow shard fills it, and nine healthy shards are not asked
any more. The goal is that they do not notice, and that the slow one never has more of the pool than
its cap. A breaker alone helps from its threshold on; until then, and in each probe, the pool is
full.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.baselines.fifo_pool import FifoPool
from sluicegate.lab.goals import Goal
from sluicegate.lab.rigs.shards import MakeGate, Shards, candidate, curves, measure
from sluicegate.lab.scenario import AS_BARS, OVER_TIME, PlotSpec, Scenario
from sluicegate.lab.speed_profile import SpeedProfile
from sluicegate.lab.world import World
from sluicegate.policies.breaker import Breaker
from sluicegate.policies.bulkhead import Bulkhead, BulkheadSettings
from sluicegate.policies.concurrency import AdaptiveSettings
from sluicegate.policies.stack import Stack, at_once

POOL: Final = 200
CAP: Final = 40
SPEED: Final = 1 / 50


def gate(settings: BulkheadSettings | None = None, *, breaks: bool = False) -> MakeGate:
    """Return a maker of a bulkhead, with a breaker for each shard before it if it `breaks`."""

    def make(rig: Shards, world: World) -> Stack:
        before = [at_once("breaker", Breaker(world.chance("breaker")))] if breaks else []
        compartments = Bulkhead(settings or BulkheadSettings(), world.chance("bulkhead"))
        return Stack(*before, at_once("bulkhead", compartments))

    return make


ONE_POOL: Final = BulkheadSettings(cap=POOL, pool=POOL)  # a refusal when it is full

bulkhead: Final = gate()
adaptive: Final = gate(BulkheadSettings(adaptive=AdaptiveSettings()))
with_breaker: Final = gate(breaks=True)
breaker: Final = gate(ONE_POOL, breaks=True)
without: Final = gate(ONE_POOL)


def shared_pool(rig: Shards, world: World) -> FifoPool:
    """One pool, first come, first served."""
    return FifoPool(POOL)


SCENARIO: Final = Scenario(
    number=16,
    name="slow-shard",
    title="One shard of ten fifty times slower",
    why="A part that is slow fills its own compartment, and the ship stays afloat.",
    rigs={
        "slow": Shards(speed_profile=SpeedProfile(((0, SPEED),))),
        "turns": Shards(speed_profile=SpeedProfile(((2_000_000, SPEED), (4_000_000, 1.0)))),
        "two": Shards(speed_profile=SpeedProfile(((0, SPEED),)), slow=2),
    },
    candidates={
        "bulkhead": candidate(bulkhead),
        "adaptive": candidate(adaptive),
        "with-breaker": candidate(with_breaker),
        "breaker": candidate(breaker),
        "without-bulkhead": candidate(without),
        "shared-pool": candidate(shared_pool),
    },
    ours="bulkhead",
    must_fail=("shared-pool", "without-bulkhead"),
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
        PlotSpec("What healthy shards answer", ("success.healthy",), AS_BARS, "of their calls"),
        PlotSpec("Healthy shards", ("healthy_per_s",), OVER_TIME, "answers a second", "s"),
        PlotSpec("At the slow shard", ("slow_inflight",), OVER_TIME, "calls open", "s"),
    ),
    scale="8,000 calls a second over ten shards; 200 places in the dispatcher, 40 a shard.",
)
