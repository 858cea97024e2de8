"""What the whole chain costs: that it is measured, not how fast this machine is."""

from __future__ import annotations

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.scenarios.overhead import (
    ROUND,
    SCENARIO,
    Overhead,
    measure,
    plain_window,
    play,
    server_chain,
)
from tests.prove.seeds import whole


def test_the_chain_costs_less_than_what_is_written_by_hand_and_leaves_less_behind() -> None:
    rig = Overhead(requests=3 * ROUND)
    ours = measure(rig, play(rig, server_chain, 1))
    plain = measure(rig, play(rig, plain_window, 1))
    assert 0 < ours["p50_us"] < plain["p50_us"]
    assert ours["p50_us"] <= ours["p99_us"]


def test_nothing_is_left_behind_however_many_have_passed() -> None:
    rig = Overhead(requests=10 * ROUND)
    assert play(rig, server_chain, 1).objects < 200


@pytest.mark.prove
def test_ten_million_requests_leave_nothing_behind() -> None:
    rig = Overhead(requests=10_000_000 if whole() else 200_000)
    assert measure(rig, play(rig, server_chain, 1))["objects_per_million"] < 1_000


def test_fewer_than_a_round_are_refused() -> None:
    with pytest.raises(BadValue, match="requests"):
        Overhead(requests=ROUND - 1)


def test_it_is_the_claim_of_the_compiled_build() -> None:
    assert {goal.figure for goal in SCENARIO.goals} == {"p50_us", "p99_us", "objects_per_million"}
