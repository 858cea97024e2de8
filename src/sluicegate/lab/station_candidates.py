"""The candidates of a rig with one station: the product's own policies, and the baselines.

The production policies run as they are, with their defaults; what is set here is what any user
sets: how many requests may be at work at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from sluicegate.lab import task_mode
from sluicegate.lab.baselines.queues import ORDERS, queued_pool
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.rig import Rig
from sluicegate.lab.scenario import Candidate
from sluicegate.lab.task_mode import MakePolicy
from sluicegate.lab.world import World
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.forms.facebook import FacebookForm, FacebookSettings
from sluicegate.policies.stack import Stack

StationCandidate: TypeAlias = "Candidate[Rig, RunLedger]"


def policy_candidate(make_policy: MakePolicy) -> StationCandidate:
    """A candidate that is a policy, as it runs in production, on virtual time."""
    return Candidate(lambda rig, seed: task_mode.run_policy(rig, make_policy, seed))


def queue(rig: Rig, world: World) -> Gate:
    """One queue, as many slots as there are workers."""
    return Gate(GateSettings(slots=rig.workers))


def queue_found(rig: Rig, world: World) -> Gate:
    """The same, with a limit that is found."""
    return Gate(GateSettings())


def queue_facebook(rig: Rig, world: World) -> Stack:
    """Controlled delay with adaptive LIFO and a watermark, as Maurer describes it."""
    return Stack(*FacebookForm(FacebookSettings(slots=rig.workers)).stages())


OURS: Final[Mapping[str, StationCandidate]] = {
    "queue": policy_candidate(queue),
    "queue-found": policy_candidate(queue_found),
    "queue-facebook": policy_candidate(queue_facebook),
}
BASELINES: Final[Mapping[str, StationCandidate]] = {
    name: policy_candidate(queued_pool(make_order)) for name, make_order in ORDERS.items()
}
ALL: Final[Mapping[str, StationCandidate]] = {**OURS, **BASELINES}
