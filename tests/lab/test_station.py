from __future__ import annotations

from math import factorial

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arrivals import Even, Poisson, Replay
from sluicegate.lab.baselines.queues import ORDERS, BoundedOrder, fifo_pool, queued_pool
from sluicegate.lab.durations import Constant, Duration, Exponential
from sluicegate.lab.retries import NAIVE, Retries
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.speed_profile import SpeedProfile
from sluicegate.lab.task_mode import run_policy
from tests.lab.confidence import Interval, interval
from tests.lab.rigs import small
from tests.prove.seeds import first, in_slice

SERVICE_US = 10_000
FOR_EVER_US = 1 << 50


def erlang_c(workers: int, load: float) -> float:
    """The share of arrivals that find all workers busy."""
    offered = workers * load
    waiting = offered**workers / factorial(workers) / (1 - load)
    return waiting / (sum(offered**n / factorial(n) for n in range(workers)) + waiting)


def markov_wait_us(workers: int, load: float) -> float:
    return erlang_c(workers, load) * SERVICE_US / (workers * (1 - load))


def constant_wait_us(load: float) -> float:
    return load / (2 * (1 - load)) * SERVICE_US


def waits(service: Duration, workers: int, load: float, *, units: int, seeds: range) -> Interval:
    """The mean wait and its 99% confidence interval over seeds."""
    per_s = load * workers * 1e6 / SERVICE_US
    span_us = int(units / per_s * 1e6)
    rig = Rig(
        kinds=(WorkKind(name="get", arrivals=Poisson(per_s), timeout_us=FOR_EVER_US),),
        workers=workers,
        service=service,
        span_us=span_us,
        warm_us=span_us // 20,
    )
    runs = [run_policy(rig, fifo_pool, seed) for seed in seeds]
    means = [run.waited_us / run.served for run in runs]
    return interval(means, level=99)


THEORY = [
    pytest.param(Exponential(SERVICE_US), 1, 0.5, markov_wait_us(1, 0.5), id="M/M/1 at 0.5"),
    pytest.param(Exponential(SERVICE_US), 1, 0.8, markov_wait_us(1, 0.8), id="M/M/1 at 0.8"),
    pytest.param(Exponential(SERVICE_US), 8, 0.8, markov_wait_us(8, 0.8), id="M/M/8 at 0.8"),
    pytest.param(Constant(SERVICE_US), 1, 0.5, constant_wait_us(0.5), id="M/D/1 at 0.5"),
    pytest.param(Constant(SERVICE_US), 1, 0.8, constant_wait_us(0.8), id="M/D/1 at 0.8"),
]


QUICK = [row.values for row in THEORY]


def test_with_one_worker_erlang_is_the_load() -> None:
    assert erlang_c(1, 0.8) == pytest.approx(0.8)
    assert markov_wait_us(1, 0.8) == pytest.approx(4 * SERVICE_US)


@pytest.mark.parametrize(("service", "workers", "load", "theory_us"), first(1, QUICK))
def test_mean_waits_are_what_the_books_say_within_their_confidence_interval(
    service: Duration, workers: int, load: float, theory_us: float
) -> None:
    mean_wait = waits(service, workers, load, units=20_000, seeds=range(16))
    assert mean_wait.low <= theory_us <= mean_wait.high
    assert (mean_wait.high - mean_wait.low) / theory_us < 0.2


@pytest.mark.prove
@pytest.mark.parametrize(
    ("service", "workers", "load", "theory_us"),
    [row for number, row in enumerate(THEORY) if in_slice(number, len(THEORY))],
)
def test_that_interval_lies_within_two_per_cent_of_the_books(
    service: Duration, workers: int, load: float, theory_us: float
) -> None:
    units = 800_000 if load > 0.5 else 200_000
    mean_wait = waits(service, workers, load, units=units, seeds=range(10))
    assert mean_wait.low <= theory_us <= mean_wait.high
    assert mean_wait.low >= 0.98 * theory_us
    assert mean_wait.high <= 1.02 * theory_us


@pytest.mark.parametrize("name", ORDERS)
def test_same_seed_gives_same_run_and_another_seed_another(name: str) -> None:
    rig = small(1.5, span_us=700_000, refusal_cost=0.01)

    def outcome(seed: int) -> tuple[object, ...]:
        ledger = run_policy(rig, queued_pool(ORDERS[name]), seed)
        row = ledger.by_kind[0]
        return row.good_us, row.refused_us, row.callers, ledger.queue_peak, ledger.useful_us

    assert outcome(1) == outcome(1)
    assert outcome(1) != outcome(2)


def test_two_workers_serve_two_units_and_the_third_waits_its_turn() -> None:
    rig = Rig(
        kinds=(WorkKind(name="get", arrivals=Replay((0, 10, 20, 30)), timeout_us=250),),
        workers=2,
        service=Constant(100),
        span_us=1_000,
        warm_us=0,
    )
    ledger = run_policy(rig, fifo_pool, 0)
    assert ledger.by_kind[0].good_us == [100, 100, 180, 180]
    assert ledger.waited_us == 160
    assert ledger.queue_peak == 2


def test_an_answer_after_the_deadline_is_late_and_its_work_is_wasted() -> None:
    rig = Rig(
        kinds=(WorkKind(name="get", arrivals=Replay((0, 1)), timeout_us=150, cost=3),),
        workers=1,
        service=Constant(50),
        span_us=1_000,
        warm_us=0,
    )
    ledger = run_policy(rig, fifo_pool, 0)
    assert (ledger.by_kind[0].good, ledger.by_kind[0].late) == (1, 1)
    assert (ledger.useful_us, ledger.wasted_us) == (150, 150)


def test_a_brown_out_slows_the_work_that_is_under_way() -> None:
    rig = Rig(
        kinds=(WorkKind(name="get", arrivals=Replay((0,)), timeout_us=1_000),),
        workers=1,
        service=Constant(100),
        speed_profile=SpeedProfile(((50, 0.5), (10_000, 1.0))),
        span_us=1_000,
        warm_us=0,
    )
    assert run_policy(rig, fifo_pool, 0).by_kind[0].good_us == [150]


def test_what_refusals_cost_is_taken_from_the_workers_and_no_more() -> None:
    free = run_policy(small(5), queued_pool(lambda _: BoundedOrder(64)), 1)
    dear = run_policy(small(5, refusal_cost=0.05), queued_pool(lambda _: BoundedOrder(64)), 1)
    rig = small(5, refusal_cost=0.05)
    assert rig.ceiling(5) == pytest.approx((1 - 0.25) / 0.95)
    assert dear.useful_us / free.useful_us == pytest.approx(rig.ceiling(5), rel=0.02)


def test_naive_callers_try_as_often_as_they_are_set_to_and_at_once() -> None:
    rig = Rig(
        kinds=(WorkKind(name="get", arrivals=Replay((0,)), timeout_us=100),),
        workers=1,
        service=Constant(100_000),
        retries=NAIVE,
        span_us=1_000,
        warm_us=0,
    )
    ledger = run_policy(rig, fifo_pool, 0)
    assert (ledger.started, ledger.retries) == (1, 3)
    assert ledger.by_kind[0].offered == 4


def test_a_call_that_was_answered_is_not_tried_again() -> None:
    ledger = run_policy(small(0.5, retries=NAIVE), fifo_pool, 1)
    assert ledger.retries == 0


def test_a_budget_holds_retries_to_its_share() -> None:
    smart = Retries(attempts=4, base_us=1_000, budget_milli=100, reserve_milli_per_s=0)
    budgeted = run_policy(small(3, retries=smart), queued_pool(lambda _: BoundedOrder(8)), 1)
    naive = run_policy(small(3, retries=NAIVE), queued_pool(lambda _: BoundedOrder(8)), 1)
    assert budgeted.retries <= 0.105 * budgeted.started
    assert naive.retries > naive.started


def test_the_warm_up_is_not_counted() -> None:
    rig = Rig(
        kinds=(WorkKind(name="get", arrivals=Even(1_000), timeout_us=1_000),),
        workers=4,
        service=Constant(500),
        span_us=1_000_000,
        warm_us=900_000,
    )
    ledger = run_policy(rig, fifo_pool, 0)
    assert ledger.by_kind[0].good == pytest.approx(100, abs=1)
    assert sum(ledger.good_at) == pytest.approx(1_000, abs=1)


def test_rigs_that_make_no_sense_are_refused() -> None:
    kinds = small(1).kinds
    for changes in (
        {"kinds": ()},
        {"workers": 0},
        {"refusal_cost": 1.0},
        {"warm_us": 3_000_000},
    ):
        with pytest.raises(BadValue):
            small(1, **changes)
    with pytest.raises(BadValue):
        Retries(attempts=0)
    with pytest.raises(BadValue):
        WorkKind(name="", arrivals=kinds[0].arrivals)
    with pytest.raises(BadValue):
        BoundedOrder(0)
