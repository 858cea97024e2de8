from __future__ import annotations

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.utilization_shed import DEFAULT_RAMPS, Ramp, RampSettings, UtilizationShed
from sluicegate.policies.admission.ramps import ONE_BY_ONE, TOGETHER, read_ramps


def shares(text: str, utilization: float, **more: float) -> list[float]:
    """What is refused of CRITICAL, DEGRADED, BEST_EFFORT and BULK."""
    ramps = read_ramps(text, **more, field="--shed-ramps")
    shed = UtilizationShed(RampSettings(ramps=ramps, floor=0.0))
    shed.observe(utilization)
    return [round(shed.refusal_share(member), 3) for member in Criticality]


def test_the_default_is_one_class_after_the_other() -> None:
    assert read_ramps(ONE_BY_ONE, field="") == DEFAULT_RAMPS
    assert shares(ONE_BY_ONE, 0.65) == [0, 0, 0, 0.5]
    assert shares(ONE_BY_ONE, 0.65, begin=0.3) == [0, 0, 0, 0.875]
    assert shares(ONE_BY_ONE, 0.95, critical_from=0.9) == [0.5, 1, 1, 1]


def test_together_bulk_and_best_effort_are_shed_alike_from_60_percent_and_nobody_else() -> None:
    assert shares(TOGETHER, 0.6) == [0, 0, 0, 0]
    assert shares(TOGETHER, 0.7) == [0, 0, 0.5, 0.5]
    assert shares(TOGETHER, 1.0) == [0, 0, 1, 1]
    assert shares(TOGETHER, 0.5, begin=0.3) == [0, 0, 0.4, 0.4]
    assert shares(TOGETHER, 1.0, critical_from=0.9) == [1, 1, 1, 1]


def test_ramps_may_be_written() -> None:
    text = "best-effort:0.5-0.7, BULK:0.3-0.5"
    assert read_ramps(text, field="") == (None, None, Ramp(0.5, 0.7), Ramp(0.3, 0.5))
    assert shares("BULK:0-0", 0.1) == [0, 0, 0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nobody",
        "BULK",
        "BULK:0.6",
        "BULK:0.7-0.6",
        "BULK:nan-1",
        "BULK:0.6-0.7,BULK:0.6-0.7",
        "BEST_EFFORT:0.6-0.8,BULK:0.7-0.9",  # they overlap
        "DEGRADED:0.6-0.8",  # before those that matter less
        "CRITICAL:0.7-1,DEGRADED:0.6-0.7,BEST_EFFORT:0.5-0.6,BULK:0.4-0.5",
    ],
)
def test_what_is_no_ramp_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="--shed-ramps"):
        read_ramps(text, field="--shed-ramps")


def test_a_ramp_that_is_wrong_is_named_by_its_class() -> None:
    with pytest.raises(BadValue, match="a ramp of BULK must rise within"):
        read_ramps("BULK:0.7-0.6", field="--shed-ramps")
