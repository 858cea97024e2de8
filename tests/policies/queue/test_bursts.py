"""Bursts and the pauses behind them: waiting a little longer serves what a short line refuses.

The figures in `queue/settings.py` and `kernels/burst_allowance.py` are made with this rig.
"""

from __future__ import annotations

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.reasons import QUEUE_FULL
from sluicegate.contracts.request import Request
from sluicegate.lab import task_mode
from sluicegate.lab.arrivals import Arrivals, OnOff, Poisson
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.measures import figures
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.policies.queue.line_book import LineBook, LineRemoval, Waiter
from sluicegate.policies.queue.queue import Queue, QueueSettings

MS = 1_000
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


@pytest.mark.parametrize("seed", SEEDS)
def test_bursts_at_twice_the_capacity_leave_hardly_a_place_idle(seed: int) -> None:
    rig = rig_of(WorkKind(name="get", arrivals=bursts(2)))
    found = figures(rig, run(rig, seed))
    assert found["goodput"] >= 0.95
    assert found["p50_ms"] <= 30  # the newest first
    # The control: a short line at all times.
    short = figures(rig, run(rig, seed, burst_us_max=0))
    assert short["goodput"] <= found["goodput"] - 0.12


def test_bursts_at_the_capacity_are_served_in_order_as_far_as_all_can_be() -> None:
    rig = rig_of(WorkKind(name="get", arrivals=bursts(1)))
    found = figures(rig, run(rig, 1))
    best = figures(rig, run(rig, 1, form="none"))  # in order, and it waits as long as callers do
    newest = figures(rig, run(rig, 1, form="none", standing_us=0))
    assert found["goodput"] >= max(best["goodput"], newest["goodput"]) - 0.02
    assert found["wasted"] <= 0.02


def test_who_would_be_next_too_late_is_refused_at_once() -> None:
    book, removed = LineBook(QueueSettings(places=1)), list[LineRemoval]()
    book.learn(10 * MS, False, 0)
    waiters = [Waiter(Request("k", deadline_us=105 * MS), 0) for _ in range(11)]
    for waiter in waiters:
        book.add(waiter, 1, 0, removed)
    # The last would begin after 100 ms, and then its own work takes 10.
    assert [one.queued for one in waiters] == [True] * 10 + [False]
    assert [(one.waiter, one.reason) for one in removed] == [(waiters[-1], QUEUE_FULL)]
    # What matters more stands before them, so nobody is ahead of it.
    critical = Waiter(Request("k", deadline_us=105 * MS, criticality=Criticality.CRITICAL), 0)
    book.add(critical, 1, 0, removed)
    assert critical.queued


def test_a_line_stands_for_as_long_as_callers_wait_once_and_is_short_from_then_on() -> None:
    book, removed = LineBook(QueueSettings(places=1)), list[LineRemoval]()
    first_us = -1
    waits: list[int] = []
    for now_us in range(0, 1_500 * MS, MS):  # one a millisecond, one served in two
        book.learn(2 * MS, False, now_us)
        book.add(Waiter(Request("k"), now_us), 1, now_us, removed)
        waiter = book.next(now_us, removed) if now_us % (2 * MS) == 0 else None
        if removed and first_us < 0:
            first_us = now_us
        if waiter is not None and now_us >= 1_000 * MS:
            waits.append(now_us - waiter.queued_us)
    assert 500 * MS <= first_us <= 510 * MS
    assert max(waits) <= 15 * MS


@pytest.mark.parametrize("line_us", [None, 12_000])
def test_what_matters_loses_nothing_to_who_waits_longer(line_us: int | None) -> None:
    parts = zip(Criticality, (0.2, 0.2, 0.3, 0.3), strict=True)
    rig = rig_of(
        *(WorkKind(name=one.name, arrivals=bursts(2, part), criticality=one) for one, part in parts)
    )
    found = figures(rig, run(rig, 1, line_us=line_us))
    before = figures(rig, run(rig, 1, line_us=line_us, burst_us_max=0))
    assert found["goodput"] >= before["goodput"]
    assert found["success.CRITICAL"] >= 0.999


@pytest.mark.parametrize("load", [0.8, 1.4, 2.0])
def test_without_bursts_nothing_changes_once_the_line_has_stood(load: float) -> None:
    """A steady overload has somebody new to serve at all times: its line stays short."""
    arrivals: Arrivals = Poisson(load * CAPACITY_PER_S)
    rig = rig_of(WorkKind(name="get", arrivals=arrivals))
    found, short = figures(rig, run(rig, 1)), figures(rig, run(rig, 1, burst_us_max=0))
    assert found["goodput"] >= short["goodput"] - 0.002
    assert found["p99_ms"] <= short["p99_ms"] + 2
    assert found["refused_p99_ms"] <= short["refused_p99_ms"] + 2


def test_the_forms_that_are_named_after_others_are_as_they_describe_them() -> None:
    rig = rig_of(WorkKind(name="get", arrivals=bursts(2)))
    for form in ("folly", "facebook"):
        with_bursts = figures(rig, run(rig, 1, form=form))
        assert with_bursts == figures(rig, run(rig, 1, form=form, burst_us_max=0))
