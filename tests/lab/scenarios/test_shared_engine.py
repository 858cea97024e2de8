"""Before an engine of several dispatchers what matters is saved; alone no price moves."""

from __future__ import annotations

import pytest

from sluicegate.lab.scenario import Figures
from sluicegate.lab.scenarios.shared_engine import SCENARIO, curves, rig


def figures(candidate: str, case: str) -> Figures:
    return SCENARIO.run_once(candidate, case, 0)


@pytest.mark.prove
def test_eight_dispatchers_find_by_themselves_what_only_prices_did_before() -> None:
    """Places that had been cut came back while the line stood: 0.15 less without prices."""
    found = {name: SCENARIO.run_once(name, "eight", 6) for name in ("off", "local")}
    for member in ("CRITICAL", "DEGRADED"):
        queues, priced = (found[name][f"served.{member}"] for name in ("off", "local"))
        assert queues > 0.9
        assert abs(priced - queues) < 0.05


@pytest.mark.prove
@pytest.mark.parametrize("prices", ["local", "off"])
def test_what_matters_is_served_though_the_line_is_in_the_engine(prices: str) -> None:
    """Without prices a quarter was, until fewer places were tried where nothing is in time."""
    found = figures(prices, "four")
    assert found["served.CRITICAL"] > 0.9
    assert found["served.DEGRADED"] > 0.9


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
