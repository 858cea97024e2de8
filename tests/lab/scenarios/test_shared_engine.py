"""Before an engine of several dispatchers what matters is saved."""

from __future__ import annotations

import pytest

from sluicegate.lab.scenario import Figures
from sluicegate.lab.scenarios.shared_engine import SCENARIO, curves, rig


def figures(candidate: str, case: str) -> Figures:
    return SCENARIO.run_once(candidate, case, 0)


@pytest.mark.prove
@pytest.mark.parametrize("case", ["four", "eight"])
def test_what_matters_is_served_though_queue_is_in_engine(case: str) -> None:
    found = figures("layers", case)
    assert found["served.CRITICAL"] > 0.7
    assert found["served.DEGRADED"] > 0.7


def test_what_is_drawn_begins_before_the_flood() -> None:
    of = rig(1, 0.2, 200_000)
    drawn = curves(of, SCENARIO.candidate("layers").run(of, 0))
    assert drawn["critical"][0] == (62.0, 1.0)
    assert {share for _, share in drawn["price"]} == {1.0}
