"""Bursts and the pauses behind them: waiting a little longer serves what a short line refuses.

The figures in `queue/settings.py` and `kernels/burst_allowance.py` are made with this rig.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab import task_mode
from sluicegate.lab.arrivals import Arrivals, OnOff, Poisson
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.measures import figures
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.policies.queue.queue import Queue, QueueSettings
from tests.prove.seeds import first

WORKERS = 16
CAPACITY_PER_S = WORKERS * 100
SEEDS = (1, 2)


def bursts(load: float, part: float = 1.0) -> OnOff:
    """On for 50 ms at twice the mean, off for 50 ms."""
    per_s = 2 * load * part * CAPACITY_PER_S
    return OnOff(on_per_s=per_s, on_us=50_000, off_us=50_000)


def rig_of(*kinds: WorkKind) -> Rig:
    return Rig(kinds=kinds, workers=WORKERS, span_us=5_000_000, warm_us=1_000_000)


def run(rig: Rig, seed: int, **settings: object) -> RunLedger:
    def make(rig: Rig, _world: object) -> Queue:
        return Queue(QueueSettings(places=rig.workers, **settings))  # type: ignore[arg-type]

    return task_mode.run_policy(rig, make, seed)


@pytest.mark.prove
@pytest.mark.parametrize("seed", first(1, SEEDS))
def test_bursts_at_twice_the_capacity_leave_hardly_a_place_idle(seed: int) -> None:
    rig = rig_of(WorkKind(name="get", arrivals=bursts(2)))
    found = figures(rig, run(rig, seed))
    best = figures(rig, run(rig, seed, form="none"))  # waits for as long as callers do
    assert found["goodput"] >= best["goodput"] - 0.06
    assert found["p50_ms"] <= 30 < best["p50_ms"]
    # The control: a short line at all times.
    short = figures(rig, run(rig, seed, burst_us_max=0))
    assert short["goodput"] <= found["goodput"] - 0.12


@pytest.mark.prove
@pytest.mark.parametrize("line_us", first(1, [None, 12_000]))
def test_what_matters_loses_nothing_to_who_waits_longer(line_us: int | None) -> None:
    parts = zip(Criticality, (0.2, 0.2, 0.3, 0.3), strict=True)
    rig = rig_of(
        *(WorkKind(name=one.name, arrivals=bursts(2, part), criticality=one) for one, part in parts)
    )
    found = figures(rig, run(rig, 1, line_us=line_us))
    before = figures(rig, run(rig, 1, line_us=line_us, burst_us_max=0))
    assert found["goodput"] >= before["goodput"]
    assert found["success.CRITICAL"] >= 0.999


@pytest.mark.prove
@pytest.mark.parametrize(
    ("workers", "load", "seed"),
    first(2, [(16, 1.1, 6), (4, 1.1, 2), (4, 1.0, 1), (16, 1.1, 1), (16, 0.8, 1), (16, 2.0, 1)]),
)
def test_without_bursts_nothing_changes(workers: int, load: float, seed: int) -> None:
    """A steady overload has somebody new to serve at all times: its line stays short.

    Near the capacity chance leaves places idle now and then, few places more often: the first two
    had a p99 of 146 and 243 ms.
    """
    arrivals: Arrivals = Poisson(load * workers * 100)
    rig = replace(rig_of(WorkKind(name="get", arrivals=arrivals)), workers=workers)
    found, before = (figures(rig, run(rig, seed, burst_us_max=us)) for us in (400_000, 0))
    assert found["goodput"] >= before["goodput"]
    for figure in ("p50_ms", "p99_ms", "refused_p99_ms"):
        assert found[figure] <= before[figure] + 2


def test_a_steady_overload_of_slow_work_is_no_burst() -> None:
    """What a line gained before it was known that work takes 160 ms was kept for 20 s."""
    workers, slow = 4, 16
    kind = WorkKind(
        name="get", arrivals=Poisson(2 * workers * 100 / slow), cost=slow, timeout_us=4_500_000
    )
    rig = replace(rig_of(kind), workers=workers, span_us=30_000_000, warm_us=5_000_000)
    found, before = (figures(rig, run(rig, 1, burst_us_max=us)) for us in (400_000, 0))
    assert found["goodput"] >= before["goodput"]
    assert found["p99_ms"] <= before["p99_ms"] + 2


@pytest.mark.prove
def test_the_forms_that_are_named_after_others_are_as_they_describe_them() -> None:
    rig = rig_of(WorkKind(name="get", arrivals=bursts(2)))
    for form in ("folly", "facebook"):
        with_bursts = figures(rig, run(rig, 1, form=form))
        assert with_bursts == figures(rig, run(rig, 1, form=form, burst_us_max=0))
