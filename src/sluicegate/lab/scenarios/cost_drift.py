"""Cost drift: what work costs becomes three times as much, and one tenant's shapes are wrong.

A quota in request units is worth as much as its predictions. Weights that somebody calibrated are
wrong from the day on which rows, bytes or milliseconds cost more; and a tenant that says one row
and has two hundred looked at has no limit at all. The goal: within 2,000 requests the error is at
most 1.1 times what the noise alone leaves, the bias between 0.9 and 1.1, and neither a million
requests (`make prove`; here it is a tenth of that) nor outliers of a thousand times change that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sluicegate.lab.goals import Goal
from sluicegate.lab.rigs.drift import CountingBudget, Drift, candidate, curves, measure
from sluicegate.lab.scenario import OVER_CASES, OVER_TIME, PlotSpec, Scenario
from sluicegate.policies.request_units import RequestUnits, RequestUnitsSettings

# In a storm what it cost is mostly outliers, which are neither learned nor charged to the full.
CALM: Final = ("rows", "bytes", "ms", "all", "cheaper", "liar", "long")
WEIGHTS: Final = RequestUnitsSettings().weights


def units(rig: Drift, budget: CountingBudget, **form: Any) -> RequestUnits:
    """The policy as it comes, or in another form."""
    return RequestUnits(RequestUnitsSettings(**form), budget=budget)


def form(**settings: Any) -> Callable[[Drift, CountingBudget], RequestUnits]:
    """The policy in another form."""
    return partial(units, **settings)


SCENARIO: Final = Scenario(
    number=15,
    name="cost-drift",
    title="Costs that become three times as much, and a tenant whose shapes are wrong",
    why="What is charged must be what it costs, for whoever causes it and for nobody else.",
    rigs={
        "rows": Drift(rows=3.0),
        "bytes": Drift(size_bytes=3.0),
        "ms": Drift(ms=3.0),
        "all": Drift(rows=3.0, size_bytes=3.0, ms=3.0),
        "cheaper": Drift(rows=1 / 3, size_bytes=1 / 3, ms=1 / 3),
        "liar": Drift(at=0, liar_every=10),
        "long": Drift(requests=100_000, at=94_000, rows=3.0, liar_every=10),
        "storm": Drift(requests=20_000, at=10_000, storms=0.001),
    },
    candidates={
        "request-units": candidate(form(), WEIGHTS),
        "without-ratios": candidate(form(ratios_max=0), WEIGHTS),
        "seed": candidate(form(ratios_max=0, settle=False, margin_quantile=None), WEIGHTS),
        "without-learning": candidate(form(learn_rate=0.0), WEIGHTS),
        "calibrated": candidate(form(learn_rate=0.0, settle=False), WEIGHTS),
    },
    ours="request-units",
    must_fail=("calibrated", "without-learning", "without-ratios"),
    goals=(
        Goal(figure="wape_over_floor", at_most=1.1),
        Goal(figure="settled_requests", at_most=2_000),
        Goal(figure="bias", at_least=0.9, cases=CALM),
        Goal(figure="bias", at_most=1.1, cases=CALM),
        Goal(figure="bias.honest", at_most=1.1),
        Goal(figure="paid.liar", at_least=0.9, cases=("liar", "long")),
        Goal(figure="farthest", at_most=2.0),
    ),
    measure=measure,
    columns=("wape", "wape_over_floor", "settled_requests", "bias", "bias.honest", "paid.liar"),
    curves=curves,
    plots=(
        PlotSpec("Error over the floor", ("wape_over_floor",), OVER_CASES, "times", "", True),
        PlotSpec(
            "After the drift", ("wape_over_floor",), OVER_TIME, "error over floor", "requests"
        ),
    ),
    scale="100,000 requests in a row, not a million; one a millisecond, no queue, no workers.",
)
