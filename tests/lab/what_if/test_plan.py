"""What serves, from what was said of it."""

from __future__ import annotations

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.what_if.plan import (
    BackendSpec,
    WhatIfPlan,
    derive_backend,
    parse_costs,
)

EVEN = (10_000.0,) * 4


def served(
    capacity: float | None = None, workers: int | None = None, cost: str = ""
) -> BackendSpec:
    costs = parse_costs(cost) if cost else {}
    return derive_backend(capacity=capacity, workers=workers, costs=costs, offered_per_s=40.0)


def test_two_of_capacity_workers_and_cost_say_the_third() -> None:
    assert served(100, 1) == BackendSpec(100, 1, EVEN)
    assert served(None, 1, "10000") == BackendSpec(100, 1, EVEN)
    assert served(400, None, "10000") == BackendSpec(400, 4, EVEN)
    assert served(400, 4, "10000") == BackendSpec(400, 4, EVEN)
    assert served(800) == BackendSpec(800, 8, EVEN)
    assert served(None, None, "10000") == BackendSpec(800, 8, EVEN)


def test_with_nothing_said_what_comes_is_four_fifths_of_what_can_be_served() -> None:
    design = served()
    assert (design.capacity, design.workers, design.chosen) == (50.0, 8, True)
    assert design.unit_us[0] == 160_000
    assert not served(50).chosen
    assert served(workers=4).chosen


def test_a_class_may_cost_what_it_costs() -> None:
    assert served(100, 1, "10000,BULK=50000").unit_us == (10_000, 10_000, 10_000, 50_000)
    every = served(None, 4, "critical=10000,degraded=20000,best-effort=30000,bulk=40000")
    assert [*every.unit_us] == [10_000, 20_000, 30_000, 40_000]
    assert every.capacity == 160  # of units as they cost on average
    assert parse_costs("5,BULK=7") == {None: 5, Criticality.BULK: 7}


@pytest.mark.parametrize(
    ("capacity", "workers", "cost", "words"),
    [
        (400, 3, "10000", "these need 4 workers"),
        (150, None, "10000", "no whole number of workers does this; 2 do 200/s"),
        (None, 4, "BULK=10000", "cost of a unit of the other classes"),
        (9, 4, "CRITICAL=1,DEGRADED=2,BEST_EFFORT=3,BULK=4", "leave out --capacity"),
        (None, 200_000, "10000", "1 to 100,000 workers"),
        (None, 100_000, "1", "units a second, up to"),
        (100, None, "x", "microseconds above 0"),
        (100, None, "0", "microseconds above 0"),
        (100, None, "10,20", "each class once"),
        (100, None, "10,NOBODY=20", "CRITICAL, DEGRADED"),
    ],
)
def test_what_does_not_fit_together_is_told(
    capacity: float | None, workers: int | None, cost: str, words: str
) -> None:
    with pytest.raises(BadValue, match=words):
        served(capacity, workers, cost)


def test_bounds_of_a_plan_are_named() -> None:
    one = served(100, 1)
    for field, wrong in (
        ("--timeout", {"timeout_us": 0}),
        ("--speed", {"speed": 0.0}),
        ("--queue", {"queue_max": 0}),
        ("--queue", {"queue_max": 10_000_001}),
    ):
        with pytest.raises(BadValue) as caught:
            WhatIfPlan(backend=one, **wrong)
        assert caught.value.field == field
