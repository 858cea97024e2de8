"""Before an engine of several dispatchers a price saves what the queue cannot; alone it rests."""

from __future__ import annotations

import pytest

from sluicegate.lab.scenario import Figures
from sluicegate.lab.scenarios.shared_engine import SCENARIO, curves, rig


def figures(candidate: str, case: str) -> Figures:
    return SCENARIO.run_once(candidate, case, 0)


@pytest.mark.prove
def test_the_price_of_the_lowest_class_saves_the_others_where_the_line_is_in_the_engine() -> None:
    queue, prices = figures("off", "four"), figures("local", "four")
    for member in ("CRITICAL", "DEGRADED"):
        assert prices[f"served.{member}"] > queue[f"served.{member}"] + 0.2
    assert prices["dearest"] == 4
    assert queue["dearest"] == 1


@pytest.mark.prove
def test_before_a_single_dispatcher_the_queue_suffices_and_no_price_moves() -> None:
    alone = figures("local", "alone")
    assert alone["dearest"] == 1
    assert alone["served.CRITICAL"] > 0.95


def test_what_is_drawn_begins_before_the_flood() -> None:
    of = rig(1, 0.2, 200_000)
    drawn = curves(of, SCENARIO.candidate("off").run(of, 0))
    assert drawn["critical"][0] == (62.0, 1.0)
    assert {share for _, share in drawn["price"]} == {1.0}
