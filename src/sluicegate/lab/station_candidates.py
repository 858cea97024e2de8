"""The candidates of a rig with one station: the product's own policies, and the baselines.

The production policies run as they are, with their defaults; what is set here is what any user
sets: how many requests may be at work at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from sluicegate.lab import baselines, kernel_mode, task_mode
from sluicegate.lab.baselines.queues import fifo_pool
from sluicegate.lab.kernel_mode import MakeQueue
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.rig import Rig
from sluicegate.lab.scenario import KERNELS, TASKS, Candidate
from sluicegate.lab.task_mode import MakePolicy
from sluicegate.lab.world import World
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.forms.facebook import FacebookForm, FacebookSettings
from sluicegate.policies.stack import Stack

StationCandidate: TypeAlias = "Candidate[Rig, RunLedger]"


def kernel_candidate(make_queue: MakeQueue) -> StationCandidate:
    """A candidate that is a queue before the workers, in the kernel-only mode."""
    return Candidate(lambda rig, seed: kernel_mode.run_queue(rig, make_queue, seed), KERNELS)


def policy_candidate(make_policy: MakePolicy) -> StationCandidate:
    """A candidate that is a policy, as it runs in production, on virtual time."""
    return Candidate(lambda rig, seed: task_mode.run_policy(rig, make_policy, seed), TASKS)


def settled(candidate: StationCandidate, settle_us: int) -> StationCandidate:
    """The same after so much more of a load that does not change, for what adapts in windows.

    A level that moves once a second needs 45 of them from ten times too much; what is measured
    before that says how it began, and not what it does.
    """

    def run(rig: Rig, seed: int) -> RunLedger:
        longer = replace(rig, warm_us=rig.warm_us + settle_us, span_us=rig.span_us + settle_us)
        return candidate.run(longer, seed)

    return Candidate(run, candidate.mode)


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
    **{name: kernel_candidate(make_queue) for name, make_queue in baselines.TABLE.items()},
    "fifo-pool": policy_candidate(fifo_pool),
}
# Where the load does not change, each baseline has time for its own windows.
SETTLE_US: Final[Mapping[str, int]] = {
    "breakwater": 2_000_000,
    "cinnamon": 20_000_000,
    "dagor": 60_000_000,
    "pid": 5_000_000,
    "topfull": 40_000_000,
}
SETTLED: Final[Mapping[str, StationCandidate]] = {
    name: settled(BASELINES[name], settle_us) for name, settle_us in SETTLE_US.items()
}
ALL: Final[Mapping[str, StationCandidate]] = {**OURS, **BASELINES}
