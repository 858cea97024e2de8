"""Four classes and an excess of the lowest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.rigs.server_chain import clamp, server_chain
from sluicegate.lab.scenarios.priority import SCENARIO, rig
from sluicegate.lab.world import World, run
from tests.lab.scenarios.trials import met

MS = 1_000
SMALL = {"5x": replace(rig(5), span_us=1_200 * MS, warm_us=400 * MS)}
BY_CLASS = Rig(
    kinds=tuple(
        WorkKind(name=each.name.lower(), arrivals=Poisson(1), criticality=each, callers=1_000)
        for each in Criticality
    ),
    workers=10,
)


@pytest.mark.prove
def test_the_chain_serves_what_matters_and_wastes_no_worker() -> None:
    assert met(SCENARIO, "protect", SMALL)


@pytest.mark.prove
@pytest.mark.parametrize("name", SCENARIO.must_fail)
def test_whoever_has_no_classes_or_no_queue_fails(name: str) -> None:
    assert not met(SCENARIO, name, SMALL)


def test_the_chain_has_its_stages_in_order_and_only_critical_callers_may_say_so() -> None:
    async def main(world: World) -> list[str]:
        stack = server_chain(rig(2), world)
        stages = stack.stats().stages
        assert stages[-1].own.limit == rig(2).workers
        return [stage.name for stage in stages]

    assert run(main, 1).value == ["criticality", "queue"]
    assert clamp(BY_CLASS).callers == {
        f"critical-{caller}": Criticality.CRITICAL for caller in range(1_000)
    }
