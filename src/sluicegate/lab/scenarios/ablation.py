"""Ablation: request units alone, the queue alone, and both.

Mussel's authors found that neither alone kept latency flat, for they work on two scales of time: a
price for each call stops a burst of dear calls before it has cost anything, and the queue's delay
answers when everything becomes slow. Here both happen, one after the other: for two seconds one
caller sends scans for twice what there is, and later the backend works at a third of its speed for
ten. The goal is that in every second the p99 of the reads is at most twice what it is at that speed
with nobody else there.

In Mussel a latency ratio stands beside the queue. Here it has no part: its price needs some eight
seconds to reach the class of the reads, and by class the queue protects them at once. Where the
queue does not suffice, and the ratio is what tells, is played in `shared_engine.py`.

At first it is quiet for twenty seconds, in which the caller's scans show what they cost.

The p99 is taken second by second, over the p99 of the work itself at the speed of that second: a
backend at a third of its speed takes three times as long, and nobody in front of it can change
that. A second without an answer in time is as uneven as can be. A second in which the speed changes
counts as the slower of the two, and so does the one after, in which earlier work ends.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Final

from sluicegate.contracts.criticality import Criticality
from sluicegate.kernels.cost_model import Weights
from sluicegate.lab.arrivals import Steps
from sluicegate.lab.goals import Goal
from sluicegate.lab.ledger import BUCKET_US
from sluicegate.lab.measures import quantile
from sluicegate.lab.rig import WorkKind
from sluicegate.lab.rigs import tenants
from sluicegate.lab.rigs.tenants import TenantAccount, Tenants, TenantsRun
from sluicegate.lab.scenario import (
    PLACES,
    Curves,
    Figures,
    PlotSpec,
    Scenario,
)
from sluicegate.lab.speed_profile import SpeedProfile
from sluicegate.policies.quota.request_units import RequestUnitsSettings

SECOND: Final = 1_000_000
RU_US: Final = 10_000
SCAN_RU: Final = 50
QUIET_US: Final = 20 * SECOND
BURST_US: Final = (23 * SECOND, 25 * SECOND)
SLOW_US: Final = (29 * SECOND, 39 * SECOND)
QUOTA_RU: Final = 500  # a second, for each caller: some ten times what a reader needs
EVERY_CALL: Final = Weights(1.0, 0.0, 0.0, 0.0)


def busy(per_s: float) -> Steps:
    """So many a second, and a tenth of it while it is quiet."""
    return Steps(((0, per_s / 10), (QUIET_US, per_s)))


def rig(*, burst: bool, slow: bool, workers: int = 32) -> Tenants:
    """Readers, browsers who matter less, and a caller who scans and has not said what it is."""
    capacity_ru_per_s = workers * 1e6 / RU_US
    usual, many = 0.5, 2 * capacity_ru_per_s / SCAN_RU
    begin_us, end_us = BURST_US
    scans = Steps(((0, usual), (begin_us, many), (end_us, usual)) if burst else ((0, usual),))
    hundred, timeout_us = 100, 500_000
    return Tenants(
        kinds=(
            WorkKind(
                name="read",
                arrivals=busy(0.25 * capacity_ru_per_s),
                timeout_us=timeout_us,
                callers=hundred,
            ),
            WorkKind(
                name="browse",
                arrivals=busy(0.35 * capacity_ru_per_s),
                criticality=Criticality.BEST_EFFORT,
                timeout_us=timeout_us,
                callers=hundred,
            ),
            WorkKind(name="scan", arrivals=scans, timeout_us=10 * SECOND, cost=SCAN_RU),
        ),
        workers=workers,
        ru_us=RU_US,
        speed_profile=SpeedProfile(((SLOW_US[0], 1 / 3), (SLOW_US[1], 1.0)) if slow else ()),
        span_us=44 * SECOND,
        warm_us=21 * SECOND,
    )


BY_COST: Final = RequestUnitsSettings(rate_ru=QUOTA_RU)
BY_CALL: Final = RequestUnitsSettings(
    rate_ru=QUOTA_RU, weights=EVERY_CALL, estimates_max=0, settle=False
)


SECOND_US: Final = 1_000_000
BUCKETS: Final = SECOND_US // BUCKET_US
FLAT: Final = 2.0
_P99_OF_MEAN: Final = 4.605  # of an exponential service


def measure(rig: Tenants, run: TenantsRun) -> Figures:
    """The worst second of the first kind, how many were uneven, and what each kind got."""
    times = [p99_ms / least_ms(rig, second) for second, p99_ms in seconds(rig, run.accounts[0])]
    success = {
        f"success.{kind.name}": account.success()
        for kind, account in zip(rig.kinds, run.accounts, strict=True)
    }
    return {
        "worst_times": max(times),
        "uneven_s": float(sum(one > FLAT for one in times)),
        **success,
    }


def curves(rig: Tenants, run: TenantsRun) -> Curves:
    """The p99 of the first kind, and the least it could be; seconds without an answer are left."""
    p99s = seconds(rig, run.accounts[0])
    return {
        f"{rig.kinds[0].name}_p99_ms": [(float(at), ms) for at, ms in p99s if ms < math.inf],
        "least_ms": [(float(at), least_ms(rig, at)) for at, _ in p99s],
    }


def seconds(rig: Tenants, account: TenantAccount) -> list[tuple[int, float]]:
    """The p99 of each whole second after the warm-up."""
    found = []
    for second in range(rig.warm_us // SECOND_US, rig.span_us // SECOND_US):
        buckets = account.good_us_at[second * BUCKETS : (second + 1) * BUCKETS]
        found.append((second, quantile([*chain(*buckets)], 0.99) / 1000))
    return found


def least_ms(rig: Tenants, second: int) -> float:
    """The p99 of the work itself, at the slowest speed of this second and the one before."""
    begin_us = (second - 1) * SECOND_US
    changes = [
        at for at, _ in rig.speed_profile.changes if begin_us < at < begin_us + 2 * SECOND_US
    ]
    speed = min(rig.speed_profile.speed(at_us) for at_us in [begin_us, *changes])
    return _P99_OF_MEAN * rig.ru_us / speed / 1000


SCENARIO: Final = Scenario(
    number=25,
    name="ablation",
    title="Request units alone, the queue alone, and both",
    why="Neither alone keeps latency flat: one is quick and blind, the other sees and is late.",
    rigs={
        "burst": rig(burst=True, slow=False),
        "slow": rig(burst=False, slow=True),
        "both": rig(burst=True, slow=True),
    },
    candidates={
        "both": tenants.candidate(tenants.guarded(BY_COST)),
        "pricing": tenants.candidate(tenants.pooled(BY_COST)),
        "queue": tenants.candidate(tenants.guarded(BY_CALL)),
        "fifo": tenants.candidate(tenants.fifo),
    },
    ours="both",
    must_fail=("pricing", "queue", "fifo"),
    own_settings={
        **PLACES,
        "request_units.rate_ru 500": "a quota is for whoever grants it to say; this is ten times "
        "what a reader needs, and with 5,000 for each the scans are within theirs",
    },
    goals=(
        Goal(figure="worst_times", at_most=2.0),
        Goal(figure="success.read", at_least=0.99),  # or it would be flat for few
    ),
    measure=measure,
    columns=("worst_times", "uneven_s", "success.read", "success.browse", "success.scan"),
    curves=curves,
    plots=(PlotSpec("Reads, second by second", "read_p99_ms", "p99, ms", log_y=True),),
    scale="3,200 RU a second; the burst is two seconds, the slow-down ten.",
)
