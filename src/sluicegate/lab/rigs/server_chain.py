"""Server chain: the production policies in the order in which the resilience kit has them.

It is a station's policy like any other: `policy_candidate(server_chain)` runs it. What is set is
what everybody sets: how many may be at work at once, and who may claim to be CRITICAL (in a rig,
the callers of the kinds that are). The rest is as it comes.

There is no `shed` in it, as there is none in the kit. Before a queue that goes by class it refuses
next to nobody under a steady load, and under bursts it refuses what the pause behind them could
have served: 32 workers of 10 ms, one seed, goodput of bursts of 50 ms at twice the capacity 0.80
with it and 0.94 without, 100 ms at the capacity 0.61 and 0.75, 20 in 80 ms 0.49 and 0.77.
`with_shed` is there to compare.
"""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.baselines.queues import FifoPool
from sluicegate.lab.rig import Rig
from sluicegate.lab.task_mode import MakePolicy
from sluicegate.lab.world import World
from sluicegate.policies.criticality import CriticalityClamp, CriticalitySettings
from sluicegate.policies.deadline import Deadline
from sluicegate.policies.queue.queue import Queue, QueueSettings
from sluicegate.policies.shed import Shed, ShedSettings
from sluicegate.policies.stack import Stack, StackStage, at_once, waits
from sluicegate.policies.stress import Stress

ONE_CLASS: Final = CriticalitySettings(strangers=Criticality.BULK, default=Criticality.BULK)


def server_chain(rig: Rig, world: World) -> Stack:
    """Return deadline, criticality and queue."""
    return _chain(clamp(rig), waits("queue", _queue(rig)))


def without_criticality(rig: Rig, world: World) -> Stack:
    """The same without classes: nobody may claim one, so all work is equal."""
    return _chain(ONE_CLASS, waits("queue", _queue(rig)))


def without_queue(rig: Rig, world: World) -> Stack:
    """The same with a plain pool in place of the queue, first in, first out."""
    return _chain(clamp(rig), waits("pool", FifoPool(rig.workers)))


def with_shed(rig: Rig, world: World, shed: ShedSettings | None = None) -> Stack:
    """The same with a shedder before the queue, which heeds the stress of the whole."""
    stress = Stress()
    return Stack(
        at_once("deadline", Deadline()),
        at_once("criticality", CriticalityClamp(clamp(rig))),
        at_once("shed", Shed(stress, world.chance("shed"), shed)),
        waits("queue", _queue(rig)),
        observers=[stress],
    )


def turning(rotate_us: int) -> MakePolicy:
    """The same with an order of the cohorts that changes after `rotate_us`."""
    return lambda rig, world: with_shed(rig, world, ShedSettings(rotate_us=rotate_us))


def clamp(rig: Rig) -> CriticalitySettings:
    """Return who may claim CRITICAL: the callers of critical kinds."""
    return CriticalitySettings(
        callers={
            f"{kind.name}-{caller}": Criticality.CRITICAL
            for kind in rig.kinds
            if kind.criticality is Criticality.CRITICAL
            for caller in range(kind.callers)
        }
    )


def _chain(classes: CriticalitySettings, behind: StackStage) -> Stack:
    return Stack(
        at_once("deadline", Deadline()),
        at_once("criticality", CriticalityClamp(classes)),
        behind,
    )


def _queue(rig: Rig) -> Queue:
    return Queue(QueueSettings(places=rig.workers))
