"""Server chain: the production policies in the order in which a service would use them.

It is a station's policy like any other: `policy_candidate(server_chain)` runs it. What is set is
what everybody sets: how many may be at work at once, and who may claim to be CRITICAL (in a rig,
the callers of the kinds that are). The rest is as it comes.
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


def server_chain(rig: Rig, world: World, shed: ShedSettings | None = None) -> Stack:
    """Return deadline, criticality, shed and queue, observed by stress."""
    return _chain(rig, world, clamp(rig), shed, waits("queue", _queue(rig)))


def turning(rotate_us: int) -> MakePolicy:
    """The same with an order of the cohorts that changes after `rotate_us`."""
    return lambda rig, world: server_chain(rig, world, ShedSettings(rotate_us=rotate_us))


def without_criticality(rig: Rig, world: World) -> Stack:
    """The same without classes: nobody may claim one, so all work is equal."""
    return _chain(rig, world, ONE_CLASS, None, waits("queue", _queue(rig)))


def without_shed(rig: Rig, world: World) -> Stack:
    """The same without shed: nothing refuses before the queue."""
    return Stack(
        at_once("deadline", Deadline()),
        at_once("criticality", CriticalityClamp(clamp(rig))),
        waits("queue", _queue(rig)),
    )


def shed_alone(rig: Rig, world: World) -> Stack:
    """The same with a plain pool in place of the queue, first in, first out."""
    return _chain(rig, world, clamp(rig), None, waits("pool", FifoPool(rig.workers)))


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


def _chain(
    rig: Rig,
    world: World,
    classes: CriticalitySettings,
    shed: ShedSettings | None,
    behind: StackStage,
) -> Stack:
    stress = Stress()
    return Stack(
        at_once("deadline", Deadline()),
        at_once("criticality", CriticalityClamp(classes)),
        at_once("shed", Shed(stress, world.chance("shed"), shed)),
        behind,
        observers=[stress],
    )


def _queue(rig: Rig) -> Queue:
    return Queue(QueueSettings(places=rig.workers))
