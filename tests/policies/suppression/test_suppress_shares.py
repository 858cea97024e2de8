"""Shares by demand: an account's limit divided among nodes, once it is over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.policies.suppression.suppress import SuppressSettings
from sluicegate.policies.suppression.suppress_master import SHARES, SuppressMasterSettings
from sluicegate.policies.suppression.suppress_shares import (
    ShareBucket,
    demand_per_s,
    new_demand,
    share_of,
)
from tests.cluster.world import L, Nodes

S = 1_000_000


def sharing(count: int = 5) -> Nodes:
    return Nodes(
        count, node=SuppressSettings(shares=True), master=SuppressMasterSettings(form=SHARES)
    )


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=20), st.integers(100, 1_000_000))
def test_shares_are_as_the_demand_is_and_the_limit_together(demands: list[int], per_s: int) -> None:
    demand = sum(demands)
    shares = [share_of(own, demand, per_s, 2 * per_s) for own in demands]
    rounded = len(demands)  # each to a whole number, of at least one
    assert abs(sum(share.per_s for share in shares) - per_s) <= rounded
    assert abs(sum(share.burst for share in shares) - 2 * per_s) <= rounded
    for own, share in zip(demands, shares, strict=True):
        assert abs(share.per_s - per_s * own / demand) <= 1


def test_demand_is_of_the_last_second_and_is_forgotten() -> None:
    rings = [new_demand(), new_demand()]
    for tenth in range(20):
        rings[0].add(30, tenth * S // 10)
        rings[1].add(10, tenth * S // 10)
    assert demand_per_s(rings, 2 * S - 1) == pytest.approx(400, rel=0.01)
    assert demand_per_s(rings[:1], 2 * S - 1) == pytest.approx(300, rel=0.01)
    assert demand_per_s(rings, 3 * S) == 0.0


def test_a_bucket_begins_empty_fills_at_its_rate_and_a_new_share_is_no_new_burst() -> None:
    bucket = ShareBucket(0)
    bucket.change(100.0, 50.0, 0)
    assert not bucket.take(1, 0)
    assert bucket.take(10, S // 10)
    assert not bucket.take(1, S // 10)
    bucket.change(10.0, 5.0, S)  # it has 50, and room for 5
    assert bucket.take(5, S)
    assert not bucket.take(1, S)
    bucket.change(100.0, 50.0, S)
    assert not bucket.take(1, S)
    bucket.give_back(3)
    assert bucket.take(3, S)


def test_an_operation_heavier_than_the_bucket_passes_when_it_is_full_and_is_paid_off() -> None:
    bucket = ShareBucket(0)
    bucket.change(10.0, 5.0, 0)
    assert not bucket.take(30, S // 4)
    assert bucket.take(30, S)
    assert not bucket.take(1, 3 * S)
    assert bucket.take(1, 4 * S)


def test_an_account_that_is_over_is_held_to_its_limit_by_shares_and_let_go() -> None:
    """Most of it at one node; beside it one that conforms."""
    nodes = sharing(20)
    skewed = [nodes.names[0]] * 10 + nodes.names
    nodes.run(3, {"a": 0.8 * L, "calm": 0.95 * L}, spread=skewed)
    assert nodes.suppressed.total() == 0
    for second in range(6):
        nodes.run(1, {"a": 10.0 * L, "calm": 0.95 * L}, spread=skewed)
        assert second < 3 or 0.95 <= nodes.rate("a", 1) <= 1.05
    assert 0.99 <= nodes.rate("a", 3) <= 1.02
    assert nodes.beyond("a") <= 1 + 2.0
    nodes.run(3, {"a": 0.9 * L}, spread=nodes.names[7:9])
    before = nodes.suppressed["a"]
    nodes.run(4, {"a": 0.9 * L}, spread=nodes.names[7:9])
    nodes.run(1, {"a": 0.9 * L}, spread=nodes.names[12:13])
    assert nodes.suppressed["a"] == before, "also where it had no share"
    assert nodes.suppressed["calm"] == 0


def test_a_surge_where_a_share_is_held_passes_no_more_than_the_share() -> None:
    """In half a second no news is needed. The control rejects a fraction, of whatever comes."""
    passed = {}
    for nodes in (sharing(), Nodes(node=SuppressSettings(fuse_ratio=0))):
        nodes.run(5, {"a": 3.0 * L})
        nodes.loss = 1.0
        nodes.run(0.4, {"a": 60.0 * L})
        passed[nodes.node is not None and nodes.node.shares] = nodes.rate("a", 0.4)
    assert passed[True] <= 1.6
    assert passed[False] >= 10


def test_a_node_that_is_cut_off_holds_its_share_and_goes_over_to_an_equal_one() -> None:
    nodes = sharing()
    names = nodes.names
    master = nodes.alive["n0"].master_of("a")
    away = next(name for name in names if name != master)
    rest = [name for name in names if name != away]
    nodes.run(6, {"a": 10.0 * L}, spread=[away] * 6 + rest)  # it has 0.6
    nodes.cut = {away}
    nodes.run(1.5, {"a": 10.0 * L}, spread=[away])
    assert 0.5 <= nodes.rate("a", 1) <= 0.7
    nodes.run(5, {"a": 10.0 * L}, spread=[away])
    assert 0.19 <= nodes.rate("a", 1) <= 0.21
    nodes.run(4, {"a": 10.0 * L})
    assert 0.95 <= nodes.rate("a", 2) <= 1.05, "the others have the rest, and no more"
