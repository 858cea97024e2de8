"""Flatness: whether the p99 of one kind stays what it is when nobody else is there.

Second by second, over the p99 of the work itself at the speed of that second: a backend at a third
of its speed takes three times as long, and nobody in front of it can change that. A second in which
nobody was answered in time is as uneven as can be. A second in which the speed changes counts as
the slower of the two, and so does the one after, in which the work ends that began before.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Final

from sluicegate.lab.ledger import BUCKET_US
from sluicegate.lab.measures import quantile
from sluicegate.lab.rigs.tenants import Account, Tenants, TenantsRun
from sluicegate.lab.scenario import Curves, Figures

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
    seen = seconds(rig, run.accounts[0])
    return {
        f"{rig.kinds[0].name}_p99_ms": [(float(at), ms) for at, ms in seen if ms < math.inf],
        "least_ms": [(float(at), least_ms(rig, at)) for at, _ in seen],
    }


def seconds(rig: Tenants, account: Account) -> list[tuple[int, float]]:
    """The p99 of each whole second after the warm-up."""
    found = []
    for second in range(rig.warm_us // SECOND_US, rig.span_us // SECOND_US):
        buckets = account.good_us_at[second * BUCKETS : (second + 1) * BUCKETS]
        found.append((second, quantile([*chain(*buckets)], 0.99) / 1000))
    return found


def least_ms(rig: Tenants, second: int) -> float:
    """The p99 of the work itself, at the slowest speed of this second and the one before."""
    begin_us = (second - 1) * SECOND_US
    changes = [at for at, _ in rig.course.changes if begin_us < at < begin_us + 2 * SECOND_US]
    speed = min(rig.course.speed(at_us) for at_us in [begin_us, *changes])
    return _P99_OF_MEAN * rig.ru_us / speed / 1000
