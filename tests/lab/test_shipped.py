"""What ships, before the workers of a station."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.arrivals import Even, Poisson
from sluicegate.lab.durations import Constant
from sluicegate.lab.measures import figures
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.rigs.shipped import SHIPPED


def station(load: float, *, workers: int = 8, critical: float = 0.2) -> Rig:
    """Workers of 10 ms, and two classes; a refusal costs 1%."""
    per_s = load * workers * 100
    kinds = (
        WorkKind(
            name="critical",
            arrivals=Poisson(per_s * critical),
            criticality=Criticality.CRITICAL,
            callers=20,
            operation="get",
        ),
        WorkKind(
            name="bulk",
            arrivals=Poisson(per_s * (1 - critical)),
            criticality=Criticality.BULK,
            callers=20,
            operation="get",
        ),
    )
    return Rig(
        kinds=kinds, workers=workers, refusal_cost=0.01, span_us=2_500_000, warm_us=1_000_000
    )


@pytest.mark.prove
def test_too_much_work_of_the_lowest_class_leaves_the_highest_alone() -> None:
    rig = replace(station(3), span_us=13_000_000, warm_us=10_000_000)  # then a limit is found
    for name, candidate in SHIPPED.items():
        found = figures(rig, candidate.run(rig, 1))
        assert found["success.critical"] >= 0.99, name
        assert found["goodput"] >= 0.88, name
        assert found["success.bulk"] < 0.3, name


def test_a_load_that_fits_is_served_in_full() -> None:
    kinds = (WorkKind(name="get", arrivals=Even(600)),)
    rig = Rig(kinds=kinds, workers=8, service=Constant(10_000), span_us=2_000_000, warm_us=500_000)
    for name, candidate in SHIPPED.items():
        found = figures(rig, candidate.run(rig, 1))
        assert found["success.get"] == 1.0, name
        assert found["p99_ms"] == 10.0, name


def test_work_that_is_given_up_at_its_deadline_keeps_its_worker() -> None:
    """Two workers, units of 300 ms and callers who wait for 100: nobody is answered, and the
    workers are busy with what was given up, so most is refused."""
    kinds = (WorkKind(name="get", arrivals=Even(50), timeout_us=100_000),)
    rig = Rig(kinds=kinds, workers=2, service=Constant(300_000), span_us=3_000_000, warm_us=0)
    row = SHIPPED["dispatcher"].run(rig, 1).by_kind[0]
    assert row.good == 0
    assert 10 <= row.late <= 20, "two every 300 ms"
