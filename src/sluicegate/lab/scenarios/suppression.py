"""Suppression: an account goes from 0.8 to 10 times its limit, on twenty nodes, unevenly.

Nobody sees the whole: each node knows its own traffic, and gossip that is late or lost. Held by a
count of the last 24 seconds the account gets away with 50 seconds' worth and pays for it long after
it has stopped; by a count of what was accepted in them it swings from all to nothing for as long as
the deluge lasts (`seed-linear`, the source's first attempt); held to a fixed share each, it cannot
use what it has paid for. The goal is to settle within three seconds on the limit, to let go within
five, to do so after a step of any size, from 1.2 times the limit on, at 100 to 100,000 a second,
where it may be told from a burst and from chance (`rigs/account_steps.py`), and where the traffic
moves to other nodes, to stay below 1.5 limits when nodes are cut off (a surge meanwhile: to settle
there as soon and with no more overshoot), and never to touch an account that conforms to its limit
L and its burst B, a second of L.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Final, TypeAlias, final

from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.lab.arrivals import Poisson, Steps
from sluicegate.lab.goals import Goal
from sluicegate.lab.rigs.account_steps import SIGMAS, AccountSteps, measure_steps, play_steps
from sluicegate.lab.rigs.accounts import (
    FIRST_MASTER,
    SECOND_US,
    SEED_MASTER,
    SEED_NODE,
    AccountRig,
    AccountRun,
    AccountScheme,
    ConformingArrivals,
    curves,
    measure,
    play,
    suppressing,
)
from sluicegate.lab.scenario import (
    Curves,
    Figures,
    PlotSpec,
    Scenario,
    candidate_maker,
)

SECOND: Final = 1_000_000
L: Final = 1_000

STEP: Final = AccountRig(
    arrivals=Steps(((0, 0.8 * L), (8 * SECOND, 10 * L), (30 * SECOND, 0.9 * L))),
    per_s=L,
    hot=((0, 0), (19 * SECOND, 7), (30 * SECOND, 13)),
    step_us=8 * SECOND,
    shift_us=19 * SECOND,
    drop_us=30 * SECOND,
    span_us=40 * SECOND,
)
PARTITION: Final = AccountRig(
    arrivals=Steps(((0, 0.8 * L), (6 * SECOND, 10 * L))),
    per_s=L,
    step_us=6 * SECOND,
    parted_us=(12 * SECOND, 26 * SECOND),
    cut=8,
    span_us=32 * SECOND,
)
SURGE: Final = replace(
    PARTITION,
    arrivals=Steps(((0, 0.8 * L), (14 * SECOND, 10 * L))),
    step_us=14 * SECOND,
)
POISSON: Final = AccountRig(
    arrivals=Poisson(0.99 * L),
    per_s=L,
    hot=tuple((turn * 5 * SECOND, turn * 3 % 20) for turn in range(12)),
    span_us=60 * SECOND,
)
DELUGE: Final = AccountRig(
    arrivals=Steps(((0, 0.08 * L), (4 * SECOND, L))),
    per_s=L // 10,
    step_us=4 * SECOND,
    span_us=100 * SECOND,
)

BATCH_US: Final = 10_000
STEPS: Final = {
    "steps-100": AccountSteps(per_s=100),
    "steps-1k": AccountSteps(per_s=1_000, batch_us=BATCH_US),
    "steps-10k": AccountSteps(per_s=10_000, batch_us=BATCH_US),
    "steps-100k": AccountSteps(per_s=100_000, batch_us=BATCH_US),
}
CONFORMING: Final = ("poisson", "bursts", "poisson-100", "bursts-100")

Played: TypeAlias = AccountRun | list[AccountRun]


def _play(rig: AccountRig | AccountSteps, scheme: AccountScheme, seed: int) -> Played:
    if isinstance(rig, AccountSteps):
        return play_steps(rig, scheme, seed)
    return play(rig, scheme, seed)


def _measure(rig: AccountRig | AccountSteps, played: Played) -> Figures:
    if isinstance(rig, AccountSteps):
        assert isinstance(played, list)
        return measure_steps(rig, played)
    assert isinstance(played, AccountRun)
    return measure(rig, played)


def _curves(rig: AccountRig | AccountSteps, played: Played) -> Curves:
    """Of several steps, the smallest."""
    if isinstance(rig, AccountSteps):
        assert isinstance(played, list)
        return curves(rig.rig(rig.times[0]), played[0])
    assert isinstance(played, AccountRun)
    return curves(rig, played)


def _beyond_s(rig: AccountSteps) -> float:
    """Two limit-seconds, and three sigmas of chance in one."""
    return 2.0 + SIGMAS / sqrt(rig.per_s)


@final
class _SilentMaster:
    """Reads no report and sends none."""

    def receive(self, source: str, message: object, now_us: int) -> None:
        return None


@final
class _OpenNode:
    """A baseline: admits everything. It is what an account-wide limit replaces."""

    def admit(self, now_us: int, cost: int = 1) -> bool:
        return True

    def report(self, now_us: int) -> None:
        return None

    def receive(self, message: object, now_us: int) -> None:
        return None


@final
class _FixedShareNode:
    """A baseline: each node has its equal part of the limit, and sends and receives nothing.

    It is exact, and cannot use what the other nodes leave: an account whose users come to a few
    nodes gets the parts of those nodes.
    """

    def __init__(self, per_s: int, nodes: int) -> None:
        self._bucket = TokenBucket(per_s, nodes * SECOND_US, max(per_s // nodes, 1))

    def admit(self, now_us: int, cost: int = 1) -> bool:
        return self._bucket.take(cost, now_us).allowed

    def report(self, now_us: int) -> None:
        return None

    def receive(self, message: object, now_us: int) -> None:
        return None


no_suppression: Final = AccountScheme(
    lambda rig, number, world: _OpenNode(), lambda rig, world: _SilentMaster()
)
fixed_shares: Final = AccountScheme(
    lambda rig, number, world: _FixedShareNode(rig.per_s, rig.nodes),
    lambda rig, world: _SilentMaster(),
)


candidate: Final = candidate_maker(_play)

SCENARIO: Final[Scenario[AccountRig | AccountSteps, Played]] = Scenario(
    number=18,
    name="suppression",
    title="An account's limit across twenty nodes, without a store",
    why="A limit that acts late, or on the innocent, is worse than none.",
    rigs={
        "step": STEP,
        "partition": PARTITION,
        "surge": SURGE,
        "deluge": DELUGE,
        "poisson": POISSON,
        "bursts": replace(POISSON, arrivals=ConformingArrivals(per_s=L, burst=L)),
        "poisson-100": replace(POISSON, arrivals=Poisson(99.0), per_s=100),
        "bursts-100": replace(
            POISSON, arrivals=ConformingArrivals(per_s=100, burst=100), per_s=100
        ),
        **STEPS,
    },
    candidates={
        "ladder": candidate(suppressing()),
        "seed-mean": candidate(suppressing(SEED_NODE, SEED_MASTER)),
        "seed-linear": candidate(suppressing(SEED_NODE, FIRST_MASTER)),
        "fixed-shares": candidate(fixed_shares),
        "without-suppression": candidate(no_suppression),
    },
    ours="ladder",
    must_fail=("seed-mean", "seed-linear", "fixed-shares", "without-suppression"),
    goals=(
        Goal(figure="settled_s", at_most=3.0, cases=("step",)),
        Goal(figure="overshoot_s", at_most=2.0, cases=("step",)),
        Goal(figure="steady_min", at_least=0.97, cases=("step",)),
        Goal(figure="steady_max", at_most=1.03, cases=("step",)),
        Goal(figure="shifted_s", at_most=5.0, cases=("step",)),
        Goal(figure="recovery_s", at_most=5.0, cases=("step",)),
        Goal(figure="parted_max", at_most=1.5, cases=("partition",)),
        Goal(figure="surge_s", at_most=3.0, cases=("surge",)),
        Goal(figure="surge_overshoot_s", at_most=2.0, cases=("surge",)),
        Goal(figure="swing", at_most=0.5, cases=("deluge",)),
        Goal(figure="refused", at_most=0, cases=CONFORMING),
        Goal(figure="late_s", at_most=1.5, cases=tuple(STEPS)),
        Goal(figure="spent_late_s", at_most=3.0, cases=tuple(STEPS)[1:]),
        Goal(figure="moved_s", at_most=3.0, cases=tuple(STEPS)),
        Goal(figure="beyond_s", at_most=_beyond_s, cases=tuple(STEPS)),
        Goal(figure="off", at_most=0.05, cases=tuple(STEPS)),
    ),
    measure=_measure,
    curves=_curves,
    columns=(
        "settled_s",
        "overshoot_s",
        "shifted_s",
        "recovery_s",
        "parted_max",
        "swing",
        "period_s",
        "refused",
        "late_s",
        "spent_late_s",
        "beyond_s",
    ),
    plots=(PlotSpec("Admitted", "admitted", "limits", log_y=True),),
    scale="A limit of 1,000 a second, 100 in the deluge; 8 nodes of 20 parted, the hottest too. "
    "In steps from 1,000 a second on, what comes to a node in 10 ms is one operation of that cost.",
)
