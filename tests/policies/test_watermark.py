"""Above the high mark all are refused but what is CRITICAL, until the line is at the low mark."""

from __future__ import annotations

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request
from sluicegate.policies.watermark import Watermark, WatermarkSettings


def test_it_refuses_from_high_to_low_and_not_before_or_after() -> None:
    waiting = 0
    mark = Watermark(lambda: waiting, WatermarkSettings(high=10, low=3))

    def passes(depth: int, criticality: Criticality = Criticality.DEGRADED) -> bool:
        nonlocal waiting
        waiting = depth
        admission = mark.admit(Request("k", criticality=criticality), 0)
        return not isinstance(admission, Decision)

    assert passes(9)
    assert not passes(10)
    assert not passes(4)
    assert passes(4, Criticality.CRITICAL)
    assert passes(3)
    assert passes(9)
    assert mark.stats() == (4, 2, 1, False)


def test_a_low_mark_that_is_not_below_the_high_one_is_refused() -> None:
    with pytest.raises(BadValue, match=r"watermark\.low: 5 .* below high, 5"):
        WatermarkSettings(high=5, low=5)


def test_who_stands_behind_it_hears_of_all_it_refuses() -> None:
    missed: list[int] = []
    mark = Watermark(lambda: 10, WatermarkSettings(high=10, low=3), missed.append)
    mark.admit(Request("k"), 7)
    mark.admit(Request("k", criticality=Criticality.CRITICAL), 8)
    assert missed == [7]


def test_who_joins_a_line_that_is_short_passes() -> None:
    lines = {"quick": 3, "slow": 9}
    settings = WatermarkSettings(high=10, low=3)
    mark = Watermark(lambda: 12, settings, beside=lambda request: lines[request.operation])
    assert not isinstance(mark.admit(Request("k", operation="quick"), 0), Decision)
    assert isinstance(mark.admit(Request("k", operation="slow"), 0), Decision)
    lines["quick"] = 4
    assert isinstance(mark.admit(Request("k", operation="quick"), 0), Decision)
