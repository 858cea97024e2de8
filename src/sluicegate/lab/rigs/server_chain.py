"""Server chain: the production policies in the order in which the resilience kit has them.

It is a station's policy like any other: `policy_candidate(server_chain)` runs it. It is given what
everybody sets: the number of slots, and who may claim to be CRITICAL (in a rig, the callers of the
kinds that are).
"""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.baselines.queues import QueuedPool
from sluicegate.lab.rig import Rig
from sluicegate.lab.world import World
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.criticality import CriticalityClamp, CriticalitySettings
from sluicegate.policies.stack import Stack, StackStage, at_once, waits

ONE_CLASS: Final = CriticalitySettings(strangers=Criticality.BULK, default=Criticality.BULK)


def server_chain(rig: Rig, world: World) -> Stack:
    """Return criticality and queue."""
    return _chain(clamp(rig), waits("queue", _queue(rig)))


def without_criticality(rig: Rig, world: World) -> Stack:
    """The same without classes: nobody may claim one, so all work is equal."""
    return _chain(ONE_CLASS, waits("queue", _queue(rig)))


def without_queue(rig: Rig, world: World) -> Stack:
    """The same with a plain pool in place of the queue, first in, first out."""
    return _chain(clamp(rig), waits("pool", QueuedPool(rig.workers)))


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
    return Stack(at_once("criticality", CriticalityClamp(classes)), behind)


def _queue(rig: Rig) -> Gate:
    return Gate(GateSettings(slots=rig.workers))
