"""More CRITICAL work than can be served: the workers are busy, and users are treated alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.lab.scenarios.critical_excess import SCENARIO, rig
from tests.lab.scenarios.trials import met

MS = 1_000
SMALL = {
    "2x": replace(
        rig(2),
        kinds=(replace(rig(2).kinds[0], callers=20),),
        span_us=2_500 * MS,
        warm_us=500 * MS,
    )
}


@pytest.mark.prove
def test_the_chain_keeps_the_workers_busy_and_users_alike() -> None:
    assert met(SCENARIO, "protect", SMALL)


@pytest.mark.prove
@pytest.mark.parametrize("name", SCENARIO.must_fail)
def test_candidates_without_queue_fail(name: str) -> None:
    assert not met(SCENARIO, name, SMALL)
